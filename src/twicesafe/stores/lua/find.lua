-- ARGV: now. The time, and the record unless there is none.
local value, at = redis.call('GET', name), now()
if value and not over(value, at) then
    return {at, value}
end
return {at}
