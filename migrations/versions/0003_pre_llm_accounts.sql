ALTER TABLE attributions
    ADD COLUMN reused_from_answer_id TEXT,
    ADD COLUMN reused_from_revision INTEGER,
    ADD CONSTRAINT ck_attributions_reused_from CHECK ((reused_from_answer_id IS NULL) = (reused_from_revision IS NULL));
COMMENT ON COLUMN attributions.reused_from_answer_id IS 'Answer whose judgement was copied; NULL = judged for this answer';
COMMENT ON COLUMN attributions.reused_from_revision IS 'Revision of that answer''s attribution';

CREATE TABLE reusable_judgements (
    tenant TEXT NOT NULL,
    reuse_hash BYTEA NOT NULL,
    answer_id TEXT NOT NULL,
    revision INTEGER NOT NULL,
    settled_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    CONSTRAINT pk_reusable_judgements PRIMARY KEY (tenant, reuse_hash),
    CONSTRAINT ck_reusable_judgements_hashes CHECK (octet_length(reuse_hash) = 32)
);
CREATE INDEX ix_reusable_judgements_settled_at ON reusable_judgements USING brin (settled_at);
COMMENT ON TABLE reusable_judgements IS 'The newest judgement of each content, to be copied instead of bought again. Not partitioned; old rows go.';
COMMENT ON COLUMN reusable_judgements.tenant IS 'Tenant of both answers: judgements never cross tenants';
COMMENT ON COLUMN reusable_judgements.reuse_hash IS 'SHA-256, 32 bytes: all that decides a judgement: query, answer, titles and texts of the sources, method';
COMMENT ON COLUMN reusable_judgements.answer_id IS 'The answer that was judged';
COMMENT ON COLUMN reusable_judgements.revision IS 'Revision of its attribution, which holds the evidence';
COMMENT ON COLUMN reusable_judgements.settled_at IS 'As in attributions';

ALTER TABLE llm_calls
    DROP CONSTRAINT ck_llm_calls_outcome,
    DROP CONSTRAINT ck_llm_calls_hashes,
    DROP CONSTRAINT ck_llm_calls_counts,
    DROP COLUMN attempt,
    ALTER COLUMN response TYPE BYTEA USING convert_to(response, 'UTF8'),
    ADD COLUMN response_hash BYTEA,
    ADD COLUMN price_version TEXT,
    ADD COLUMN provider_request_id TEXT,
    ADD COLUMN detail TEXT,
    ADD CONSTRAINT ck_llm_calls_outcome CHECK (outcome IN ('intent', 'complete', 'failed', 'unknown')),
    ADD CONSTRAINT ck_llm_calls_hashes CHECK (octet_length(call_key) = 32 AND octet_length(response_hash) = 32),
    ADD CONSTRAINT ck_llm_calls_counts CHECK (input_tokens >= 0
        AND cache_read_tokens >= 0
        AND cache_write_tokens >= 0
        AND output_tokens >= 0
        AND reasoning_tokens >= 0
        AND latency_ms >= 0),
    ADD CONSTRAINT ck_llm_calls_finished CHECK ((outcome = 'intent') = (finished_at IS NULL)),
    ADD CONSTRAINT ck_llm_calls_unknown_cost CHECK (outcome NOT IN ('intent', 'unknown') OR cost_usd IS NULL),
    ADD CONSTRAINT ck_llm_calls_failed_cost CHECK (outcome <> 'failed' OR cost_usd IS NOT NULL),
    ADD CONSTRAINT ck_llm_calls_response CHECK (response IS NULL OR response_hash IS NULL);
COMMENT ON COLUMN llm_calls.deadline_at IS 'When nobody waits for it any more; a response recorded after it came late';
COMMENT ON COLUMN llm_calls.finished_at IS 'Database time its end was recorded; NULL = still an intent';
COMMENT ON COLUMN llm_calls.outcome IS 'intent, complete (a response came), failed (the provider did nothing), unknown (none came)';
COMMENT ON COLUMN llm_calls.response_hash IS 'SHA-256, 32 bytes: the response, once it is erased';
COMMENT ON COLUMN llm_calls.price_version IS 'Version of that price list';
COMMENT ON COLUMN llm_calls.reserved_cost_usd IS 'Upper bound set aside before the call; NULL = unpriced';
COMMENT ON COLUMN llm_calls.provider_request_id IS 'The provider''s own id of the call, where it told one';
COMMENT ON COLUMN llm_calls.detail IS 'Why no response can be used, without payload text';

CREATE TABLE llm_call_claims (
    call_key BYTEA NOT NULL,
    call_id UUID NOT NULL,
    started_at TIMESTAMP WITH TIME ZONE NOT NULL,
    expires_at TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT pk_llm_call_claims PRIMARY KEY (call_key),
    CONSTRAINT uq_llm_call_claims_call_id UNIQUE (call_id),
    CONSTRAINT ck_llm_call_claims_hashes CHECK (octet_length(call_key) = 32)
)
 WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
