"""What a campaign's workers depend on, and the settings by which they find it."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from tests.support import lines
from tests.support.brokers import TEST_PROPERTIES
from tests.support.llm import API_KEY, OPENAI, SECRET
from tests.support.llm_account import LlmAccount, llm_account
from tests.support.llm_lines import IMPATIENT
from worker.embedded.apache_kafka import ApacheKafka
from worker.embedded.postgres import PostgresServer
from worker.embedded.postgres_binaries import embedded_binaries, system_binaries
from worker.settings import Settings

PARTITIONS = 6
SESSION_TIMEOUT_S = 2.0
CALLS_IN_FLIGHT = 8
"""Of each worker."""

UNSYNCED = {"fsync": "off", "full_page_writes": "off", "max_connections": "100"}
"""The server crashes here, the machine does not: what was handed to the operating system stays. Commits wait for that,
as in production; `synchronous_commit` off would let a crashed server forget some."""

KAFKA: Mapping[str, object] = {
    "partitions": PARTITIONS,
    "session_timeout_ms": int(SESSION_TIMEOUT_S * 1_000),
    "heartbeat_interval_ms": 300,
    "rebalance_timeout_ms": 8_000,
    "rebalance_drain_ms": 1_500,
    "commit_timeout_ms": 3_000,
    "commit_interval_ms": 100,
    "request_timeout_ms": 5_000,
    "poll_timeout_ms": 100,
    "outage_backoff_ms": 200,
    "max_poll_interval_ms": 10_000,
    "place_check_s": 0.5,
}
SECTIONS: Mapping[str, Mapping[str, object]] = {
    "postgres": {"connect_timeout_s": 2.0, "statement_timeout_s": 5.0, "lock_timeout_s": 2.0, "save_timeout_s": 10.0},
    "llm": {"call_timeout_s": 3.0, "recording_s": 1.0, "openai_api_key": API_KEY},
    "judge": {"name": OPENAI.provider, "model": OPENAI.model, "secret": SECRET.decode()},
    "limiter": {**IMPATIENT, "calls_in_flight": CALLS_IN_FLIGHT},
    "intake": {"records_max": 24},
    "dead_letters": {"ratio_max": 1.0, "consecutive_max": 1_000_000},
    "shutdown": {"drain_s": 5.0},
    "outbox": {"publish_timeout_s": 5.0},
    "log": {"format": "json"},
}


@dataclass(frozen=True)
class Services:
    broker: ApacheKafka
    database: PostgresServer
    account: LlmAccount

    def settings(self, name: str) -> Settings:
        sections = {section: dict(values) for section, values in SECTIONS.items()}
        sections["llm"]["openai_base_url"] = self.account.base_url
        return lines.settings_of(self.broker, self.database.dsn, name, kafka=KAFKA, **sections)


@contextmanager
def services(seed: int, *, faults: str) -> Iterator[Services]:
    """A broker and a database of their own, to be broken, and an LLM account with these faults."""
    options = ["--seed", str(seed), "--latency", "lognormal:0.1,0.7", "--faults", faults]
    with ExitStack() as stack:
        broker = stack.enter_context(ApacheKafka(properties=TEST_PROPERTIES))
        database = stack.enter_context(PostgresServer(system_binaries() or embedded_binaries(), parameters=UNSYNCED))
        yield Services(broker, database, stack.enter_context(llm_account(*options)))
