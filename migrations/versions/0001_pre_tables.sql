CREATE TABLE answers (
    tenant TEXT NOT NULL,
    answer_id TEXT NOT NULL,
    topic TEXT NOT NULL,
    content_hash BYTEA NOT NULL,
    revision INTEGER NOT NULL,
    settled_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    CONSTRAINT pk_answers PRIMARY KEY (tenant, answer_id),
    CONSTRAINT ck_answers_hashes CHECK (octet_length(content_hash) = 32),
    CONSTRAINT ck_answers_revision CHECK (revision >= 1)
);
CREATE INDEX ix_answers_topic_settled_at ON answers (topic, settled_at);
COMMENT ON TABLE answers IS 'One row per settled answer: the key that makes persistence exactly once. Never partitioned by time.';
COMMENT ON COLUMN answers.tenant IS 'Tenant of the search engine';
COMMENT ON COLUMN answers.answer_id IS 'Identity of the answer within its tenant';
COMMENT ON COLUMN answers.topic IS 'Kafka topic the answer came from; scopes the dead-letter limits';
COMMENT ON COLUMN answers.content_hash IS 'SHA-256, 32 bytes: everything in the event that decides credit or money';
COMMENT ON COLUMN answers.revision IS 'Current revision: the attribution that counts';
COMMENT ON COLUMN answers.settled_at IS 'Database time of the first settlement';

