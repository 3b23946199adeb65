"""The statements of the call journal, built once."""

from datetime import timedelta

from sqlalchemy import (
    ARRAY,
    ColumnElement,
    Integer,
    LargeBinary,
    Uuid,
    and_,
    any_,
    bindparam,
    case,
    delete,
    func,
    literal_column,
    or_,
    select,
    true,
    update,
)
from sqlalchemy.dialects.postgresql import insert

from worker.adapters.postgres.bulk import unnested
from worker.adapters.postgres.journal_rows import (
    CLOSE_COLUMNS,
    COPIED_INTENT_COLUMNS,
    END_COLUMNS,
    GIVEN_ANSWER_KEY_COLUMNS,
    GIVEN_CALL_COLUMNS,
    INTENT_COLUMNS,
)
from worker.adapters.postgres.tables import answers, llm_call_claims, llm_calls
from worker.llm_ports import INTENT_LIFE_S_MAX, CallOutcome

INTENT, COMPLETE, FAILED, UNKNOWN = (
    member.value for member in (CallOutcome.INTENT, CallOutcome.COMPLETE, CallOutcome.FAILED, CallOutcome.UNKNOWN)
)
ANSWER_KEY_COLUMNS = [llm_calls.c.tenant, llm_calls.c.answer_id]

_calls, _claims = llm_calls.c, llm_call_claims.c
_call_keys = any_(bindparam("call_keys", type_=ARRAY(LargeBinary)))
_call_ids = any_(bindparam("call_ids", type_=ARRAY(Uuid)))
_second: ColumnElement[timedelta] = literal_column("interval '1 second'")


def _still_open() -> ColumnElement[bool]:
    """Only partitions that may hold a call which somebody can still close; twice the longest life is enough."""
    return _calls.started_at > func.now() - literal_column(f"interval '{2 * INTENT_LIFE_S_MAX:.0f} seconds'")


def _young() -> ColumnElement[bool]:
    """Only partitions whose responses are still used: what a look costs must not grow with the months kept."""
    day: ColumnElement[timedelta] = literal_column("interval '1 day'")
    return _calls.started_at > func.now() - bindparam("age_days_max", type_=Integer) * day


# Calls are looked for in many partitions, and planning for each takes ten times what the look takes: so it is planned
# once. Without sequential scans, for the plan may be made while a partition is empty.
PLAN_ONCE = select(
    func.set_config("plan_cache_mode", "force_generic_plan", True), func.set_config("enable_seqscan", "off", True)
)
"""For the rest of a transaction whose statements find their rows by index whatever the tables hold."""

_intents = unnested(INTENT_COLUMNS)
_deadline = func.now() + _intents.c.lives_s * _second
_claim = insert(llm_call_claims).from_select(
    ["call_key", "call_id", "started_at", "expires_at"],
    select(_intents.c.call_key, _intents.c.call_id, func.now(), _deadline),
)
CLAIM = _claim.on_conflict_do_update(
    index_elements=[_claims.call_key],
    set_={name: _claim.excluded[name] for name in ("call_id", "started_at", "expires_at")},
    where=and_(_claims.expires_at <= func.now(), _claims.call_id != _claim.excluded.call_id),
    # A row that was inserted, not updated, has no xmax.
).returning(_claims.call_key, (literal_column("xmax") == literal_column("0")).label("is_new"))

_give_up = {"outcome": UNKNOWN, "finished_at": func.now()}
GIVE_UP_BY_KEY = update(llm_calls).where(_calls.call_key == _call_keys, _calls.outcome == INTENT).values(_give_up)
_abandoned = unnested(GIVEN_CALL_COLUMNS)
GIVE_UP = (
    update(llm_calls)
    .where(
        _calls.call_id == _abandoned.c.given_call_id,
        _calls.started_at == _abandoned.c.given_started_at,
        _calls.outcome == INTENT,
    )
    .values(_give_up)
)

INSERT_INTENTS = insert(llm_calls).from_select(
    [*(item.name for item in COPIED_INTENT_COLUMNS), "deadline_at", "outcome"],
    select(*(_intents.c[item.name] for item in COPIED_INTENT_COLUMNS), _deadline, literal_column(f"'{INTENT}'")),
)

