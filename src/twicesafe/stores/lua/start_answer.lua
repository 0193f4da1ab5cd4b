-- ARGV: now, ownership, status, header lines. The time, or nil where the claim is no longer this owner's.
local value = redis.call('GET', name)
if not value or not owned(value, ARGV[2]) or state(value) ~= 'c' then
    return false
end
redis.call('SET', name, answered(value, 'c', string.sub(value, 36, 59), ARGV[3], ARGV[4], '\0', ''))
return now()