CREATE TABLE attributions (
    tenant TEXT NOT NULL,
    answer_id TEXT NOT NULL,
    revision INTEGER NOT NULL,
    settled_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    supersedes_revision INTEGER,
    status TEXT NOT NULL,
    method_hash BYTEA NOT NULL,
    code_version TEXT NOT NULL,
    occurred_at TIMESTAMP WITH TIME ZONE NOT NULL,
    utility_units BIGINT NOT NULL,
    residual_units BIGINT NOT NULL,
    source_count INTEGER NOT NULL,
    key_point_count INTEGER NOT NULL,
    ungrounded_key_point_count INTEGER NOT NULL,
    llm_call_count INTEGER NOT NULL,
    input_tokens BIGINT DEFAULT 0 NOT NULL,
    cache_read_tokens BIGINT DEFAULT 0 NOT NULL,
    cache_write_tokens BIGINT DEFAULT 0 NOT NULL,
    output_tokens BIGINT DEFAULT 0 NOT NULL,
    reasoning_tokens BIGINT DEFAULT 0 NOT NULL,
    cost_usd NUMERIC(20, 10),
    search_model TEXT,
    search_tokens BIGINT,
    reward_amount NUMERIC,
    reward_currency TEXT,
    labels JSONB NOT NULL,
    query_hash BYTEA NOT NULL,
    answer_hash BYTEA NOT NULL,
    evidence JSONB NOT NULL,
    CONSTRAINT pk_attributions PRIMARY KEY (tenant, answer_id, revision, settled_at),
    CONSTRAINT ck_attributions_status CHECK (status IN ('attributed', 'ungrounded', 'no_key_points', 'no_sources')),
    CONSTRAINT ck_attributions_units CHECK (utility_units BETWEEN 0 AND 1000000000000
        AND residual_units BETWEEN 0 AND 1000000000000),
    CONSTRAINT ck_attributions_utility_and_residual CHECK (utility_units + residual_units = 1000000000000),
    CONSTRAINT ck_attributions_only_attributed_has_utility CHECK (status = 'attributed' OR utility_units = 0),
    CONSTRAINT ck_attributions_ungrounded CHECK (ungrounded_key_point_count <= key_point_count),
    CONSTRAINT ck_attributions_revision CHECK (revision >= 1 AND supersedes_revision BETWEEN 1 AND revision - 1),
    CONSTRAINT ck_attributions_counts CHECK (source_count >= 0
        AND key_point_count >= 0
        AND ungrounded_key_point_count >= 0
        AND llm_call_count >= 0
        AND input_tokens >= 0
        AND cache_read_tokens >= 0
        AND cache_write_tokens >= 0
        AND output_tokens >= 0
        AND reasoning_tokens >= 0
        AND search_tokens >= 0),
    CONSTRAINT ck_attributions_hashes CHECK (octet_length(method_hash) = 32
        AND octet_length(query_hash) = 32
        AND octet_length(answer_hash) = 32),
    CONSTRAINT ck_attributions_cost_usd CHECK (cost_usd >= 0 AND cost_usd < 'Infinity'::numeric),
    CONSTRAINT ck_attributions_reward_amount CHECK (reward_amount >= 0 AND reward_amount < 'Infinity'::numeric),
    CONSTRAINT ck_attributions_reward CHECK ((reward_amount IS NULL) = (reward_currency IS NULL))
) PARTITION BY RANGE (settled_at);
CREATE TABLE attributions_default PARTITION OF attributions DEFAULT;
CREATE INDEX ix_attributions_settled_at ON attributions USING brin (settled_at);
COMMENT ON TABLE attributions IS 'One row per computed attribution; answers names the revision that counts. Monthly partitions.';
COMMENT ON COLUMN attributions.tenant IS 'Tenant of the search engine';
COMMENT ON COLUMN attributions.answer_id IS 'Identity of the answer within its tenant';
COMMENT ON COLUMN attributions.revision IS '1, then one more for every explicit re-attribution';
COMMENT ON COLUMN attributions.settled_at IS 'Database time of settlement; decides the monthly partition';
COMMENT ON COLUMN attributions.supersedes_revision IS 'The revision this one replaces; NULL for the first';
COMMENT ON COLUMN attributions.status IS 'attributed, ungrounded, no_key_points or no_sources';
COMMENT ON COLUMN attributions.method_hash IS 'SHA-256, 32 bytes: how credit was computed, see methods';
COMMENT ON COLUMN attributions.code_version IS 'Version of the worker that computed it';
COMMENT ON COLUMN attributions.occurred_at IS 'When the answer was served, by the producer''s clock';
COMMENT ON COLUMN attributions.utility_units IS 'Weighted coverage of the key points, U(N), in units of 10^-12 (0 .. 10^12)';
COMMENT ON COLUMN attributions.residual_units IS 'The part of the answer no source supports, 1 - U(N), in units of 10^-12 (0 .. 10^12)';
COMMENT ON COLUMN attributions.source_count IS 'Sources the answer named';
COMMENT ON COLUMN attributions.key_point_count IS 'Key points of the answer';
COMMENT ON COLUMN attributions.ungrounded_key_point_count IS 'Key points whose coverage is below the grounding threshold';
COMMENT ON COLUMN attributions.llm_call_count IS 'LLM calls paid for this attribution';
COMMENT ON COLUMN attributions.input_tokens IS 'LLM input tokens, neither read from nor written to a cache';
COMMENT ON COLUMN attributions.cache_read_tokens IS 'LLM input tokens read from the provider''s cache';
COMMENT ON COLUMN attributions.cache_write_tokens IS 'LLM input tokens written to the provider''s cache';
COMMENT ON COLUMN attributions.output_tokens IS 'LLM output tokens without reasoning';
COMMENT ON COLUMN attributions.reasoning_tokens IS 'LLM reasoning tokens';
COMMENT ON COLUMN attributions.cost_usd IS 'Cost of judging in US dollars; NULL = a call is unpriced, never 0';
COMMENT ON COLUMN attributions.search_model IS 'Model the search engine wrote the answer with, as it said';
COMMENT ON COLUMN attributions.search_tokens IS 'Tokens the search engine spent on the answer, as it said';
COMMENT ON COLUMN attributions.reward_amount IS 'Budget to split among the sources; NULL = none given';
COMMENT ON COLUMN attributions.reward_currency IS 'Currency of reward_amount';
COMMENT ON COLUMN attributions.labels IS 'The event''s labels, untouched';
COMMENT ON COLUMN attributions.query_hash IS 'SHA-256, 32 bytes: the query''s text in UTF-8';
COMMENT ON COLUMN attributions.answer_hash IS 'SHA-256, 32 bytes: the answer''s text in UTF-8';
COMMENT ON COLUMN attributions.evidence IS 'Sources and owners in event order, key points and weights, support matrix (units of 10^-4, rows = key points), quotes [key point, source, origin, text], unevidenced [key point, source, support]: with methods.document enough to recompute every number of this row bit for bit';

