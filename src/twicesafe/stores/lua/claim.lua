-- ARGV: now, effects, owner, said, lease_us, key_us. The time if this claim is won, else the time and the record.
local value, at = redis.call('GET', name), now()
if value and not over(value, at) then
    return {at, value}
end
local key_until = at + ARGV[6]
redis.call('SET', name, '\1c' .. ARGV[2] .. '\0\0\0\0\0\0\0\1' .. ARGV[3]
    .. struct.pack('>I8I8I8I8', at, at + ARGV[5], key_until, key_until)
    .. '\0\0' .. struct.pack('>I4', #ARGV[4]) .. '\0\0\0\0\0' .. ARGV[4])
return at
