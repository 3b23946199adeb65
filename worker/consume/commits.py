"""What may be committed, committed: regularly, at a revoke and at the end."""

import asyncio

from worker.core.offsets import OffsetTracker
from worker.errors import UnavailableError
from worker.ports import RecordStream
from worker.telemetry import log


class Commits:
    """Commits what is due, again when it failed, and one commit at a time.

    Were there two on their way, the older could land on the newer one, or after its partitions were given up.
    """

    def __init__(self, stream: RecordStream, offsets: OffsetTracker, *, interval_ms: int) -> None:
        self._stream = stream
        self._offsets = offsets
        self._interval_ms = interval_ms
        self._turn = asyncio.Lock()
        self._failed_in_a_row = 0
        self.failed = 0

    async def commit_regularly(self) -> None:
        while True:
            await asyncio.sleep(self._interval_ms / 1000)
            await self.commit()

    async def commit(self) -> None:
        """A commit that fails is counted; what it left is due at the next.

        Raises:
            FatalError: the group refuses us for good.
        """
        async with self._turn:
            due = self._offsets.committable()
            if not due:
                return
            try:
                await self._stream.commit({topic_partition: offset for topic_partition, _, offset in due})
            except UnavailableError as error:
                self.failed += 1
                self._failed_in_a_row += 1
                log.warning("offsets.commit_failed", problem=str(error), in_a_row=self._failed_in_a_row)
            else:
                self._offsets.mark_committed(due)
                self._failed_in_a_row = 0
