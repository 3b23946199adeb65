"""A language model with visible state: judges as it was told to, says what it was told to first, and remembers."""

from collections.abc import Callable, Iterable, Sequence

from worker.core.conversation import Incomplete, Reception
from worker.core.judging import Judging
from worker.core.llm import Completion, CompletionRequest, CompletionUsage, Finish, Stage
from worker.core.model import Judgement, KeyPoint
from worker.core.model_side import (
    Asked,
    ShownSource,
    StatedCell,
    dropped_reply,
    key_points_reply,
    read_request,
    scores_reply,
)
from worker.core.prompts import Weighting

Opinion = Callable[[str, ShownSource], tuple[int, str]]
"""(text of a key point, source) → (support in units of 10⁻⁴, quote)."""


def completion(text: str | None, finish: Finish = Finish.COMPLETE) -> Completion:
    return Completion(finish=finish, text=text, usage=CompletionUsage(0, 0), raw=text or "")


TRUNCATED = completion('{"rows":[{"k":"k1","supp', Finish.TRUNCATED)
REFUSED = completion(None, Finish.REFUSED)


def message_of(request: CompletionRequest) -> str:
    """What the model reads after the instructions."""
    return "\n\n".join(part for part in (request.context, request.question) if part)


def asked_in(request: CompletionRequest) -> Asked:
    return read_request(message_of(request))


class FakeModel:
    """Gives each of `first` in turn, for the stage it is listed under; after that, what its opinion says."""

    def __init__(
        self,
        key_points: Sequence[KeyPoint],
        opinion: Opinion,
        *,
        first: dict[Stage, list[Completion]] | None = None,
        dropped: Iterable[str] = (),
        weighting: Weighting = Weighting.UNIFORM,
    ) -> None:
        self.key_points = key_points
        self.opinion = opinion
        self.first = {stage: list(completions) for stage, completions in (first or {}).items()}
        self.dropped = tuple(dropped)
        self.weighting = weighting
        self.requests: list[CompletionRequest] = []

    def asked_of(self, stage: Stage) -> list[CompletionRequest]:
        return [request for request in self.requests if request.stage is stage]

    def complete(self, request: CompletionRequest) -> Completion:
        self.requests.append(request)
        if waiting := self.first.get(request.stage):
            return waiting.pop(0)
        match request.stage:
            case Stage.DECOMPOSE:
                return completion(key_points_reply(self.key_points, self.weighting))
            case Stage.REFINE:
                shown = asked_in(request).key_points
                return completion(dropped_reply(key for key, text in shown.items() if text in self.dropped))
            case Stage.SCORE:
                return completion(self.scores(request))

    def scores(self, request: CompletionRequest) -> str:
        asked = asked_in(request)
        sources = {source.source_id: source for source in asked.sources}
        return scores_reply(
            StatedCell(key, source, *self.opinion(asked.key_points[key], sources[source]))
            for key, source in asked.pairs
        )


def talk(
    judging: Judging, model: FakeModel, *, last_first: bool = False
) -> tuple[Judgement | Incomplete, list[Reception]]:
    """Moves requests and completions until the outcome is there; each batch in order, or from its end."""
    receptions = []
    while judging.outcome is None:
        batch = judging.requests_to_send()
        answered = [(request, model.complete(request)) for request in batch]
        for request, given in reversed(answered) if last_first else answered:
            receptions.append(judging.accept(request, given))
    return judging.outcome, receptions
