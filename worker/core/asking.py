"""The requests of one answer: what is asked in each stage and mode, under the limits of the model it is asked of."""

import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from worker.core.fencing import ShownAnswer, encoded
from worker.core.llm import CompletionRequest
from worker.core.model import KeyPoint
from worker.core.prompts import REFINE, SCORE, Again, Prompt, Refinement, ScoringMode, Weighting, decompose_prompt
from worker.core.splitting import REPLY_TOKENS, Cell, Column, calls_of, columns_of, score_reply_tokens

FRAMING_TOKENS = 64
"""What a provider adds to the tokens of a request's texts: roles, separators, the wrapping of the schema."""

ID_TOKENS = 4
"""One id in a list of a reply."""

LARGER_CAP = 4
"""How many times longer a reply that was cut may be when it is asked for again."""


@dataclass(frozen=True, slots=True)
class JudgingMethod:
    """Everything of the judging that can change its numbers, beside the model and the words of the prompts.

    `grounding_threshold` is in units of 10⁻⁴; the default is the rubric's lowest positive support.
    """

    weighting: Weighting = Weighting.UNIFORM
    refinement: Refinement = Refinement.FOLDED
    scoring_mode: ScoringMode = ScoringMode.ANSWER
    key_points_max: int = 64
    grounding_threshold: int = 3_000


@dataclass(frozen=True, slots=True)
class ModelLimits:
    """What one call may hold, in the tokens of whoever counts them; leave a margin where that is another tokenizer.

    `reasoning_tokens_max` is added to the cap of every reply, for models whose reasoning counts as output.
    `calls_at_once_max` bounds the requests of one answer that are built, and wait for their replies, together.
    """

    input_tokens_max: int
    output_tokens_max: int
    reasoning_tokens_max: int = 0
    calls_at_once_max: int = 256


class TooLargeError(ValueError):
    """Something cannot be shown to the model whole; the message names it and the limit, never its text."""


@dataclass(frozen=True, slots=True)
class ScoreRequest:
    """A scoring call and the cells it asks for."""

    request: CompletionRequest
    cells: frozenset[Cell]


