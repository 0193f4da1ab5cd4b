-- ARGV: now, the head as it was seen, key_us. The time, or nil where the record has changed.
if head() ~= ARGV[2] then
    return false
end
local at = now()
redis.call('SETRANGE', name, 1, 'd')
redis.call('SETRANGE', name, 35, struct.pack('>I8I8', at, at + ARGV[3]))
redis.call('PEXPIRE', name, milliseconds(ARGV[3]))
tell()
return at
