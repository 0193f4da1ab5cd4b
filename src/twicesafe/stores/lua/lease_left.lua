-- ARGV: now. Microseconds for which nothing will happen to the record unless its owner does it.
local value = head()
if state(value) ~= 'c' then
    return 0
end
return math.max(0, number(value, 36) - now())
