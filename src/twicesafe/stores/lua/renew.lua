-- ARGV: now, ownership, lease_us. The time, or nil where the claim is no longer this owner's.
local value = head()
if not owned(value, ARGV[2]) or state(value) ~= 'c' then
    return false
end
local at = now()
redis.call('SETRANGE', name, 35, struct.pack('>I8', at + ARGV[3]))
return at
