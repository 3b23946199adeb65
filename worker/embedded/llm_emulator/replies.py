"""What the emulated model says to a call, and what that costs."""

from dataclasses import dataclass

from worker.core.llm import CompletionUsage, Stage
from worker.embedded.llm_emulator.chances import Chances
from worker.embedded.llm_emulator.effects import EFFECTS, Effect, Says
from worker.embedded.llm_emulator.faults import Fault
from worker.embedded.llm_emulator.judgements import Opinion, Understood
from worker.embedded.llm_emulator.nouns import Call, Spoken
from worker.embedded.llm_emulator.prefix_cache import Prompt, usage_of
from worker.embedded.llm_emulator.tokens import Tokenizer, token_count
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


@dataclass(frozen=True, slots=True)
class Model:
    """What stands in for a model: what it thinks, and what its tokens are."""

    opinion: Opinion
    tokenizer: Tokenizer

    def reply_to(
        self, order: Order, wire: Wire, *, prompt: Prompt, cached_tokens: int, reasoning_tokens: int
    ) -> tuple[Spoken, CompletionUsage]:
        """What is said under the order's fault, and what the call used."""
        reasoned = min(order.call.output_tokens_max, reasoning_tokens)
        good, output_tokens = self._good_reply(order, wire, order.call.output_tokens_max - reasoned)
        spoken = order.effect.edit(good) if isinstance(order.effect, Says) else good
        # What was generated and then withheld is billed all the same.
        if spoken.text is not None and spoken.text is not good.text:
            output_tokens = token_count(self.tokenizer.packed(spoken.text))
        return spoken, usage_of(order.call, prompt, cached_tokens, output_tokens, reasoned)

    def _good_reply(self, order: Order, wire: Wire, tokens_max: int) -> tuple[Spoken, int]:
        """The opinion, cut where it is longer than the cap leaves room for, and its tokens."""
        text = NOT_UNDERSTOOD if order.asked is None else self.opinion(order.asked)
        tokens = token_count(self.tokenizer.packed(text))
        if tokens <= tokens_max:
            return Spoken(order.stage, text, wire.finish(is_cut=False)), tokens
        cut = self.tokenizer.first(text, tokens_max) if tokens_max else None
        return Spoken(order.stage, cut, wire.finish(is_cut=True)), tokens_max
