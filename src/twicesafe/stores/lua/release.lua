-- ARGV: now, ownership. The time, or nil where the claim is no longer this owner's, or its owner seemed gone and its
-- answer had begun to leave: that was done.
local value, at = head(), now()
if not owned(value, ARGV[2]) or state(value) == 'd' then
    return false
end
if state(value) == 'c' and string.sub(value, 60, 61) ~= '\0\0' and at >= number(value, 36) then
    return false
end
redis.call('DEL', name)
tell()
return at
