-- A call that another worker ended between the sum of an answer's calls and its settlement is journaled, and is no fault.
CREATE OR REPLACE VIEW llm_call_faults AS
SELECT c.call_id, c.started_at, c.tenant, c.answer_id, 'recorded more than once' AS fault
FROM llm_calls c
WHERE EXISTS (SELECT 1 FROM llm_calls d WHERE d.call_id = c.call_id AND d.started_at <> c.started_at)
UNION ALL
SELECT c.call_id, c.started_at, c.tenant, c.answer_id, 'an intent that nobody claims'
FROM llm_calls c
WHERE c.outcome = 'intent' AND NOT EXISTS (SELECT 1 FROM llm_call_claims k WHERE k.call_id = c.call_id)
UNION ALL
SELECT k.call_id, k.started_at, c.tenant, c.answer_id, 'a claim without an intent'
FROM llm_call_claims k
LEFT JOIN llm_calls c ON c.call_id = k.call_id AND c.started_at = k.started_at
WHERE c.outcome IS DISTINCT FROM 'intent'
UNION ALL
SELECT c.call_id, c.started_at, c.tenant, c.answer_id, 'complete without a response'
FROM llm_calls c
WHERE c.outcome = 'complete' AND c.response IS NULL AND c.response_hash IS NULL
UNION ALL
SELECT c.call_id, c.started_at, c.tenant, c.answer_id, 'a cost that is not tokens times prices'
FROM llm_calls c
WHERE c.input_price_usd IS NOT NULL AND abs(c.cost_usd - (
    c.input_tokens * c.input_price_usd
    + c.cache_read_tokens * c.cache_read_price_usd
    + c.cache_write_tokens * c.cache_write_price_usd
    + (c.output_tokens + c.reasoning_tokens) * c.output_price_usd
)) > 0.00000000005
UNION ALL
SELECT c.call_id, c.started_at, c.tenant, c.answer_id, 'a cost above what was reserved'
FROM llm_calls c
WHERE c.cost_usd > c.reserved_cost_usd
UNION ALL
SELECT NULL, t.settled_at, t.tenant, t.answer_id, 'an attribution whose cost is not its calls'''
FROM attributions t
CROSS JOIN LATERAL (
    SELECT
        count(*) FILTER (WHERE c.cost_usd > 0 OR c.outcome = 'complete' AND c.cost_usd = 0) AS calls,
        coalesce(sum(c.cost_usd), 0) AS cost_usd,
        coalesce(sum(c.input_tokens + c.cache_read_tokens + c.cache_write_tokens
            + c.output_tokens + c.reasoning_tokens), 0) AS tokens
    FROM llm_calls c
    WHERE c.tenant = t.tenant AND c.answer_id = t.answer_id AND c.finished_at <= t.settled_at
) j
CROSS JOIN LATERAL (
    SELECT t.input_tokens + t.cache_read_tokens + t.cache_write_tokens + t.output_tokens + t.reasoning_tokens AS tokens
) told
WHERE t.revision = 1 AND t.cost_usd IS NOT NULL AND (
    t.llm_call_count > j.calls OR t.cost_usd > j.cost_usd OR told.tokens > j.tokens
    OR (t.llm_call_count = j.calls AND (t.cost_usd <> j.cost_usd OR told.tokens <> j.tokens))
)
