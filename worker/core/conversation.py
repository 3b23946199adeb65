"""Questions asked of a model in batches, answered in any order: what is asked next depends on what was said alone.

A conversation is a generator of batches. It goes on when every question of a batch has its reading, so that a journal
of completions, replayed in any order, leads to the same questions and the same outcome.
"""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Generic, TypeAlias, TypeVar

from worker.core.asking import TooLargeError, fingerprint
from worker.core.llm import Completion, CompletionRequest, Finish
from worker.core.replies import Flaw
from worker.core.splitting import Cell
from worker.core.verdict import Scores

Reading = TypeVar("Reading")
Result = TypeVar("Result")


class Reception(StrEnum):
    """What a completion was worth: WHOLE gave all that was asked, PARTIAL some of it, the others nothing."""

    WHOLE = "whole"
    PARTIAL = "partial"
    UNREADABLE = "unreadable"
    TRUNCATED = "truncated"
    REFUSED = "refused"
    UNKNOWN = "unknown"


class IncompleteReason(StrEnum):
    """Why a conversation ended without a result."""

    UNREADABLE = "unreadable"
    TRUNCATED = "truncated"
    UNSETTLED_CELLS = "unsettled_cells"
    UNKNOWN_FINISH = "unknown_finish"
    REFUSED = "refused"
    TOO_LARGE = "too_large"


@dataclass(frozen=True, slots=True)
class Incomplete:
    """No result, and why; `detail` holds no text of the answer.

    A next attempt may use every reply again but those to `ask_again`. Where there is none to ask again, no further
    attempt can do better.
    """

    reason: IncompleteReason
    detail: str
    ask_again: tuple[CompletionRequest, ...] = ()


class IncompleteError(Exception):
    """Ends a conversation from within."""

    def __init__(self, incomplete: Incomplete) -> None:
        super().__init__(incomplete.detail)
        self.incomplete = incomplete


@dataclass(slots=True, eq=False)
class Question(Generic[Reading]):
    """A request, how its reply is read, and the reading once it is there; `cells` are those it asks for."""

    request: CompletionRequest
    read: Callable[[str | None], Reading | Flaw]
    cells: frozenset[Cell] = frozenset()
    reading: Reading | Flaw | None = None


Steps: TypeAlias = Generator[Sequence[Question[Any]], None, Result]
"""Yields the questions of a batch, and is resumed when each has its reading."""


class Conversation(Generic[Result]):
    """Moves completions in and requests out; knows neither provider, journal nor clock."""

    def __init__(self, steps: Steps[Result]) -> None:
        self._steps = steps
        self._asked: dict[str, Question[Any]] = {}
        self._pending: dict[str, Question[Any]] = {}
        self._outcome: Result | Incomplete | None = None
        self._advance()

    @property
    def outcome(self) -> Result | Incomplete | None:
        """None while there are requests to send."""
        return self._outcome

    def requests_to_send(self) -> tuple[CompletionRequest, ...]:
        """What is asked and not answered yet; all of it may be asked at once."""
        return tuple(question.request for question in self._pending.values())

    def accept(self, request: CompletionRequest, completion: Completion) -> Reception:
        """Takes the completion of a request that was handed out; what comes after its first, or late, changes nothing.

        Raises:
            ValueError: the request was never handed out.
        """
        identity = fingerprint(request)
        if identity not in self._asked:
            raise ValueError("this request is not of this conversation")
        question = self._asked[identity]
        is_pending = self._pending.get(identity) is question
        match completion.finish:
            case Finish.COMPLETE:
                reading = question.read(completion.text) if is_pending else question.reading
            case Finish.TRUNCATED:
                reading = Flaw.TRUNCATED
            case Finish.REFUSED | Finish.UNKNOWN as finish:
                if is_pending:
                    self._end(_ended_by(finish, request))
                return Reception(finish)
        if is_pending:
            question.reading = reading
            del self._pending[identity]
            self._advance()
        return _reception_of(reading)

    def _advance(self) -> None:
        try:
            while not self._pending:
                self._pending = {fingerprint(question.request): question for question in next(self._steps)}
                self._asked |= self._pending
        except StopIteration as stop:
            self._outcome = stop.value
        except IncompleteError as error:
            self._end(error.incomplete)
        except TooLargeError as error:
            self._end(Incomplete(IncompleteReason.TOO_LARGE, str(error)))

    def _end(self, incomplete: Incomplete) -> None:
        self._outcome = incomplete
        self._pending = {}


def _ended_by(finish: Finish, request: CompletionRequest) -> Incomplete:
    if finish is Finish.REFUSED:
        return Incomplete(IncompleteReason.REFUSED, f"the model refused the {request.stage} request")
    detail = f"the reply to the {request.stage} request ended in a way that is not known"
    return Incomplete(IncompleteReason.UNKNOWN_FINISH, detail, (request,))


def _reception_of(reading: object) -> Reception:
    if reading is Flaw.TRUNCATED:
        return Reception.TRUNCATED
    if isinstance(reading, Flaw):
        return Reception.UNREADABLE
    return Reception.PARTIAL if isinstance(reading, Scores) and reading.problems else Reception.WHOLE
