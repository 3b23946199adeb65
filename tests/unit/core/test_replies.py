import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.core.replies import REPLY_CHARACTERS_MAX, Flaw, NumberText, list_in_reply


def test_a_message_is_read_as_it_stands_before_any_fence_is_taken_off() -> None:
    """archipelago#132: a fence stripper broke valid JSON whose strings held fences."""
    text = json.dumps({"rows": ["```json\n{}\n```"]})
    assert list_in_reply(text, "rows") == ["```json\n{}\n```"]


@pytest.mark.parametrize("language", ["json", "JSON", ""])
def test_a_message_that_is_one_code_fence_is_unwrapped(language: str) -> None:
    """crewAI#3821: scores became 0.0 because the JSON came in a fence."""
    assert list_in_reply(f'\n```{language}\n{{"rows": ["a ``` b"]}}\n```\n', "rows") == ["a ``` b"]


@pytest.mark.parametrize(
    "text",
    [
        'Here it is:\n```json\n{"rows": []}\n```',
        '```json\n{"rows": []}\n```\nDone.',
        '```json\n{"rows": []}\n```\n```json\n{"rows": [1]}\n```',
        '{"rows": []} {"rows": [1]}',
        '{"rows": []}\n{"rows": [1]}',
        'The judged text says {"rows": []}.',
        '{"rows": [',
        '```json\n{"rows": []}',
        "\ufeff" + '{"rows": []}',
    ],
)
def test_no_object_is_picked_out_of_a_message_that_is_more_or_less_than_one(text: str) -> None:
    """opik#8195: an injected verdict won because the first object was taken."""
    assert list_in_reply(text, "rows") is Flaw.NOT_JSON


@pytest.mark.parametrize("constant", ["NaN", "Infinity", "-Infinity"])
def test_what_python_takes_for_a_number_and_json_does_not_is_no_json(constant: str) -> None:
    assert list_in_reply(f'{{"rows": [{constant}]}}', "rows") is Flaw.NOT_JSON


def test_a_name_that_occurs_twice_leaves_open_which_was_meant() -> None:
    assert list_in_reply('{"rows": [], "rows": [1]}', "rows") is Flaw.NOT_JSON
    assert list_in_reply('{"rows": [{"v": 0, "v": 1}]}', "rows") is Flaw.NOT_JSON


@pytest.mark.parametrize("text", ["[1]", '"rows"', "1", "null", "{}", '{"rows": null}', '{"rows": {}}', '{"row": []}'])
def test_json_that_is_not_the_schema_is_told_from_what_is_not_json(text: str) -> None:
    flaw = Flaw.NOT_JSON if text == "null" else Flaw.NOT_THE_SCHEMA
    assert list_in_reply(text, "rows") is flaw


@pytest.mark.parametrize("text", [None, "", " \n\t"])
def test_an_empty_message_is_told_from_a_malformed_one(text: str | None) -> None:
    """browser-use#5148: a reasoning model spent its whole budget, and the content was null."""
    assert list_in_reply(text, "rows") is Flaw.EMPTY


def test_a_depth_bomb_is_a_flaw_like_any_other() -> None:
    assert list_in_reply('{"rows":' + "[" * 200_000, "rows") is Flaw.NOT_JSON


def test_a_message_longer_than_any_model_writes_is_not_read() -> None:
    assert list_in_reply('{"rows":["' + "x" * REPLY_CHARACTERS_MAX + '"]}', "rows") is Flaw.TOO_LONG


def test_a_number_stays_as_it_was_written_and_is_no_string() -> None:
    """mem0#5233's kind: a number of 5,000 digits neither ends the reading nor becomes infinite."""
    digits = "9" * 5_000
    read = list_in_reply(f'{{"rows": [0.70, 1e999, {digits}, "1"]}}', "rows")
    assert read == ["0.70", "1e999", digits, "1"]
    assert [type(item) for item in read] == [NumberText, NumberText, NumberText, str]


@given(st.text(st.characters(exclude_categories=())))
def test_no_message_at_all_raises(text: str) -> None:
    assert isinstance(list_in_reply(text, "rows"), (list, Flaw))
