"""The demo's main job: migrate, make topics, publish the sample answers, run the worker until they are settled."""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files

from worker import app
from worker.app import Facts, QueryResult, RunSummary
from worker.core.records import OutboundMessage
from worker.settings import Settings

LOOK_FURTHER = (
    "SELECT day, tenant, owner_id, answers, credit, shares FROM owner_credit_daily "
    "ORDER BY credit DESC, tenant, owner_id LIMIT 5"
)
"""What the run itself asks at its end, and a person may paste."""


@dataclass(frozen=True, slots=True)
class FirstRun:
    """What a first run did, and what the database says of it; `sql` answers LOOK_FURTHER."""

    summary: RunSummary
    facts: Facts
    sql: QueryResult


def sample_events() -> Sequence[bytes]:
    """The sample answers, one event each, as a search engine would publish them."""
    return [line for line in files(__package__).joinpath("sample_answers.jsonl").read_bytes().splitlines() if line]


def sample_order() -> Mapping[tuple[str, str], int]:
    """The place of each sample answer, by tenant and answer id, in the order they were written to be read in."""
    events = [json.loads(event) for event in sample_events()]
    return {(event.get("tenant", "default"), event["answer_id"]): place for place, event in enumerate(events)}


async def first_run(settings: Settings, say: Callable[[str], None]) -> FirstRun:
    """The whole path with the production code; safe to run again on the same services.

    Raises:
        FatalError, UnavailableError: as the worker's own commands.
    """
    await app.migrate(settings)
    await app.ensure_topics(settings)
    events = sample_events()
    topic = settings.kafka.answers_topic
    await app.publish(
        settings, [OutboundMessage(topic, str(number).encode(), event) for number, event in enumerate(events)]
    )
    say(f"Published {len(events)} sample answers to the topic '{topic}'; the worker settles them ...")
    async with app.open_worker(settings) as worker:
        summary = await worker.run(asyncio.Event(), until_drained=True)
    return FirstRun(summary, await app.collect_facts(settings), await app.query(settings, LOOK_FURTHER))
