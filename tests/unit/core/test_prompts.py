import itertools
import json
from collections.abc import Iterator, Mapping
from typing import Any

import bpe_openai
import pytest

from worker.core.fencing import encoded
from worker.core.llm import Stage
from worker.core.prompts import Again, Prompt, Refinement, Weighting, decompose_prompt, prompt_hashes, prompts_in_use

STATIC_TOKENS_MAX = 580
"""Instructions and schemas of both default calls together: what the token goal leaves for them."""

SETTINGS = list(itertools.product(Weighting, Refinement))
EVERY_PROMPT = {prompt.sha256: prompt for settings in SETTINGS for prompt in prompts_in_use(*settings)}.values()

# A changed word changes numbers: it takes a new version in the prompt's name, and its hash here.
HASHES = {
    "refined_key_points_v1": "70cd27872f9d959e52f1bae0b4cc5f2fc37e031ce80ad3293e0f4d5879b7bfb4",
    "support_v1": "280c9ef0409958fb7e421871e9df2944f0e77d2f45196aed424a35a9fdb3af06",
    "key_points_v1": "b0dcb03a9c0a7cb3ddc5c9ec74ecf6215a2f599f926e59af852b5ea0f21bb7f9",
    "dropped_v1": "b986c59d6cad7ce86bc24448dbf1fa29d8fc20bb99f74d7707cf21d3d6fe46f4",
    "refined_weighted_key_points_v1": "383546f7e56ea6097ffc29c9621c007de25af66000d7846f5ab029cdb3b90758",
    "weighted_key_points_v1": "2e63a76a344f0323612003e288f73823ee962417052a06f1756fde7c206b91c5",
}

# What both providers' structured output take (OpenAI strict mode, Anthropic output formats); neither takes lengths,
# ranges or patterns.
KEYWORDS = {"type", "properties", "required", "additionalProperties", "items", "enum"}


def schemas_within(schema: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield schema
    for child in [*schema.get("properties", {}).values(), *([schema["items"]] if "items" in schema else [])]:
        yield from schemas_within(child)


@pytest.mark.parametrize("prompt", EVERY_PROMPT, ids=lambda prompt: prompt.name)
def test_a_schema_keeps_to_what_both_providers_take(prompt: Prompt) -> None:
    for schema in schemas_within(prompt.schema):
        assert set(schema) <= KEYWORDS
        if schema["type"] == "object":
            assert schema["additionalProperties"] is False
            assert schema["required"] == list(schema["properties"])


@pytest.mark.parametrize("prompt", EVERY_PROMPT, ids=lambda prompt: prompt.name)
def test_a_prompt_has_a_sentence_for_each_way_of_asking_again(prompt: Prompt) -> None:
    expected = {Again.UNSETTLED_CELLS} if prompt.stage is Stage.SCORE else {Again.UNREADABLE, Again.NOTHING_FOUND}
    assert set(prompt.again) == expected
    assert all("\n" not in sentence for sentence in prompt.again.values())


def test_instructions_and_schemas_of_both_default_calls_stay_within_their_tokens() -> None:
    count = bpe_openai.get_encoding("o200k_base").encode_ordinary
    prompts = prompts_in_use(Weighting.UNIFORM, Refinement.FOLDED)
    assert sum(len(count(p.instructions)) + len(count(encoded(p.schema))) for p in prompts) <= STATIC_TOKENS_MAX


def test_every_prompt_is_the_one_that_its_version_names() -> None:
    assert {prompt.name: prompt.sha256 for prompt in EVERY_PROMPT} == HASHES


@pytest.mark.parametrize("settings", SETTINGS)
def test_settings_that_send_other_words_have_other_hashes(settings: tuple[Weighting, Refinement]) -> None:
    others = [prompt_hashes(*other) for other in SETTINGS if other != settings]
    assert prompt_hashes(*settings) not in others


def test_a_refine_call_of_its_own_is_the_only_one_that_is_told_what_to_drop() -> None:
    told = decompose_prompt(Weighting.UNIFORM, Refinement.FOLDED).instructions
    not_told = decompose_prompt(Weighting.UNIFORM, Refinement.OWN_CALL).instructions
    assert "Drop a key point" in told
    assert "Drop a key point" not in not_told
    assert [p.stage for p in prompts_in_use(Weighting.UNIFORM, Refinement.OWN_CALL)] == [
        Stage.DECOMPOSE,
        Stage.REFINE,
        Stage.SCORE,
    ]


def test_a_prompt_is_static_json_and_text() -> None:
    for prompt in EVERY_PROMPT:
        assert json.loads(json.dumps(prompt.schema)) == prompt.schema
        assert "{" not in prompt.instructions
