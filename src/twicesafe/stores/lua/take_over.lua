-- ARGV: now, the head as it was seen, what stands before the lease, lease_us, what stands after it. The time, or nil
-- where the record has changed.
if head() ~= ARGV[2] then
    return false
end
local at = now()
redis.call('SET', name, ARGV[3] .. struct.pack('>I8', at + ARGV[4]) .. ARGV[5])
return at
