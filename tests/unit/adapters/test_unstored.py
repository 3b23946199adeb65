"""What the journal in memory keeps beside the contract of all journals: a bounded amount."""

import pytest

from tests.support import calls
from worker.adapters import unstored
from worker.adapters.unstored import UnstoredJournal
from worker.core.model import Usage


async def test_the_calls_of_the_oldest_answers_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unstored, "ANSWERS_MAX", 3)
    journal = UnstoredJournal()
    for number in range(10):
        for part in ("one", "two"):
            intent = calls.intent(f"{number} {part}", answer_id=f"a-{number}")
            assert await journal.open(intent) is None
            await journal.close(intent.call_id, calls.complete())
    assert len(journal.outcomes()) == 3 * 2
    assert await journal.responses(calls.call_key("6 one")) == []
    assert await journal.usage_of(calls.answer_key("a-6")) == Usage()
    assert len(await journal.responses(calls.call_key("7 two"))) == 1
    assert (await journal.usage_of(calls.answer_key("a-7"))).calls == 2