CREATE TABLE source_attributions (
    tenant TEXT NOT NULL,
    answer_id TEXT NOT NULL,
    revision INTEGER NOT NULL,
    position INTEGER NOT NULL,
    settled_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    source_id TEXT NOT NULL,
    owner_id TEXT,
    url TEXT,
    title TEXT,
    license_ref TEXT,
    credit_units BIGINT NOT NULL,
    share_units BIGINT NOT NULL,
    plain_credit_units BIGINT NOT NULL,
    plain_share_units BIGINT NOT NULL,
    CONSTRAINT pk_source_attributions PRIMARY KEY (tenant, answer_id, revision, position, settled_at),
    CONSTRAINT ck_source_attributions_units CHECK (credit_units BETWEEN 0 AND 1000000000000
        AND share_units BETWEEN 0 AND 1000000000000
        AND plain_credit_units BETWEEN 0 AND 1000000000000
        AND plain_share_units BETWEEN 0 AND 1000000000000),
    CONSTRAINT ck_source_attributions_position CHECK (position >= 0)
) PARTITION BY RANGE (settled_at);
CREATE TABLE source_attributions_default PARTITION OF source_attributions DEFAULT;
CREATE INDEX ix_source_attributions_settled_at ON source_attributions USING brin (settled_at);
COMMENT ON TABLE source_attributions IS 'What each source of each attribution earned: one row per source. Monthly partitions.';
COMMENT ON COLUMN source_attributions.tenant IS 'Tenant of the search engine';
COMMENT ON COLUMN source_attributions.answer_id IS 'Identity of the answer within its tenant';
COMMENT ON COLUMN source_attributions.revision IS 'Revision of the attribution';
COMMENT ON COLUMN source_attributions.position IS 'Index of the source in the event, from 0; breaks ties';
COMMENT ON COLUMN source_attributions.settled_at IS 'As in attributions; decides the monthly partition';
COMMENT ON COLUMN source_attributions.source_id IS 'Identity of the source within its answer';
COMMENT ON COLUMN source_attributions.owner_id IS 'Publisher of the source; NULL = an owner of its own';
COMMENT ON COLUMN source_attributions.url IS 'Where the source was found';
COMMENT ON COLUMN source_attributions.title IS 'Title of the source; NULL also when texts are not stored';
COMMENT ON COLUMN source_attributions.license_ref IS 'License the source was used under, as the event said';
COMMENT ON COLUMN source_attributions.credit_units IS 'Shapley (or Owen) credit earned; sums to utility_units, in units of 10^-12 (0 .. 10^12)';
COMMENT ON COLUMN source_attributions.share_units IS 'Part of a fixed budget; sums to 10^12, or 0 when nothing is supported, in units of 10^-12 (0 .. 10^12)';
COMMENT ON COLUMN source_attributions.plain_credit_units IS 'Credit without grouping by owner, to see the effect of grouping, in units of 10^-12 (0 .. 10^12)';
COMMENT ON COLUMN source_attributions.plain_share_units IS 'Share without grouping by owner, in units of 10^-12 (0 .. 10^12)';

CREATE TABLE methods (
    method_hash BYTEA NOT NULL,
    document JSONB NOT NULL,
    first_seen_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    CONSTRAINT pk_methods PRIMARY KEY (method_hash),
    CONSTRAINT ck_methods_hashes CHECK (octet_length(method_hash) = 32)
);
COMMENT ON TABLE methods IS 'Every way credit was ever computed; attributions name theirs by hash.';
COMMENT ON COLUMN methods.method_hash IS 'SHA-256, 32 bytes: the document in canonical JSON';
COMMENT ON COLUMN methods.document IS 'Policy, grouping, judge, prompts: all that can change a number';
COMMENT ON COLUMN methods.first_seen_at IS 'Database time a worker first used it';

