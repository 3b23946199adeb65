"""What is read from bodies: the same for every caller, and never an exception."""

import json
from collections.abc import Callable
from typing import Any

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from tests.support.llm import score_request
from worker.adapters.llm.anthropic import AnthropicProvider
from worker.adapters.llm.bodies import body_text
from worker.adapters.llm.openai import OpenAIProvider
from worker.core.llm import Completion, CompletionUsage, Finish, UsageSource

REQUEST = score_request()
PROVIDERS = {
    kind.name: kind(
        httpx2.AsyncClient(trust_env=False),
        model="m",
        api_key=SecretStr("k"),
        base_url="http://127.0.0.1:9",
        count_tokens=lambda text: len(text.split()),
    )
    for kind in (OpenAIProvider, AnthropicProvider)
}


def openai_read(finish: object = "stop", **changes: Any) -> Completion:
    choice = {"finish_reason": finish, "message": {"content": changes.pop("content", "{}")}}
    usage = {"prompt_tokens": 100, "completion_tokens": 10, **changes.pop("usage", {})}
    return PROVIDERS["openai"].read(json.dumps({"id": "c", "choices": [choice], "usage": usage}), REQUEST)


def anthropic_read(stop: object = "end_turn", **changes: Any) -> Completion:
    content = changes.pop("content", [{"type": "text", "text": "{}"}])
    usage = {"input_tokens": 100, "output_tokens": 10, **changes.pop("usage", {})}
    body = {"id": "m", "content": content, "stop_reason": stop, "usage": usage}
    return PROVIDERS["anthropic"].read(json.dumps(body), REQUEST)


def test_openai_counts_cached_tokens_within_the_prompt_and_reasoning_within_the_completion() -> None:
    """litellm#14849, ODS#2519: costs wrong by 2.6 to 6.6 times."""
    details = {
        "prompt_tokens_details": {"cached_tokens": 64, "cache_write_tokens": 20},
        "completion_tokens_details": {"reasoning_tokens": 7},
    }
    assert openai_read(usage=details).usage == CompletionUsage(
        input_tokens=16, output_tokens=3, cache_read_tokens=64, cache_write_tokens=20, reasoning_tokens=7
    )


def test_anthropic_counts_them_apart() -> None:
    usage = {
        "cache_read_input_tokens": 64,
        "cache_creation_input_tokens": 20,
        "output_tokens_details": {"thinking_tokens": 7},
    }
    assert anthropic_read(usage=usage).usage == CompletionUsage(
        input_tokens=100, output_tokens=3, cache_read_tokens=64, cache_write_tokens=20, reasoning_tokens=7
    )


def test_parts_never_exceed_their_whole() -> None:
    usage = openai_read(
        usage={
            "prompt_tokens_details": {"cached_tokens": 500},
            "completion_tokens_details": {"reasoning_tokens": 500},
        }
    ).usage
    assert (usage.input_tokens, usage.cache_read_tokens, usage.output_tokens, usage.reasoning_tokens) == (0, 100, 0, 10)


@pytest.mark.parametrize(
    "usage",
    [
        {"prompt_tokens": None},
        {"prompt_tokens": -1},
        {"prompt_tokens": True},
        {"prompt_tokens": "100"},
        {"prompt_tokens": 1.5},
        {"prompt_tokens": 10**12},
        {"prompt_tokens": 0},
        {"completion_tokens": 0},
    ],
)
def test_a_count_that_makes_no_sense_is_replaced_by_our_own(usage: dict[str, object]) -> None:
    assert openai_read(usage=usage).usage.source is UsageSource.ESTIMATED


def test_what_was_cut_before_it_said_anything_is_estimated_at_its_cap() -> None:
    usage = openai_read("length", content=None, usage={"prompt_tokens": 0}).usage
    assert usage.output_tokens == REQUEST.output_tokens_max


def test_what_was_refused_before_it_said_anything_is_estimated_at_nothing() -> None:
    usage = openai_read("content_filter", content=None, usage={"prompt_tokens": 0}).usage
    assert (usage.output_tokens, usage.source) == (0, UsageSource.ESTIMATED)


@pytest.mark.parametrize("finish", ["eos", "STOP", "", None, 1, ["stop"], {"stop": 1}])
def test_an_end_that_is_not_known_is_no_success(finish: object) -> None:
    """experiential#967, litellm#24287: an unheard-of reason was taken for `stop`."""
    assert openai_read(finish).finish is Finish.UNKNOWN
    assert anthropic_read(finish).finish is Finish.UNKNOWN


def test_a_refusal_is_one_whatever_the_finish_reason() -> None:
    choice = {"finish_reason": "stop", "message": {"content": None, "refusal": "no"}}
    assert PROVIDERS["openai"].read(json.dumps({"choices": [choice]}), REQUEST).finish is Finish.REFUSED


def test_anthropic_text_is_joined_and_thinking_is_not_text() -> None:
    content = [
        {"type": "thinking", "thinking": "hm", "text": "not this"},
        {"type": "text", "text": '{"a":'},
        {"type": "text", "text": "1}"},
    ]
    assert anthropic_read(content=content).text == '{"a":1}'


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
BODIES = st.fixed_dictionaries(
    {},
    optional=dict.fromkeys(("id", "choices", "content", "stop_reason", "usage", "error"), JSON)
    | {"choices": st.lists(st.fixed_dictionaries({}, optional={"message": JSON, "finish_reason": JSON}), max_size=2)},
).map(json.dumps)


@pytest.mark.parametrize("name", PROVIDERS)
@given(raw=st.text(max_size=100) | BODIES)
def test_any_body_reads_as_something_and_the_same_twice(name: str, raw: str) -> None:
    completion = PROVIDERS[name].read(raw, REQUEST)
    assert completion == PROVIDERS[name].read(raw, REQUEST)
    assert completion.raw == raw
    assert min(completion.usage.input_tokens, completion.usage.output_tokens) >= 0


@pytest.mark.parametrize("raw", ["[" * 200_000, '{"a":' * 100_000, "1" * 10_000, "NaN", "", "null", "\ud800"])
@pytest.mark.parametrize("name", PROVIDERS)
def test_hostile_bodies_are_no_completion(name: str, raw: str) -> None:
    assert PROVIDERS[name].read(raw, REQUEST).finish is Finish.UNKNOWN


def test_a_body_is_text_that_a_database_takes() -> None:
    text = body_text(b'{"a":"\xff\x00\xed\xa0\x80"}')
    assert "\0" not in text
    text.encode()


@given(st.binary(max_size=50))
def test_any_bytes_are_such_text(content: bytes) -> None:
    assert "\0" not in body_text(content)
    body_text(content).encode()


def test_valid_bodies_are_left_as_they_are() -> None:
    said: Callable[[str], bytes] = lambda text: json.dumps({"a": text}, ensure_ascii=False).encode()  # noqa: E731
    assert json.loads(body_text(said("調和 😀 \0"))) == {"a": "調和 😀 \0"}


@pytest.mark.parametrize(("said", "kept"), [("chatcmpl-1", "chatcmpl-1"), ("a\0b", None), ("\ud800", None), (7, None)])
def test_only_a_plain_id_is_kept(said: object, kept: str | None) -> None:
    assert PROVIDERS["openai"].read(json.dumps({"id": said}), REQUEST).provider_request_id == kept
