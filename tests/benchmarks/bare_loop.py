"""The least that could be called the job: decode, compute, write in batches. No Kafka, no retries, no look-ups."""

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import asyncpg
from sqlalchemy import Column

from tests.benchmarks.line_runs import PreparedJudge
from tests.benchmarks.line_task import Result, Task
from worker.adapters.postgres import rows
from worker.app import build_credit, code_version
from worker.codec import decode_answer, encode_attribution
from worker.core.method import canonical_json
from worker.core.model import Attribution, Method
from worker.core.records import OutboundMessage, Record
from worker.settings import TextStorage


class Computing:
    """From bytes to an attribution and its message, as the worker does it."""

    def __init__(self, task: Task) -> None:
        self._settings = task.settings()
        self._judgement = task.shape.judgement()
        self._credit = build_credit(self._settings, PreparedJudge(self._judgement).profile)

    def __call__(self, value: bytes) -> tuple[Attribution, OutboundMessage]:
        now = datetime.now(UTC)
        record = Record("answers", 0, 0, 0, None, value)
        answer = decode_answer(record, limits=self._settings.intake, now=now).answer
        attribution = self._credit(answer, self._judgement)
        message = encode_attribution(
            attribution, topic="attributions", source_uri="/bench", code_version=code_version(), computed_at=now
        )
        return attribution, message


class Writing:
    """Batches into the tables a save writes, each in one transaction, by the driver alone."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._methods: set[bytes] = set()

    async def __call__(self, computed: Sequence[tuple[Attribution, OutboundMessage]]) -> None:
        settled = [attribution for attribution, _ in computed]
        keys = [
            (item.answer.key.tenant, item.answer.key.answer_id, "answers", item.answer.content_hash, 1)
            for item in settled
        ]
        async with self._connection.transaction():
            await self._write_method(settled[0].method)
            await self._copy(rows.ANSWER_COLUMNS, keys)
            attributions = rows.attribution_rows(settled, code_version(), TextStorage.FULL)
            await self._copy(rows.ATTRIBUTION_COLUMNS, attributions)
            await self._copy(rows.SOURCE_COLUMNS, rows.source_rows(settled, TextStorage.FULL))
            await self._copy(rows.OUTBOX_COLUMNS, rows.outbox_rows([message for _, message in computed]))

    async def _write_method(self, method: Method) -> None:
        if method.method_hash not in self._methods:
            self._methods.add(method.method_hash)
            statement = "INSERT INTO methods (method_hash, document) VALUES ($1, $2)"
            await self._connection.execute(statement, method.method_hash, canonical_json(method.document).decode())

    async def _copy(self, columns: Sequence[Column[Any]], records: Sequence[tuple[object, ...]]) -> None:
        names = [column.name for column in columns]
        await self._connection.copy_records_to_table(columns[0].table.name, records=records, columns=names)


async def run_bare_loop(task: Task) -> Result:
    """All events in batches as large as the worker's may be, one batch after the other."""
    settings, event, compute = task.settings(), task.shape.events(), Computing(task)
    values = [event(number) for number in range(task.events)]
    batch_max = settings.postgres.save_batch_max
    connection = await asyncpg.connect(settings.postgres.dsn.get_secret_value())
    write = Writing(connection)
    started_s, cpu_s = time.monotonic(), time.process_time()
    for first in range(0, len(values), batch_max):
        await write([compute(value) for value in values[first : first + batch_max]])
    result = Result(len(values), time.monotonic() - started_s, cpu_s=time.process_time() - cpu_s)
    await connection.close()
    return result


async def time_single_commits(task: Task) -> Result:
    """How long one event's rows take to become durable, with nothing else going on."""
    settings, event, compute = task.settings(), task.shape.events(), Computing(task)
    connection = await asyncpg.connect(settings.postgres.dsn.get_secret_value())
    write = Writing(connection)
    result = Result(task.events)
    for number in range(task.events):
        computed = compute(event(number))
        started_s = time.monotonic()
        await write([computed])
        result.latencies_s.append(time.monotonic() - started_s)
    await connection.close()
    return result
