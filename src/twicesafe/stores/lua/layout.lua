-- What the scripts share; each has those functions in front that it uses. KEYS[1] is a record's name; ARGV[1] is the
-- time in microseconds, or empty: then it is the server's own, which nothing but a test replaces. A record is one
-- string:
--
--   byte  1      version of this layout, 1            byte  52-59  body_until
--         2      state: c claimed, d done, u unknown        60-61  status, 0 while there is no answer
--         3      effects                                    62-65  length of what the claim said
--         4-11   epoch                                      66-69  length of the answer's header lines
--        12-27   owner token                                70     the body: 0 none, 1 at the end, 2 in a key of its own,
--        28-35   created_at                                        which is named after what stands at the end
--        36-43   lease_until
--        44-51   key_until                                  71-    what the claim said, header lines, body or name
--
-- Numbers have their highest byte first, times are microseconds since 1970. Redis forgets a completed record by itself
-- (PX); one that is claimed or unknown it keeps.

local function now()
    if ARGV[1] ~= '' then
        return tonumber(ARGV[1])
    end
    local time = redis.call('TIME')
    return time[1] * 1000000 + time[2]
end

local function head()
    return redis.call('GETRANGE', name, 0, 69)
end

local function owned(value, ownership)
    return string.sub(value, 4, 27) == ownership
end

local function state(value)
    return string.sub(value, 2, 2)
end

local function number(value, at)
    return (struct.unpack('>I8', value, at))
end

local function over(value, at)
    return state(value) == 'd' and at >= number(value, 44)
end

local function milliseconds(duration)
    return math.max(1, math.ceil(duration / 1000))
end

-- The record with an answer in it: all but the head's first 27 bytes and what the claim said is new.
local function answered(value, word, times, status, headers, place, body)
    local said = (struct.unpack('>I4', value, 62))
    return '\1' .. word .. string.sub(value, 3, 35) .. times .. status .. string.sub(value, 62, 65)
        .. struct.pack('>I4', #headers) .. place .. string.sub(value, 71, 70 + said) .. headers .. body
end

-- Whoever waits is told that it is worth looking. A claim must not fail because nobody may be told.
local function tell()
    redis.pcall('SPUBLISH', name, '')
end

local function keep(value, at, key_us, body_us, status, headers, place, body)
    local times = struct.pack('>I8I8I8', at, at + key_us, at + body_us)
    redis.call('SET', name, answered(value, 'd', times, status, headers, place, body), 'PX', milliseconds(key_us))
    tell()
end