COMMENT ON TABLE llm_call_claims IS 'One row per intent in llm_calls, gone when it ends: no two workers ask the same thing at once.';
COMMENT ON COLUMN llm_call_claims.call_key IS 'SHA-256, 32 bytes: the request that is being asked';
COMMENT ON COLUMN llm_call_claims.call_id IS 'The call that asks it, an intent in llm_calls';
COMMENT ON COLUMN llm_call_claims.started_at IS 'As in llm_calls';
COMMENT ON COLUMN llm_call_claims.expires_at IS 'As deadline_at in llm_calls: whoever wants the key may take it from then on';

CREATE TABLE budget_leases (
    scope TEXT NOT NULL,
    tenant TEXT NOT NULL,
    period TEXT NOT NULL,
    starts_at TIMESTAMP WITH TIME ZONE NOT NULL,
    worker_id UUID NOT NULL,
    held_usd NUMERIC(20, 10) NOT NULL,
    spent_usd NUMERIC(20, 10) NOT NULL,
    written_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    CONSTRAINT pk_budget_leases PRIMARY KEY (scope, tenant, period, starts_at, worker_id),
    CONSTRAINT ck_budget_leases_scope CHECK (scope IN ('total', 'tenant')),
    CONSTRAINT ck_budget_leases_period CHECK (period IN ('hour', 'day')),
    CONSTRAINT ck_budget_leases_tenant CHECK ((scope = 'tenant') = (tenant <> '')),
    CONSTRAINT ck_budget_leases_held_usd CHECK (held_usd >= 0 AND held_usd < 'Infinity'::numeric),
    CONSTRAINT ck_budget_leases_spent_usd CHECK (spent_usd >= 0 AND spent_usd < 'Infinity'::numeric)
);
COMMENT ON TABLE budget_leases IS 'Slices of each budget''s hour and day, by worker: their held_usd never sum to more than the budget.';
COMMENT ON COLUMN budget_leases.scope IS 'total or tenant: whose money the budget bounds';
COMMENT ON COLUMN budget_leases.tenant IS 'The tenant; empty for the total';
COMMENT ON COLUMN budget_leases.period IS 'hour or day';
COMMENT ON COLUMN budget_leases.starts_at IS 'First moment of the hour or day, UTC by database time';
COMMENT ON COLUMN budget_leases.worker_id IS 'The process that holds the lease';
COMMENT ON COLUMN budget_leases.held_usd IS 'What the worker may spend; only it writes this';
COMMENT ON COLUMN budget_leases.spent_usd IS 'What it had spent or reserved when it last wrote';
COMMENT ON COLUMN budget_leases.written_at IS 'Database time';

CREATE OR REPLACE VIEW answer_cost AS
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
    j.cost_usd AS journaled_cost_usd,
    j.cost_usd_open AS journaled_cost_usd_open,
    t.reused_from_answer_id,
    t.reused_from_revision
FROM answers a
JOIN attributions t USING (tenant, answer_id, revision)
CROSS JOIN LATERAL (
    SELECT
        count(*) AS calls,
        count(*) FILTER (WHERE outcome = 'unknown') AS unknown_calls,
        coalesce(sum(c.cost_usd), 0) AS cost_usd,
        coalesce(sum(c.reserved_cost_usd) FILTER (WHERE c.cost_usd IS NULL), 0) AS cost_usd_open
    FROM llm_calls c
    WHERE c.tenant = t.tenant AND c.answer_id = t.answer_id
) j;
COMMENT ON COLUMN answer_cost.journaled_cost_usd_open IS 'Upper bound of the rest: what was reserved for calls without a known cost';
COMMENT ON COLUMN answer_cost.reused_from_answer_id IS 'Answer whose judgement was copied, at no cost';
COMMENT ON COLUMN answer_cost.reused_from_revision IS 'Revision of that answer''s attribution';

CREATE VIEW llm_call_faults AS
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
        coalesce(sum(c.cost_usd), 0) AS cost_usd,
        coalesce(sum(c.input_tokens + c.cache_read_tokens + c.cache_write_tokens
            + c.output_tokens + c.reasoning_tokens), 0) AS tokens
    FROM llm_calls c
    WHERE c.tenant = t.tenant AND c.answer_id = t.answer_id AND c.finished_at <= t.settled_at
) j
WHERE t.revision = 1 AND t.cost_usd IS NOT NULL AND (t.cost_usd <> j.cost_usd
    OR t.input_tokens + t.cache_read_tokens + t.cache_write_tokens + t.output_tokens + t.reasoning_tokens <> j.tokens);
COMMENT ON VIEW llm_call_faults IS
    'What must never be: empty as long as every billed call has exactly one row and costs add up. Restrict by started_at.';
COMMENT ON COLUMN llm_call_faults.started_at IS 'When the call started; of an attribution, when it was settled';
COMMENT ON COLUMN llm_call_faults.fault IS 'What is wrong with it'
