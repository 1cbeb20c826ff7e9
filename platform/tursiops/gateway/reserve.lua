-- Take one request, its estimated tokens and one place, or nothing at all. See limits.py.
-- KEYS: buckets (hash), places (sorted set of request ids by the end of their lease, unix ms)
-- ARGV: requests per minute, tokens per minute, places (each -1: no limit), tokens, request id, lease in ms
-- Answer: {"" or the limit that refuses, wait in ms}
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local rpm, tpm, parallel, tokens = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local held = redis.call('HMGET', KEYS[1], 'requests', 'tokens', 'at')
local minutes = math.max(0, now - (tonumber(held[3]) or now)) / 60000

local function level(stored, limit)
  return math.min(limit, (tonumber(stored) or limit) + minutes * limit)
end

local requests_left = level(held[1], math.max(rpm, 0))
local tokens_left = level(held[2], math.max(tpm, 0))
if rpm >= 0 and requests_left < 1 then
  return {'requests_per_minute', math.ceil((1 - requests_left) * 60000 / math.max(rpm, 1))}
end
if tpm >= 0 and tokens_left < tokens then
  return {'tokens_per_minute', math.ceil((tokens - tokens_left) * 60000 / math.max(tpm, 1))}
end
if parallel >= 0 then
  redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', now)
  if redis.call('ZCARD', KEYS[2]) >= parallel then
    return {'parallel', 1000}
  end
  redis.call('ZADD', KEYS[2], now + tonumber(ARGV[6]), ARGV[5])
  redis.call('PEXPIRE', KEYS[2], 86400000)
end

local function keep(field, limit, left)
  if limit >= 0 then
    redis.call('HSET', KEYS[1], field, tostring(left))
  else
    redis.call('HDEL', KEYS[1], field) -- a limit that is set later starts full
  end
end

keep('requests', rpm, requests_left - 1)
keep('tokens', tpm, tokens_left - tokens)
redis.call('HSET', KEYS[1], 'at', now)
redis.call('PEXPIRE', KEYS[1], 3600000)
return {'', 0}
