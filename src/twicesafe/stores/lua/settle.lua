-- ARGV: now, ownership; to complete also: status, header lines, place of the body, body, key_us, body_us. The time, or nil
-- where the outcome is not unknown under this ownership.
local value = redis.call('GET', name)
if not value or state(value) ~= 'u' or not owned(value, ARGV[2]) then
    return false
end
local at = now()
if ARGV[3] then
    keep(value, at, ARGV[7], ARGV[8], ARGV[3], ARGV[4], ARGV[5], ARGV[6])
else
    redis.call('DEL', name)
    tell()
end
return at
