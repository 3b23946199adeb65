"""Replays through the whole line: a replayed record ends in exactly one outcome, and what it was stays on record."""

import asyncio
from dataclasses import replace

import pytest
from pydantic import SecretStr
from typer.testing import CliRunner

from schemas.dead_letter import REPLAY_HEADER
from tests.fakes.judge import FakeJudge
from tests.support import lines, samples
from tests.support.kafka import consume, produce
from worker.app import ensure_topics
from worker.cli.dead_letters import dead_letters
from worker.core.outcome import Outcome
from worker.embedded.broker import Broker
from worker.errors import RetryableError
from worker.settings import Settings, variable_name

pytestmark = pytest.mark.postgres


class Operator:
    """The command line, as somebody with these settings runs it; without its logging, which is this process's."""

    def __init__(self, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
        for section in ("kafka", "postgres"):
            for name, value in getattr(settings, section).model_dump(exclude_unset=True).items():
                told = value.get_secret_value() if isinstance(value, SecretStr) else str(value)
                monkeypatch.setenv(variable_name([section, name]), told)

    async def dead_letters(self, *arguments: str) -> str:
        result = await asyncio.to_thread(CliRunner().invoke, dead_letters, [*arguments])
        assert result.exit_code == 0, result.output
        return result.output


async def states(dsn: str) -> list[tuple[str, str]]:
    found = await lines.rows(dsn, "SELECT reason, state FROM dead_letters ORDER BY dead_letter_id")
    return [(row["reason"], row["state"]) for row in found]


@pytest.fixture
def settings(kafka_broker: Broker, postgres_dsn: str, topics_prefix: str) -> Settings:
    return lines.settings_of(
        kafka_broker, postgres_dsn, topics_prefix, kafka={"partitions": 1}, settle={"attempts_max": 1}
    )


async def test_a_replayed_record_is_attributed_once_and_never_replayed_again(
    settings: Settings, kafka_broker: Broker, postgres_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    operator = Operator(settings, monkeypatch)
    await ensure_topics(settings)
    events = lines.events(lines.answers(3))
    topic = settings.kafka.answers_topic
    await produce(kafka_broker, topic, events, key=b"k", headers=[("trace", b"\xff")])
    broken = FakeJudge(failures=[RetryableError("a bug of this build")] * 3)
    assert (await lines.run_until_drained(settings, broken)).outcomes == {Outcome.DEAD_LETTER: 3}

    assert "attempts_exhausted" in await operator.dead_letters("list")
    assert "3 replayed." in await operator.dead_letters("replay", "--all", "--per-second", "1000")
    assert "nothing replayed" in await operator.dead_letters("replay", "--all")

    on_topic = await consume(kafka_broker, topic, 6)
    assert sorted(record.value for record in on_topic[3:]) == sorted(events)
    assert {(record.key, record.headers) for record in on_topic[3:]} == {
        (b"k", (("trace", b"\xff"), (REPLAY_HEADER, b"1")))
    }
    assert (await lines.run_until_drained(settings)).outcomes == {Outcome.ATTRIBUTED: 3}
    assert await states(postgres_dsn) == [("attempts_exhausted", "replayed")] * 3
    assert await lines.value(postgres_dsn, "SELECT count(*) FROM outbox") == 0


async def test_a_conflicting_record_replayed_is_a_new_dead_letter_and_a_settled_one_a_duplicate(
    settings: Settings, kafka_broker: Broker, postgres_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    operator = Operator(settings, monkeypatch)
    await ensure_topics(settings)
    topic = settings.kafka.answers_topic
    settled, failed = samples.answer("a-1"), samples.answer("a-2")
    await produce(kafka_broker, topic, lines.events([settled]))
    await lines.run_until_drained(settings)
    await produce(kafka_broker, topic, lines.events([replace(settled, query="Another question?"), failed]))
    await lines.run_until_drained(settings, FakeJudge(failures=[RetryableError("a bug of this build")]))
    await produce(kafka_broker, topic, lines.events([failed]))
    await lines.run_until_drained(settings)

    await operator.dead_letters("replay", "--all")
    summary = await lines.run_until_drained(settings)

    assert summary.outcomes == {Outcome.DEAD_LETTER: 1, Outcome.DUPLICATE: 1}
    assert sorted(await states(postgres_dsn)) == [
        ("attempts_exhausted", "replayed"),
        ("conflicting_content", "open"),
        ("conflicting_content", "replayed"),
    ]
    assert await lines.value(postgres_dsn, "SELECT count(*) FROM attributions") == 2
