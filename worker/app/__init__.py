"""The composition root: the one place that names concrete adapters and wires them together."""

from worker.adapters.postgres.dead_letter_desk import StoredDeadLetter
from worker.adapters.postgres.erasure import Erased
from worker.adapters.postgres.migrate import Migrated
from worker.adapters.postgres.report import QueryResult
from worker.adapters.postgres.rights import Role
from worker.adapters.postgres.stages import Stage
from worker.app.attributing import open_attributor
from worker.app.dead_letters import open_dead_letter_desk, replay_dead_letters
from worker.app.judges import open_judge, unstored_accounts
from worker.app.method import build_credit, build_decoder, code_version, override_method
from worker.app.operations import (
    Facts,
    check_topics,
    collect_facts,
    ensure_topics,
    migrate,
    open_audit,
    open_erasure,
    publish,
    query,
    resume,
)
from worker.app.running import RunSummary, Worker, open_worker
from worker.app.until_stopped import ease_garbage_collection, run_until_stopped

__all__ = [
    "Erased",
    "Facts",
    "Migrated",
    "QueryResult",
    "Role",
    "RunSummary",
    "Stage",
    "StoredDeadLetter",
    "Worker",
    "build_credit",
    "build_decoder",
    "check_topics",
    "code_version",
    "collect_facts",
    "ease_garbage_collection",
    "ensure_topics",
    "migrate",
    "open_attributor",
    "open_audit",
    "open_dead_letter_desk",
    "open_erasure",
    "open_judge",
    "open_worker",
    "override_method",
    "publish",
    "query",
    "replay_dead_letters",
    "resume",
    "run_until_stopped",
    "unstored_accounts",
]
