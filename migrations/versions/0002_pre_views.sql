CREATE VIEW owner_credit_daily AS
SELECT
    (s.settled_at AT TIME ZONE 'UTC')::date AS day,
    s.tenant,
    s.owner_id,
    count(DISTINCT s.answer_id) AS answers,
    count(*) AS sources,
    sum(s.credit_units) AS credit_units,
    round(sum(s.credit_units) / 1000000000000, 6) AS credit,
    round(sum(s.share_units) / 1000000000000, 6) AS shares,
    round(sum(s.plain_credit_units) / 1000000000000, 6) AS plain_credit
FROM source_attributions s
JOIN answers a USING (tenant, answer_id, revision)
GROUP BY day, s.tenant, s.owner_id;
COMMENT ON VIEW owner_credit_daily IS
    'What each owner earned per day of settlement (UTC), current revisions only. Restrict a long range by tenant and day.';
COMMENT ON COLUMN owner_credit_daily.day IS 'Day of settlement, UTC';
COMMENT ON COLUMN owner_credit_daily.tenant IS 'Tenant of the search engine';
COMMENT ON COLUMN owner_credit_daily.owner_id IS 'Owner of the sources; NULL gathers the sources without one';
COMMENT ON COLUMN owner_credit_daily.answers IS 'Answers that named a source of this owner, whether it earned or not';
COMMENT ON COLUMN owner_credit_daily.sources IS 'Sources of this owner in those answers';
COMMENT ON COLUMN owner_credit_daily.credit_units IS 'Credit earned, in units of 10^-12: exact';
COMMENT ON COLUMN owner_credit_daily.credit IS 'Credit earned; 1 is one fully supported answer''s worth';
COMMENT ON COLUMN owner_credit_daily.shares IS 'Sum of shares; 1 is one answer''s whole budget';
COMMENT ON COLUMN owner_credit_daily.plain_credit IS 'Credit without grouping by owner, to see the effect of grouping';

CREATE VIEW answer_explained AS
SELECT
    t.tenant,
    t.answer_id,
    t.revision,
    t.settled_at,
    t.status,
    t.evidence ->> 'query' AS query,
    (p.number - 1)::integer AS key_point_index,
    p.document ->> 'text' AS key_point,
    (p.document ->> 'weight')::integer AS weight,
    round(c.coverage / 10000.0, 4) AS coverage,
    c.coverage < (t.evidence ->> 'grounding_threshold')::integer AS ungrounded,
    s.position AS source_position,
    s.source_id,
    s.owner_id,
    s.title,
    s.url,
    round((t.evidence -> 'supports' -> (p.number - 1)::integer ->> s.position)::integer / 10000.0, 4) AS support,
    q.document ->> 3 AS quote,
    q.document ->> 2 AS quote_origin,
    round((u.document ->> 2)::integer / 10000.0, 4) AS unevidenced_support,
    round(s.credit_units / 1000000000000.0, 12) AS source_credit,
    round(s.share_units / 1000000000000.0, 12) AS source_share
FROM answers a
JOIN attributions t USING (tenant, answer_id, revision)
JOIN source_attributions s ON s.tenant = t.tenant AND s.answer_id = t.answer_id AND s.revision = t.revision
    AND s.settled_at = t.settled_at
CROSS JOIN LATERAL jsonb_array_elements(t.evidence -> 'key_points') WITH ORDINALITY AS p (document, number)
CROSS JOIN LATERAL (
    SELECT max(support::integer) AS coverage
    FROM jsonb_array_elements_text(t.evidence -> 'supports' -> (p.number - 1)::integer) AS support
) c
LEFT JOIN LATERAL (
    SELECT quote.document
    FROM jsonb_array_elements(t.evidence -> 'quotes') AS quote (document)
    WHERE (quote.document ->> 0)::integer = p.number - 1 AND (quote.document ->> 1)::integer = s.position
) q ON true
LEFT JOIN LATERAL (
    SELECT cell.document
    FROM jsonb_array_elements(t.evidence -> 'unevidenced') AS cell (document)
    WHERE (cell.document ->> 0)::integer = p.number - 1 AND (cell.document ->> 1)::integer = s.position
) u ON true;
COMMENT ON VIEW answer_explained IS
    'Why did this source earn this? A row per key point and source of an answer, current revision. Ask by tenant and answer_id.';
COMMENT ON COLUMN answer_explained.query IS 'The query; NULL when texts are not stored';
COMMENT ON COLUMN answer_explained.key_point IS 'Key point of the answer; its SHA-256 when texts are not stored';
COMMENT ON COLUMN answer_explained.weight IS 'Weight of the key point within its answer';
COMMENT ON COLUMN answer_explained.coverage IS 'Best support any source gives the key point, 0 .. 1';
COMMENT ON COLUMN answer_explained.ungrounded IS 'Whether coverage is below the grounding threshold';
COMMENT ON COLUMN answer_explained.support IS 'How fully this source states this key point, 0 .. 1';
COMMENT ON COLUMN answer_explained.quote IS 'Words of the source that state the key point; their SHA-256 when texts are not stored';
COMMENT ON COLUMN answer_explained.quote_origin IS 'verbatim: the judge quoted it; located: found afterwards by the worker';
COMMENT ON COLUMN answer_explained.unevidenced_support IS 'The judge''s own number where no evidence was found, so that support is 0';
COMMENT ON COLUMN answer_explained.source_credit IS 'Credit of the source over the whole answer';
COMMENT ON COLUMN answer_explained.source_share IS 'Share of the source in the answer''s budget';