CREATE TABLE llm_calls (
    call_id UUID NOT NULL,
    started_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    call_key BYTEA NOT NULL,
    tenant TEXT NOT NULL,
    answer_id TEXT NOT NULL,
    stage TEXT NOT NULL,
    provider TEXT NOT NULL,
    model TEXT NOT NULL,
    client_request_id TEXT,
    deadline_at TIMESTAMP WITH TIME ZONE NOT NULL,
    finished_at TIMESTAMP WITH TIME ZONE,
    outcome TEXT NOT NULL,
    response TEXT,
    input_tokens BIGINT DEFAULT 0 NOT NULL,
    cache_read_tokens BIGINT DEFAULT 0 NOT NULL,
    cache_write_tokens BIGINT DEFAULT 0 NOT NULL,
    output_tokens BIGINT DEFAULT 0 NOT NULL,
    reasoning_tokens BIGINT DEFAULT 0 NOT NULL,
    usage_source TEXT,
    input_price_usd NUMERIC(18, 12),
    cache_read_price_usd NUMERIC(18, 12),
    cache_write_price_usd NUMERIC(18, 12),
    output_price_usd NUMERIC(18, 12),
    price_source TEXT,
    reserved_cost_usd NUMERIC(20, 10),
    cost_usd NUMERIC(20, 10),
    latency_ms INTEGER,
    http_status INTEGER,
    attempt BIGINT NOT NULL,
    CONSTRAINT pk_llm_calls PRIMARY KEY (call_id, started_at),
    CONSTRAINT ck_llm_calls_outcome CHECK (outcome IN ('intent', 'complete', 'truncated', 'refused', 'malformed', 'failed', 'unknown')),
    CONSTRAINT ck_llm_calls_hashes CHECK (octet_length(call_key) = 32),
    CONSTRAINT ck_llm_calls_counts CHECK (input_tokens >= 0
        AND cache_read_tokens >= 0
        AND cache_write_tokens >= 0
        AND output_tokens >= 0
        AND reasoning_tokens >= 0
        AND latency_ms >= 0
        AND attempt >= 0),
    CONSTRAINT ck_llm_calls_input_price_usd CHECK (input_price_usd >= 0 AND input_price_usd < 'Infinity'::numeric),
    CONSTRAINT ck_llm_calls_cache_read_price_usd CHECK (cache_read_price_usd >= 0 AND cache_read_price_usd < 'Infinity'::numeric),
    CONSTRAINT ck_llm_calls_cache_write_price_usd CHECK (cache_write_price_usd >= 0 AND cache_write_price_usd < 'Infinity'::numeric),
    CONSTRAINT ck_llm_calls_output_price_usd CHECK (output_price_usd >= 0 AND output_price_usd < 'Infinity'::numeric),
    CONSTRAINT ck_llm_calls_reserved_cost_usd CHECK (reserved_cost_usd >= 0 AND reserved_cost_usd < 'Infinity'::numeric),
    CONSTRAINT ck_llm_calls_cost_usd CHECK (cost_usd >= 0 AND cost_usd < 'Infinity'::numeric)
) PARTITION BY RANGE (started_at);
CREATE TABLE llm_calls_default PARTITION OF llm_calls DEFAULT;
CREATE INDEX ix_llm_calls_call_key ON llm_calls (call_key);
CREATE INDEX ix_llm_calls_tenant_answer_id ON llm_calls (tenant, answer_id);
COMMENT ON TABLE llm_calls IS 'Every LLM call ever sent, written before the call and completed after it. Monthly partitions.';
COMMENT ON COLUMN llm_calls.call_id IS 'Identity of this call, made before it is sent';
COMMENT ON COLUMN llm_calls.started_at IS 'Database time of the intent; decides the monthly partition';
COMMENT ON COLUMN llm_calls.call_key IS 'SHA-256, 32 bytes: provider, model and request body: equal requests have equal keys';
COMMENT ON COLUMN llm_calls.tenant IS 'Tenant of the answer';
COMMENT ON COLUMN llm_calls.answer_id IS 'Answer the call was made for';
COMMENT ON COLUMN llm_calls.stage IS 'What was asked: decompose, refine, score, ...';
COMMENT ON COLUMN llm_calls.provider IS 'Who was asked';
COMMENT ON COLUMN llm_calls.model IS 'Model that was asked, as configured';
COMMENT ON COLUMN llm_calls.client_request_id IS 'Request id sent to the provider, to find the call in its records';
COMMENT ON COLUMN llm_calls.deadline_at IS 'When the caller stops waiting';
COMMENT ON COLUMN llm_calls.finished_at IS 'Database time the response or error was recorded; NULL = still an intent';
COMMENT ON COLUMN llm_calls.outcome IS 'intent, complete, truncated, refused, malformed, failed or unknown (sent, never answered)';
COMMENT ON COLUMN llm_calls.response IS 'The response body as received, before parsing; NULL once texts are erased';
COMMENT ON COLUMN llm_calls.input_tokens IS 'Input tokens, neither read from nor written to a cache';
COMMENT ON COLUMN llm_calls.cache_read_tokens IS 'Input tokens read from the provider''s cache';
COMMENT ON COLUMN llm_calls.cache_write_tokens IS 'Input tokens written to the provider''s cache';
COMMENT ON COLUMN llm_calls.output_tokens IS 'Output tokens without reasoning';
COMMENT ON COLUMN llm_calls.reasoning_tokens IS 'Reasoning tokens';
COMMENT ON COLUMN llm_calls.usage_source IS 'reported by the provider, or estimated; NULL = unknown';
COMMENT ON COLUMN llm_calls.input_price_usd IS 'US dollars per input token used for cost_usd; NULL = unpriced';
COMMENT ON COLUMN llm_calls.cache_read_price_usd IS 'US dollars per cache-read token used for cost_usd; NULL = unpriced';
COMMENT ON COLUMN llm_calls.cache_write_price_usd IS 'US dollars per cache-write token used for cost_usd; NULL = unpriced';
COMMENT ON COLUMN llm_calls.output_price_usd IS 'US dollars per output or reasoning token used for cost_usd; NULL = unpriced';
COMMENT ON COLUMN llm_calls.price_source IS 'Where the prices came from; NULL = unpriced';
COMMENT ON COLUMN llm_calls.reserved_cost_usd IS 'Upper bound set aside before the call';
COMMENT ON COLUMN llm_calls.cost_usd IS 'What the call cost; NULL = unpriced or unknown, never 0';
COMMENT ON COLUMN llm_calls.latency_ms IS 'From sending to the whole response';
COMMENT ON COLUMN llm_calls.http_status IS 'Status code of the response, where there was one';
COMMENT ON COLUMN llm_calls.attempt IS 'Attempt of this call key, from 1, counted across crashes';

