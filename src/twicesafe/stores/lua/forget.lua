-- ARGV: now, the head as it was seen. The time, or nil where the record has changed.
if head() ~= ARGV[2] then
    return false
end
redis.call('DEL', name)
tell()
return now()
