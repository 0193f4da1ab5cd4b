-- ARGV: now, ownership. The time, or nil where the claim is no longer this owner's.
local value = head()
if not owned(value, ARGV[2]) or state(value) == 'd' then
    return false
end
redis.call('SETRANGE', name, 1, 'u')
tell()
return now()
