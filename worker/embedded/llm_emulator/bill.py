"""The bill: every request that was worked for, to the last token."""

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass

from worker.core.llm import CompletionUsage, Stage
from worker.embedded.llm_emulator.nouns import Api

LINES_MAX = 1_000_000
"""Past it the oldest lines go; the totals keep them."""


@dataclass(slots=True, kw_only=True)
class BillLine:
    """One request that was worked for, from the moment the work began.

    `delivered` turns True when the API's whole response has left for a client that was still there, and False again
    when that client then resets the connection with the response unread.
    """

    number: int
    api: Api
    model: str
    stage: Stage | None
    client_request_id: str | None
    completion_id: str
    usage: CompletionUsage
    fault: str | None = None
    delivered: bool = False


@dataclass(slots=True)
class Totals:
    """Over all lines since the bill was last cleared."""

    lines: int = 0
    input_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0

    def add(self, usage: CompletionUsage) -> None:
        self.lines += 1
        self.input_tokens += usage.input_tokens
        self.cache_read_tokens += usage.cache_read_tokens
        self.cache_write_tokens += usage.cache_write_tokens
        self.output_tokens += usage.output_tokens
        self.reasoning_tokens += usage.reasoning_tokens


class Bill:
    """All that an account will be asked to pay."""

    def __init__(self) -> None:
        self._lines: deque[BillLine] = deque(maxlen=LINES_MAX)
        self.totals = Totals()

    @property
    def lines(self) -> tuple[BillLine, ...]:
        return tuple(self._lines)

    def add(self, line: BillLine) -> None:
        self._lines.append(line)
        self.totals.add(line.usage)

    def of(self, client_request_ids: Iterable[str]) -> tuple[BillLine, ...]:
        """The lines of these requests, in the order in which they came."""
        wanted = set(client_request_ids)
        return tuple(line for line in self._lines if line.client_request_id in wanted)

    def clear(self) -> None:
        self._lines.clear()
        self.totals = Totals()

    def document(self) -> Mapping[str, object]:
        """As JSON shows it: `lines`, each with its buckets of tokens beside its other fields, and `totals`."""
        return {"lines": [_document(line) for line in self._lines], "totals": asdict(self.totals)}


def _document(line: BillLine) -> Mapping[str, object]:
    members: dict[str, object] = asdict(line)
    del members["usage"]
    buckets = asdict(line.usage)
    del buckets["source"]
    return members | buckets
