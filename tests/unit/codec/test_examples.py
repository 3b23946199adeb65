import pytest

from tests.unit.codec.records import Limits
from tests.unit.schemas import examples
from tests.unit.schemas.examples import INVALID, NOW, VALID, Example
from worker.codec import decode_answer
from worker.codec.content_modes import content_mode, headers_by_name
from worker.errors import PermanentError


@pytest.mark.parametrize("example", VALID, ids=examples.name)
def test_a_valid_example_is_decoded(example: Example) -> None:
    decoded = decode_answer(example.record, limits=Limits(), now=NOW)
    event = example.event()
    answer = decoded.answer
    assert (answer.key.tenant, answer.key.answer_id) == (event.get("tenant", "default"), event["answer_id"])
    assert answer.query == event["query"]
    assert answer.text == event["answer"].replace("\0", "\N{REPLACEMENT CHARACTER}")
    assert [source.source_id for source in answer.sources] == [source["source_id"] for source in event["sources"]]
    assert decoded.unknown_field_count == example.expected["unknown_field_count"]
    assert decoded.scrubbed_count == example.expected["scrubbed_count"]


@pytest.mark.parametrize("example", VALID, ids=examples.name)
def test_a_valid_example_is_read_in_the_content_mode_it_was_sent_in(example: Example) -> None:
    assert content_mode(headers_by_name(example.headers), example.value).value == example.expected["mode"]


@pytest.mark.parametrize("example", INVALID, ids=examples.name)
def test_an_invalid_example_gets_its_reason_and_names_the_field(example: Example) -> None:
    with pytest.raises(PermanentError) as raised:
        decode_answer(example.record, limits=Limits(), now=NOW)
    assert raised.value.reason is example.reason
    assert example.expected["field"] in raised.value.detail
