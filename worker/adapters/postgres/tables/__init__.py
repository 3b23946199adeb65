"""Every table the worker owns, as SQLAlchemy Core; the views for people live in the migrations."""

from worker.adapters.postgres.tables.attribution import answers, attributions, methods, source_attributions
from worker.adapters.postgres.tables.columns import metadata
from worker.adapters.postgres.tables.journal import budget_leases, llm_call_claims, llm_calls
from worker.adapters.postgres.tables.places import worker_places
from worker.adapters.postgres.tables.queues import DeadLetterState, dead_letters, intake_resumes, outbox
from worker.adapters.postgres.tables.reuse import reusable_judgements

PARTITIONED_BY = {attributions: "settled_at", source_attributions: "settled_at", llm_calls: "started_at"}
"""Tables range-partitioned by month, with the column that decides the month."""

__all__ = [
    "PARTITIONED_BY",
    "DeadLetterState",
    "answers",
    "attributions",
    "budget_leases",
    "dead_letters",
    "intake_resumes",
    "llm_call_claims",
    "llm_calls",
    "metadata",
    "methods",
    "outbox",
    "reusable_judgements",
    "source_attributions",
    "worker_places",
]
