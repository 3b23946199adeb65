"""The demo's main job: migrate, make topics, publish the sample answers, run the worker until they are settled."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.resources import files

from worker import app
from worker.app import Facts, RunSummary
from worker.core.records import OutboundMessage
from worker.settings import Settings


@dataclass(frozen=True, slots=True)
class FirstRun:
    """What a first run did, and what the database says of it."""

    summary: RunSummary
    facts: Facts


def sample_events() -> Sequence[bytes]:
    """The sample answers, one event each, as a search engine would publish them."""
    return [line for line in files(__package__).joinpath("sample_answers.jsonl").read_bytes().splitlines() if line]


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
    return FirstRun(summary, await app.collect_facts(settings))