CREATE TABLE outbox (
    outbox_id BIGINT GENERATED ALWAYS AS IDENTITY,
    topic TEXT NOT NULL,
    key BYTEA,
    value BYTEA,
    headers BYTEA NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    CONSTRAINT pk_outbox PRIMARY KEY (outbox_id)
)
 WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX ix_outbox_key ON outbox USING hash (key);
COMMENT ON TABLE outbox IS 'Messages stored with what they announce and not yet published; the relay deletes what it has published.';
COMMENT ON COLUMN outbox.outbox_id IS 'Order of publication per key';
COMMENT ON COLUMN outbox.topic IS 'Kafka topic to publish to';
COMMENT ON COLUMN outbox.key IS 'Record key; rows of one topic and key are published one after the other';
COMMENT ON COLUMN outbox.value IS 'Record value; NULL is a tombstone';
COMMENT ON COLUMN outbox.headers IS 'Record headers in order, duplicates kept: for each name and value its length as 4 bytes big-endian, then its bytes';
COMMENT ON COLUMN outbox.created_at IS 'Database time of the transaction it announces';

CREATE TABLE dead_letters (
    dead_letter_id BIGINT GENERATED ALWAYS AS IDENTITY,
    topic TEXT NOT NULL,
    partition INTEGER NOT NULL,
    record_offset BIGINT NOT NULL,
    value_hash BYTEA NOT NULL,
    record_timestamp_ms BIGINT NOT NULL,
    key BYTEA,
    value BYTEA,
    value_size_bytes BIGINT NOT NULL,
    headers BYTEA NOT NULL,
    reason TEXT NOT NULL,
    detail TEXT NOT NULL,
    attempts INTEGER NOT NULL,
    tenant TEXT,
    answer_id TEXT,
    code_version TEXT NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    state TEXT DEFAULT 'open' NOT NULL,
    resolved_at TIMESTAMP WITH TIME ZONE,
    resolution_note TEXT,
    CONSTRAINT pk_dead_letters PRIMARY KEY (dead_letter_id),
    CONSTRAINT uq_dead_letters_topic_partition_record_offset_value_hash UNIQUE (topic, partition, record_offset, value_hash),
    CONSTRAINT ck_dead_letters_reason CHECK (reason IN ('not_json', 'invalid_event', 'unsupported_version', 'too_large', 'conflicting_content', 'judge_incomplete', 'judge_refused', 'budget_exhausted', 'attempts_exhausted')),
    CONSTRAINT ck_dead_letters_state CHECK (state IN ('open', 'replayed', 'discarded')),
    CONSTRAINT ck_dead_letters_resolved CHECK ((state = 'open') = (resolved_at IS NULL)),
    CONSTRAINT ck_dead_letters_counts CHECK (partition >= 0
        AND record_offset >= 0
        AND value_size_bytes >= 0
        AND attempts >= 0),
    CONSTRAINT ck_dead_letters_hashes CHECK (octet_length(value_hash) = 32)
);
CREATE INDEX ix_dead_letters_tenant_answer_id ON dead_letters (tenant, answer_id) WHERE answer_id IS NOT NULL;
CREATE INDEX ix_dead_letters_topic_created_at ON dead_letters (topic, created_at);
COMMENT ON TABLE dead_letters IS 'Records set aside, with the reason; the limits that stop a bad deploy are counted from this table.';
COMMENT ON COLUMN dead_letters.dead_letter_id IS 'Identity for the command line';
COMMENT ON COLUMN dead_letters.topic IS 'Kafka topic of the record';
COMMENT ON COLUMN dead_letters.partition IS 'Kafka partition of the record';
COMMENT ON COLUMN dead_letters.record_offset IS 'Kafka offset of the record';
COMMENT ON COLUMN dead_letters.value_hash IS 'SHA-256, 32 bytes: the whole value, also when only its beginning is kept';
COMMENT ON COLUMN dead_letters.record_timestamp_ms IS 'The record''s own timestamp, unchecked';
COMMENT ON COLUMN dead_letters.key IS 'Record key, untouched';
COMMENT ON COLUMN dead_letters.value IS 'Record value, untouched; its beginning only when value_size_bytes is larger';
COMMENT ON COLUMN dead_letters.value_size_bytes IS 'Size of the whole value';
COMMENT ON COLUMN dead_letters.headers IS 'Record headers in order, duplicates kept: for each name and value its length as 4 bytes big-endian, then its bytes';
COMMENT ON COLUMN dead_letters.reason IS 'Why it was set aside, of a closed set';
COMMENT ON COLUMN dead_letters.detail IS 'The fault in words, without payload text';
COMMENT ON COLUMN dead_letters.attempts IS 'How often it was tried';
COMMENT ON COLUMN dead_letters.tenant IS 'Tenant, where it could be read';
COMMENT ON COLUMN dead_letters.answer_id IS 'Answer, where it could be read';
COMMENT ON COLUMN dead_letters.code_version IS 'Version of the worker that gave up';
COMMENT ON COLUMN dead_letters.created_at IS 'Database time';
COMMENT ON COLUMN dead_letters.state IS 'open, replayed or discarded';
COMMENT ON COLUMN dead_letters.resolved_at IS 'When an operator replayed or discarded it';
COMMENT ON COLUMN dead_letters.resolution_note IS 'What the operator said about it';

CREATE TABLE intake_resumes (
    resume_id BIGINT GENERATED ALWAYS AS IDENTITY,
    topic TEXT NOT NULL,
    resumed_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    reason TEXT NOT NULL,
    resumed_by TEXT NOT NULL,
    CONSTRAINT pk_intake_resumes PRIMARY KEY (resume_id),
    CONSTRAINT ck_intake_resumes_reason CHECK (reason <> '')
);
CREATE INDEX ix_intake_resumes_topic_resumed_at ON intake_resumes (topic, resumed_at);
COMMENT ON TABLE intake_resumes IS 'Every time an operator let the worker go on after its dead-letter limits were passed.';
COMMENT ON COLUMN intake_resumes.resume_id IS 'Identity';
COMMENT ON COLUMN intake_resumes.topic IS 'Kafka topic whose dead-letter limits start anew';
COMMENT ON COLUMN intake_resumes.resumed_at IS 'Database time';
COMMENT ON COLUMN intake_resumes.reason IS 'What the operator found and did';
COMMENT ON COLUMN intake_resumes.resumed_by IS 'Database role that did it';
