-- Every request is a POST under a key of its own. What wrk found goes to its output as one line of JSON.

local counter = 0
local prefix, headers, body

function init(args)
  prefix = args[1]
  headers = { ["Content-Type"] = "application/json" }
  body = '{"amount": 100, "note": "' .. string.rep("x", 200) .. '"}'
end

function request()
  counter = counter + 1
  headers["Idempotency-Key"] = string.format("%s-%012x", prefix, counter)
  return wrk.format("POST", "/jobs", headers, body)
end

function done(summary, latency, requests)
  local errors = summary.errors
  io.write(string.format(
    '\n{"requests": %d, "microseconds": %d, "p50": %d, "p99": %d, "failed": %d}\n',
    summary.requests, summary.duration, latency:percentile(50), latency:percentile(99),
    errors.connect + errors.read + errors.write + errors.status + errors.timeout
  ))
end
