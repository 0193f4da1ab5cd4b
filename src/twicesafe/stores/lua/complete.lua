-- ARGV: now, ownership, status, header lines, place of the body, body, key_us, body_us. The time, or nil where the claim
-- is no longer this owner's. Completed by this owner before, it stays as it is.
local value, at = redis.call('GET', name), now()
if not value or not owned(value, ARGV[2]) or over(value, at) then
    return false
end
if state(value) ~= 'd' then
    keep(value, at, ARGV[7], ARGV[8], ARGV[3], ARGV[4], ARGV[5], ARGV[6])
end
return at