# The clock's time: a claim that was waited for is younger than this transaction.
_left_s = func.extract("epoch", _claims.expires_at - func.clock_timestamp())
HOLDERS = select(_claims.call_key, _claims.call_id, func.greatest(0, _left_s).label("left_s")).where(
    _claims.call_key == _call_keys
)

LOCK_CLAIMS_OF_CALLS = (
    select(_claims.call_id, _claims.started_at)
    .where(_claims.call_id == _call_ids)
    .order_by(_claims.call_key)
    .with_for_update()
)
DELETE_CLAIMS_OF_CALLS = delete(llm_call_claims).where(_claims.call_id == _call_ids)
_expired = (
    select(_claims.call_key)
    .where(_claims.expires_at <= func.now())
    .order_by(_claims.call_key)
    .limit(bindparam("rows_max"))
    .with_for_update(skip_locked=True)
)
DELETE_EXPIRED_CLAIMS = (
    delete(llm_call_claims).where(_claims.call_key.in_(_expired)).returning(_claims.call_id, _claims.started_at)
)

_ends = unnested(CLOSE_COLUMNS)
CLOSE_OLD = (
    update(llm_calls)
    .where(
        _calls.call_id == _ends.c.given_call_id,
        _still_open(),
        or_(_calls.outcome == INTENT, and_(_calls.outcome == UNKNOWN, _ends.c.given_outcome != UNKNOWN)),
    )
    .values({"finished_at": func.now()} | {item.name: _ends.c[f"given_{item.name}"] for item in END_COLUMNS})
    .returning(_calls.call_id)
)
"""Wherever among the calls that may still be open."""
# Parameters, unlike now(), prune partitions before they are planned for.
CLOSE = CLOSE_OLD.where(_calls.started_at.between(bindparam("first_at"), bindparam("last_at")))
KNOWN_CALLS = select(_calls.call_id).where(_calls.call_id == _call_ids, _still_open())

RESPONSES = (
    select(
        _calls.call_key,
        _calls.call_id,
        _calls.response,
        _calls.input_tokens,
        _calls.cache_read_tokens,
        _calls.cache_write_tokens,
        _calls.output_tokens,
        _calls.reasoning_tokens,
        _calls.usage_source,
        _calls.cost_usd,
    )
    .where(_calls.call_key == _call_keys, _calls.outcome == COMPLETE, _calls.response.is_not(None), _young())
    .order_by(_calls.started_at, _calls.call_id)
)

RESPONSE_COUNTS = (
    select(_calls.call_key, func.count().label("responses"))
    .where(_calls.call_key == _call_keys, _calls.outcome == COMPLETE, _calls.response.is_not(None), _young())
    .group_by(_calls.call_key)
)

_wanted = unnested(ANSWER_KEY_COLUMNS)
# A look for each answer: a join could be planned as a scan of everything, which is right as long as there is little.
_calls_of = (
    select(
        func.count().label("rows"),
        func.count().filter(or_(_calls.outcome != FAILED, _calls.cost_usd > 0)).label("calls"),
        func.sum(_calls.input_tokens).label("input_tokens"),
        func.sum(_calls.cache_read_tokens).label("cache_read_tokens"),
        func.sum(_calls.cache_write_tokens).label("cache_write_tokens"),
        func.sum(_calls.output_tokens).label("output_tokens"),
        func.sum(_calls.reasoning_tokens).label("reasoning_tokens"),
        case((func.bool_and(_calls.cost_usd.is_not(None)), func.sum(_calls.cost_usd))).label("cost_usd"),
    )
    .select_from(llm_calls)
    .where(_calls.tenant == _wanted.c.tenant, _calls.answer_id == _wanted.c.answer_id)
    .lateral("calls_of")
)
USAGE = select(_wanted, _calls_of).join(_calls_of, true()).where(_calls_of.c.rows > 0)

_erased = {"response": None, "response_hash": func.sha256(_calls.response)}
_settled = unnested(GIVEN_ANSWER_KEY_COLUMNS)
ERASE_OF_ANSWERS = (
    update(llm_calls)
    .where(
        _calls.tenant == _settled.c.given_tenant,
        _calls.answer_id == _settled.c.given_answer_id,
        _calls.response.is_not(None),
    )
    .values(_erased)
)
ERASE_LATE = (
    update(llm_calls)
    .where(
        _calls.tenant == answers.c.tenant,
        _calls.answer_id == answers.c.answer_id,
        _calls.response.is_not(None),
        _still_open(),
    )
    .values(_erased)
)