def fingerprint(request: CompletionRequest) -> str:
    """SHA-256, as lower-case hex, of everything that is asked: a request's identity in any process."""
    texts = [request.stage, request.instructions, request.context, request.question, request.schema_name]
    return hashlib.sha256(encoded([*texts, request.schema, request.output_tokens_max]).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Asker:
    """Builds one answer's requests; the same arguments build the same requests, byte for byte.

    `count_tokens` decides what fits into one call and how long a reply may be.
    """

    shown: ShownAnswer
    method: JudgingMethod
    limits: ModelLimits
    count_tokens: Callable[[str], int]

    def decompose(self, again: Again | None = None) -> CompletionRequest:
        """Asks for the answer's key points; it takes no source to find them, so none is sent.

        Raises:
            TooLargeError: query and answer do not fit.
        """
        shown = self.shown
        question = shown.fence.block([encoded({"query": shown.query, "answer": shown.text})])
        # Key points say what the answer says in about as many words; twice as many leave room.
        reply_tokens = REPLY_TOKENS + 2 * self.count_tokens(shown.text)
        prompt = decompose_prompt(self.method.weighting, self.method.refinement)
        return self._whole(self._request(prompt, "", question, reply_tokens, again), "query and answer")

    def refine(self, key_points: Sequence[KeyPoint], again: Again | None = None) -> CompletionRequest:
        """Asks which key points to drop.

        Raises:
            TooLargeError: query and key points do not fit.
        """
        lines = [encoded({"query": self.shown.query}), _key_points_line(key_points, range(len(key_points)))]
        reply_tokens = REPLY_TOKENS + ID_TOKENS * len(key_points)
        request = self._request(REFINE, "", self.shown.fence.block(lines), reply_tokens, again)
        return self._whole(request, "query and key points")

    def score(
        self, key_points: Sequence[KeyPoint], cells: Collection[Cell], again: Again | None = None
    ) -> Iterator[ScoreRequest]:
        """Asks for every one of the cells exactly once, in one call or several, each built when it is taken.

        Raises:
            TooLargeError: a source does not fit, with the key points, into a call of its own.
        """
        by_source = columns_of(cells, self.shown.positions)
        lines = {source: self._source_line(source) for source in by_source}
        without_sources = self._score_request(key_points, cells, {}, again)
        measure = self._measure(without_sources, lines.values())
        input_tokens_max = self.limits.input_tokens_max - _size(without_sources, measure)
        columns = [Column(source, column, measure(lines[source]) + 1) for source, column in by_source.items()]
        for column in columns:
            if column.input_tokens > input_tokens_max:
                raise TooLargeError(self._refusal(f"sources[{column.source}] and the key points"))
        calls = calls_of(
            columns,
            self.method.scoring_mode,
            input_tokens_max=input_tokens_max,
            output_tokens_max=self.limits.output_tokens_max - self.limits.reasoning_tokens_max,
        )
        return (ScoreRequest(self._score_request(key_points, c, lines, again), frozenset(c)) for c in calls)

    def larger(self, request: CompletionRequest) -> CompletionRequest | None:
        """The same request with room for a longer reply; None if the model gives no more."""
        cap = min(LARGER_CAP * request.output_tokens_max, self.limits.output_tokens_max)
        return replace(request, output_tokens_max=cap) if cap > request.output_tokens_max else None

    def _score_request(
        self, key_points: Sequence[KeyPoint], cells: Collection[Cell], lines: Mapping[int, str], again: Again | None
    ) -> CompletionRequest:
        rows = sorted({key_point for key_point, _ in cells})
        columns = columns_of(cells, self.shown.positions)
        block = self.shown.fence.block
        question = block([_key_points_line(key_points, rows)])
        if len(cells) < len(rows) * len(columns):
            question = f"{question}\nScore only these pairs: {encoded(self._pairs(columns))}"
        context = block(lines[source] for source in columns if source in lines)
        return self._request(SCORE, context, question, score_reply_tokens(len(rows), len(cells)), again)

    def _request(
        self, prompt: Prompt, context: str, question: str, reply_tokens: int, again: Again | None
    ) -> CompletionRequest:
        return CompletionRequest(
            stage=prompt.stage,
            instructions=prompt.instructions,
            context=context,
            question=question if again is None else f"{question}\n{prompt.again[again]}",
            schema_name=prompt.name,
            schema=prompt.schema,
            output_tokens_max=min(reply_tokens + self.limits.reasoning_tokens_max, self.limits.output_tokens_max),
        )

    def _source_line(self, index: int) -> str:
        source = self.shown.sources[index]
        title = {"title": source.title} if source.title else {}
        return encoded({"id": self.shown.source_id(index), **title, "text": source.text})

    def _pairs(self, columns: Mapping[int, Iterable[Cell]]) -> dict[str, list[str]]:
        pairs: dict[str, list[str]] = {}
        for source, column in columns.items():
            for key_point, _ in column:
                pairs.setdefault(key_point_id(key_point), []).append(self.shown.source_id(source))
        return {row: pairs[row] for row in sorted(pairs, key=lambda row: int(row[1:]))}

    def _whole(self, request: CompletionRequest, what: str) -> CompletionRequest:
        if _size(request, self._measure(request, ())) > self.limits.input_tokens_max:
            raise TooLargeError(self._refusal(what))
        return request

    def _measure(self, request: CompletionRequest, lines: Collection[str]) -> Callable[[str], int]:
        """Bytes where they fit, tokens otherwise: no tokenizer makes more tokens than bytes, and counting is slow."""
        size = _size(request, _bytes) + sum(_bytes(line) + 1 for line in lines)
        return _bytes if size <= self.limits.input_tokens_max else self.count_tokens

    def _refusal(self, what: str) -> str:
        return f"{what} do not fit the {self.limits.input_tokens_max} input tokens of one call; no text is ever cut"


def key_point_id(index: int) -> str:
    """The id under which a model is shown a key point."""
    return f"k{index + 1}"


def _key_points_line(key_points: Sequence[KeyPoint], rows: Sequence[int]) -> str:
    return encoded({key_point_id(row): key_points[row].text for row in rows})


def _bytes(text: str) -> int:
    return len(text.encode())


def _size(request: CompletionRequest, measure: Callable[[str], int]) -> int:
    texts = (request.instructions, encoded(request.schema), request.context, request.question)
    return FRAMING_TOKENS + sum(map(measure, texts))
