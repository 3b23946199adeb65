"""One answer's judging: decompose → refine → score, every repetition bounded.

a reply that was cut                 the same request once more, under a larger cap
key points not as asked              once more, with a sentence that says so
no key points                        once more, before that is believed
cells without number or evidence     those cells once more, together
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import cache
from itertools import islice

from worker.core.asking import Asker, JudgingMethod, ModelLimits, key_point_id
from worker.core.conversation import (
    Conversation,
    Incomplete,
    IncompleteError,
    IncompleteReason,
    Question,
    Reading,
    Reception,
    Steps,
)
from worker.core.evidence import folded_source, holds_quote
from worker.core.fencing import show
from worker.core.llm import Completion, CompletionRequest
from worker.core.matrix import SupportMatrix, cells_of, settled
from worker.core.model import Answer, Judgement, KeyPoint
from worker.core.prompts import Again, Refinement
from worker.core.replies import Flaw
from worker.core.splitting import Cell
from worker.core.verdict import (
    CellProblem,
    Ignored,
    Scores,
    ShownIds,
    all_missing,
    joined,
    parse_dropped,
    parse_key_points,
    parse_scores,
)

KeyPoints = tuple[KeyPoint, ...]


class Judging:
    """Send `requests_to_send`, `accept` each completion, repeat until there is an `outcome`.

    The same answer, settings and completions give the same requests, byte for byte, and the same outcome.
    """

    def __init__(
        self,
        answer: Answer,
        *,
        method: JudgingMethod,
        limits: ModelLimits,
        secret: bytes,
        count_tokens: Callable[[str], int],
    ) -> None:
        self._stages = _Stages(answer, method, limits, secret, count_tokens)
        self._conversation = Conversation(self._stages.judgement())

    @property
    def outcome(self) -> Judgement | Incomplete | None:
        """None while there are requests to send."""
        return self._conversation.outcome

    @property
    def scrubbed(self) -> int:
        """Characters and boundaries replaced so far, in the answer and in replies."""
        return self._stages.scrubbed

    @property
    def ignored(self) -> Counter[Ignored]:
        """What score replies held so far that nobody asked for."""
        return self._stages.ignored

    def requests_to_send(self) -> tuple[CompletionRequest, ...]:
        """What is asked and not answered yet; all of it may be asked at once."""
        return self._conversation.requests_to_send()

    def accept(self, request: CompletionRequest, completion: Completion) -> Reception:
        """Takes the completion of a request that was handed out; what comes after its first, or late, changes nothing.

        Raises:
            ValueError: the request is not one of this answer's.
        """
        return self._conversation.accept(request, completion)


class _Stages:
    def __init__(
        self,
        answer: Answer,
        method: JudgingMethod,
        limits: ModelLimits,
        secret: bytes,
        count_tokens: Callable[[str], int],
    ) -> None:
        self._shown = show(answer, secret)
        self._method = method
        self._limits = limits
        self._asker = Asker(self._shown, method, limits, count_tokens)
        self._folded = cache(lambda source: folded_source(self._shown.sources[source]))
        self.scrubbed = self._shown.scrubbed
        self.ignored: Counter[Ignored] = Counter()

    def judgement(self) -> Steps[Judgement]:
        key_points = yield from self._until_found(self._asker.decompose, self._read_key_points)
        if self._method.refinement is Refinement.OWN_CALL and key_points:
            key_points = yield from self._refined(key_points)
        matrix = yield from self._scored(key_points)
        return matrix.judgement(
            grounding_threshold=self._method.grounding_threshold, shuffle_seed=self._shown.shuffle_seed
        )

    def _refined(self, key_points: KeyPoints) -> Steps[KeyPoints]:
        ids = {key_point_id(index): index for index in range(len(key_points))}

        def request_of(again: Again | None) -> CompletionRequest:
            return self._asker.refine(key_points, again)

        def read(text: str | None) -> KeyPoints | Flaw:
            dropped = parse_dropped(text, ids)
            if isinstance(dropped, Flaw):
                return dropped
            return tuple(key_point for index, key_point in enumerate(key_points) if index not in dropped)

        return (yield from self._until_found(request_of, read))

    def _until_found(
        self,
        request_of: Callable[[Again | None], CompletionRequest],
        read: Callable[[str | None], KeyPoints | Flaw],
    ) -> Steps[KeyPoints]:
        """Key points, or none if two replies had none."""
        again: Again | None = None
        left = {Again.UNREADABLE, Again.NOTHING_FOUND}
        while True:
            (question,) = yield from self._answered([Question(request_of(again), read)])
            found = question.reading
            if isinstance(found, tuple) and (found or Again.NOTHING_FOUND not in left):
                return found
            again = Again.NOTHING_FOUND if isinstance(found, tuple) else Again.UNREADABLE
            if again not in left:
                detail = f"the reply to the {question.request.stage} request is {found}, asked twice"
                raise IncompleteError(Incomplete(IncompleteReason.UNREADABLE, detail, (question.request,)))
            left.remove(again)

    def _scored(self, key_points: KeyPoints) -> Steps[SupportMatrix]:
        cells = cells_of(len(key_points), len(self._shown.sources))
        replies = yield from self._score_replies(key_points, cells, None)
        scores = _joined(replies)
        if scores.problems:
            replies = yield from self._score_replies(key_points, scores.problems, Again.UNSETTLED_CELLS)
            again = _joined(replies)
            if unsettled := again.problems.keys() - again.unevidenced.keys():
                raise _unsettled(Counter(again.problems[cell] for cell in unsettled), unsettled, replies)
            # Only what had a problem was asked again; what was accepted before stays as it is.
            scores = Scores({**again.accepted, **scores.accepted}, again.problems, again.unevidenced)
        return settled(scores, key_points, self._shown.sources)

    def _score_replies(
        self, key_points: KeyPoints, cells: Collection[Cell], again: Again | None
    ) -> Steps[list[Question[Scores]]]:
        shown = ShownIds(
            key_points={key_point_id(index): index for index in range(len(key_points))},
            sources={self._shown.source_id(index): index for index in range(len(self._shown.sources))},
        )

        def reader(asked: frozenset[Cell]) -> Callable[[str | None], Scores | Flaw]:
            return lambda text: self._read_scores(text, asked, shown)

        waiting = self._asker.score(key_points, cells, again)
        replies: list[Question[Scores]] = []
        while batch := list(islice(waiting, self._limits.calls_at_once_max)):
            replies += yield from self._answered([Question(a.request, reader(a.cells), a.cells) for a in batch])
        return replies

    def _answered(self, questions: Sequence[Question[Reading]]) -> Steps[list[Question[Reading]]]:
        """The questions with their readings, in order; one whose reply was cut is replaced by a larger one."""
        yield questions
        larger: dict[Question[Reading], Question[Reading]] = {}
        for question in _cut(questions):
            request = self._asker.larger(question.request)
            if request is None:
                raise _still_cut([question])
            larger[question] = Question(request, question.read, question.cells)
        if larger:
            yield list(larger.values())
        if still := _cut(larger.values()):
            raise _still_cut(still)
        return [larger.get(question, question) for question in questions]

    def _read_key_points(self, text: str | None) -> KeyPoints | Flaw:
        return parse_key_points(
            text, self._method.weighting, key_points_max=self._method.key_points_max, clean=self._clean
        )

    def _read_scores(self, text: str | None, asked: frozenset[Cell], shown: ShownIds) -> Scores | Flaw:
        scores = parse_scores(text, asked, shown=shown, is_quoted=self._is_quoted, clean=self._clean)
        if isinstance(scores, Scores):
            self.ignored.update(scores.ignored)
        return scores

    def _is_quoted(self, quote: str, source: int) -> bool:
        return holds_quote(quote, self._folded(source))

    def _clean(self, text: str) -> str:
        cleaned, replaced = self._shown.fence.clean(text)
        self.scrubbed += replaced
        return cleaned


def _cut(questions: Iterable[Question[Reading]]) -> list[Question[Reading]]:
    return [question for question in questions if question.reading is Flaw.TRUNCATED]


def _still_cut(questions: Sequence[Question[Reading]]) -> IncompleteError:
    caps = sorted({question.request.output_tokens_max for question in questions})
    detail = f"a reply to the {questions[0].request.stage} request was cut at {caps[-1]} output tokens"
    return IncompleteError(
        Incomplete(IncompleteReason.TRUNCATED, detail, tuple(question.request for question in questions))
    )


def _joined(replies: Sequence[Question[Scores]]) -> Scores:
    """What all replies say; one that cannot be read leaves all its cells missing."""
    parts = [reply.reading if isinstance(reply.reading, Scores) else all_missing(reply.cells) for reply in replies]
    return joined(parts)


def _unsettled(
    problems: Counter[CellProblem], cells: Collection[Cell], replies: Sequence[Question[Scores]]
) -> IncompleteError:
    named = ", ".join(f"{count} {problem}" for problem, count in sorted(problems.items()))
    ask_again = tuple(reply.request for reply in replies if not reply.cells.isdisjoint(cells))
    return IncompleteError(
        Incomplete(IncompleteReason.UNSETTLED_CELLS, f"cells without a support, asked twice: {named}", ask_again)
    )
