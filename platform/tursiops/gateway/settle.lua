-- Give back the tokens that were reserved and not used (negative: they become a debt), and the place.
-- KEYS: buckets, places. ARGV: tokens per minute (-1: no limit), tokens to give back, request id
local tpm = tonumber(ARGV[1])
if tpm >= 0 then
  local held = redis.call('HMGET', KEYS[1], 'tokens', 'at')
  if held[1] then
    redis.call('HSET', KEYS[1], 'tokens', tostring(math.min(tpm, tonumber(held[1]) + tonumber(ARGV[2]))))
  end
end
redis.call('ZREM', KEYS[2], ARGV[3])
return 1
