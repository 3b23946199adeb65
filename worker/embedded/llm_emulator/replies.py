"""What the emulated model says to a call, and what that costs."""

from dataclasses import dataclass

from worker.core.llm import CompletionUsage, Stage
from worker.embedded.llm_emulator.chances import Chances
from worker.embedded.llm_emulator.effects import EFFECTS, Effect, Says
from worker.embedded.llm_emulator.faults import Fault
from worker.embedded.llm_emulator.judgements import Opinion, Understood
from worker.embedded.llm_emulator.nouns import Call, Spoken
from worker.embedded.llm_emulator.prefix_cache import Prompt, usage_of
from worker.embedded.llm_emulator.tokens import first_tokens, token_ids
from worker.embedded.llm_emulator.wire import Wire

NOT_UNDERSTOOD = "{}"
"""What the model says to messages that are none of the worker's."""


@dataclass(frozen=True, slots=True)
class Order:
    """A call that is to be worked for. `asked` is None when the message is none of the worker's."""

    call: Call
    asked: Understood | None
    chances: Chances
    fault: Fault | None

    @property
    def stage(self) -> Stage | None:
        return self.asked.stage if self.asked else None

    @property
    def effect(self) -> Effect | None:
        return EFFECTS[self.fault] if self.fault else None


def reply_to(
    order: Order, wire: Wire, opinion: Opinion, *, prompt: Prompt, cached_tokens: int, reasoning_tokens: int
) -> tuple[Spoken, CompletionUsage]:
    """What is said under the order's fault, and what the call used."""
    cap = order.call.output_tokens_max
    reasoned = min(cap, reasoning_tokens)
    good = _good_reply(order, wire, opinion, cap - reasoned)
    spoken = order.effect.edit(good) if isinstance(order.effect, Says) else good
    # What was generated and then withheld is billed all the same.
    text = good.text if spoken.text is None else spoken.text
    return spoken, usage_of(order.call, prompt, cached_tokens, len(token_ids(text or "")), reasoned)


def _good_reply(order: Order, wire: Wire, opinion: Opinion, tokens_max: int) -> Spoken:
    """The opinion, cut where it is longer than the cap leaves room for."""
    text = NOT_UNDERSTOOD if order.asked is None else opinion(order.asked)
    # No text has more tokens than bytes: most need not be counted.
    if len(text.encode("utf-8", "surrogatepass")) <= tokens_max or len(token_ids(text)) <= tokens_max:
        return Spoken(order.stage, text, wire.finish(is_cut=False))
    return Spoken(order.stage, first_tokens(text, tokens_max) if tokens_max else None, wire.finish(is_cut=True))
