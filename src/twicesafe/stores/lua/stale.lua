-- ARGV: now. The time and the record if it is a claim whose lease is over, else nil.
local at = now()
local value = head()
if state(value) ~= 'c' or at < number(value, 36) then
    return false
end
return {at, redis.call('GET', name)}