CREATE VIEW ungrounded_key_points AS
SELECT
    t.settled_at,
    t.tenant,
    t.answer_id,
    t.revision,
    t.evidence ->> 'query' AS query,
    (p.number - 1)::integer AS key_point_index,
    p.document ->> 'text' AS key_point,
    (p.document ->> 'weight')::integer AS weight,
    round(c.coverage / 10000.0, 4) AS coverage,
    round((t.evidence ->> 'grounding_threshold')::integer / 10000.0, 4) AS grounding_threshold
FROM answers a
JOIN attributions t USING (tenant, answer_id, revision)
CROSS JOIN LATERAL jsonb_array_elements(t.evidence -> 'key_points') WITH ORDINALITY AS p (document, number)
CROSS JOIN LATERAL (
    SELECT coalesce(max(support::integer), 0) AS coverage
    FROM jsonb_array_elements_text(t.evidence -> 'supports' -> (p.number - 1)::integer) AS support
) c
WHERE t.ungrounded_key_point_count > 0
    AND c.coverage < (t.evidence ->> 'grounding_threshold')::integer;
COMMENT ON VIEW ungrounded_key_points IS
    'What answers claim and no source supports enough: hallucination, or the model''s own knowledge. Restrict by settled_at.';
COMMENT ON COLUMN ungrounded_key_points.key_point IS 'Key point of the answer; its SHA-256 when texts are not stored';
COMMENT ON COLUMN ungrounded_key_points.coverage IS 'Best support any source gives it, 0 .. 1';
COMMENT ON COLUMN ungrounded_key_points.grounding_threshold IS 'Coverage it would have needed, 0 .. 1';

CREATE VIEW llm_spend_daily AS
SELECT
    (started_at AT TIME ZONE 'UTC')::date AS day,
    provider,
    model,
    stage,
    count(*) AS calls,
    count(*) FILTER (WHERE outcome = 'unknown') AS unknown_calls,
    count(*) FILTER (WHERE cost_usd IS NULL AND outcome NOT IN ('intent', 'unknown')) AS unpriced_calls,
    sum(input_tokens) AS input_tokens,
    sum(cache_read_tokens) AS cache_read_tokens,
    sum(cache_write_tokens) AS cache_write_tokens,
    sum(output_tokens) AS output_tokens,
    sum(reasoning_tokens) AS reasoning_tokens,
    coalesce(sum(cost_usd), 0) AS cost_usd,
    coalesce(sum(reserved_cost_usd) FILTER (WHERE cost_usd IS NULL), 0) AS cost_usd_open
FROM llm_calls
GROUP BY day, provider, model, stage;
COMMENT ON VIEW llm_spend_daily IS 'LLM calls, tokens and dollars per day (UTC), provider, model and stage.';
COMMENT ON COLUMN llm_spend_daily.unknown_calls IS 'Sent and never answered: perhaps billed';
COMMENT ON COLUMN llm_spend_daily.unpriced_calls IS 'Answered by a model without a known price: not in cost_usd';
COMMENT ON COLUMN llm_spend_daily.cost_usd IS 'US dollars of the calls with a known cost';
COMMENT ON COLUMN llm_spend_daily.cost_usd_open IS 'Upper bound of the rest: what was reserved for calls without a known cost';

CREATE VIEW answer_cost AS
SELECT
    t.settled_at,
    t.tenant,
    t.answer_id,
    t.revision,
    t.status,
    t.llm_call_count,
    t.input_tokens + t.cache_read_tokens + t.cache_write_tokens AS input_tokens,
    t.output_tokens + t.reasoning_tokens AS output_tokens,
    t.cost_usd,
    j.calls AS journaled_calls,
    j.unknown_calls,
    j.cost_usd AS journaled_cost_usd
FROM answers a
JOIN attributions t USING (tenant, answer_id, revision)
CROSS JOIN LATERAL (
    SELECT
        count(*) AS calls,
        count(*) FILTER (WHERE outcome = 'unknown') AS unknown_calls,
        coalesce(sum(c.cost_usd), 0) AS cost_usd
    FROM llm_calls c
    WHERE c.tenant = t.tenant AND c.answer_id = t.answer_id
) j;
COMMENT ON VIEW answer_cost IS 'What judging one answer cost: of the attribution that counts, and of every call ever made for it.';
COMMENT ON COLUMN answer_cost.cost_usd IS 'Of the attribution; NULL = at least one of its calls is unpriced';
COMMENT ON COLUMN answer_cost.journaled_calls IS 'Every call made for the answer, failed and repeated ones too';
COMMENT ON COLUMN answer_cost.unknown_calls IS 'Calls sent and never answered: perhaps billed';
COMMENT ON COLUMN answer_cost.journaled_cost_usd IS 'US dollars of the journaled calls with a known cost'
