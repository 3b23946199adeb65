"""The worker as it is, on real services, with a judge that costs nothing."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from random import Random
from typing import Any

import psutil

from tests.benchmarks.line_profile import profiled
from tests.benchmarks.line_task import Result, Task
from worker.app import Worker, open_worker
from worker.core.model import Answer, Attribution, Judgement, JudgeProfile
from worker.core.records import OutboundMessage, Record
from worker.ports import SaveResult

MEMORY_SAMPLES = 20


class PreparedJudge:
    """Gives every answer the same judgement: at once, or after 0.5 to 1.5 times the given time."""

    def __init__(self, judgement: Judgement, judge_s: float = 0.0) -> None:
        self._judgement = judgement
        self._judge_s = judge_s
        self._random = Random(0)
        self.judged = 0
        self.waits_s: dict[str, float] = {}
        self.on_judged: Callable[[], None] = lambda: None

    @property
    def profile(self) -> JudgeProfile:
        return JudgeProfile(name="prepared", version="1")

    async def judge(self, answer: Answer) -> Judgement:
        if self._judge_s:
            wait_s = self.waits_s[answer.key.answer_id] = self._judge_s * self._random.uniform(0.5, 1.5)
            await asyncio.sleep(wait_s)
        self.judged += 1
        self.on_judged()
        return self._judgement


class NoRelay:
    """Leaves everything in the outbox."""

    async def run(self) -> None:
        await asyncio.Event().wait()

    async def drain(self) -> None: ...


class Latencies:
    """From a record's arrival out of the poll to the moment its rows are durable, without the judge's own time."""

    def __init__(self, worker: Worker, judge: PreparedJudge) -> None:
        self._judge = judge
        self._polled_s: dict[str, float] = {}
        self.seconds: list[float] = []
        stream = worker.consume._stream
        stream.fetch = partial(self._fetch, stream.fetch)  # type: ignore[method-assign]  # a clock around it
        worker.store.save = partial(self._save, worker.store.save)  # type: ignore[method-assign]  # likewise

    async def _fetch(self, fetch: Callable[..., Any], **limits: int) -> list[Record]:
        records: list[Record] = await fetch(**limits)
        now_s = time.monotonic()
        for record in records:
            self._polled_s[(record.key or b"").decode()] = now_s
        return records

    async def _save(self, save: Callable[..., Any], attribution: Attribution, message: OutboundMessage) -> SaveResult:
        result: SaveResult = await save(attribution, message)
        answer_id = attribution.answer.key.answer_id
        self.seconds.append(time.monotonic() - self._polled_s.pop(answer_id) - self._judge.waits_s.pop(answer_id))
        return result


async def run_line(task: Task) -> Result:
    """Until everything in the topic is settled, and published as far as there is a relay."""
    judge = PreparedJudge(task.shape.judgement(), task.judge_s)
    result = Result()
    _watch_memory(judge, task.events, result)
    async with open_worker(task.settings(), judge) as worker:
        if not task.relayed:
            worker.relay = NoRelay()  # type: ignore[assignment]  # what is left out
        latencies = Latencies(worker, judge) if task.judge_s else None
        published_at_s = _watch_publishing(worker)
        cpu_s = time.process_time()
        with profiled() if task.profiled else nullcontext(Counter[str]()) as samples:
            summary = await worker.run(asyncio.Event(), until_drained=True)
        result.cpu_s = time.process_time() - cpu_s
    result.events, result.busy_s, result.samples = summary.records, summary.busy_s, dict(samples)
    if published_at_s:
        result.published_s = published_at_s[-1] - (worker.telemetry.first_record_started_s or 0.0)
    if latencies is not None:
        result.latencies_s = latencies.seconds
    return result


def _watch_publishing(worker: Worker) -> list[float]:
    """When a batch of messages was acknowledged and deleted, of each batch."""
    counted = worker.telemetry.messages_published
    at_s: list[float] = []

    def published(message_count: int) -> None:
        counted(message_count)
        if message_count:
            at_s.append(time.monotonic())

    worker.telemetry.messages_published = published  # type: ignore[method-assign]  # a clock beside it
    return at_s


def _watch_memory(judge: PreparedJudge, events: int, result: Result) -> None:
    distance = max(1, events // MEMORY_SAMPLES)

    def sample() -> None:
        if judge.judged % distance == 0:
            result.memory_bytes.append(resident_bytes())

    judge.on_judged = sample


def resident_bytes() -> int:
    """What this process holds; pages of libraries, which the kernel takes and gives as it likes, are left out."""
    memory = psutil.Process().memory_info()
    return int(memory.rss - getattr(memory, "shared", 0))
