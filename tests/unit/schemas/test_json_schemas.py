import json
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from schemas.dead_letter import DeadLetterHeaders, DeadLetterReason
from schemas.generate import DIRECTORY
from tests.unit.schemas import examples
from tests.unit.schemas.examples import INVALID, VALID, Example

SCHEMAS = sorted((DIRECTORY / "json").glob("*.schema.json"))


def validator(name: str) -> Draft202012Validator:
    schema: dict[str, Any] = json.loads((DIRECTORY / "json" / f"{name}.v1.schema.json").read_text(encoding="utf-8"))
    return Draft202012Validator(schema)


@pytest.mark.parametrize("path", SCHEMAS, ids=lambda path: path.name)
def test_every_schema_is_a_schema_of_draft_2020_12(path: Any) -> None:
    schema = json.loads(path.read_text(encoding="utf-8"))
    Draft202012Validator.check_schema(schema)
    assert schema["$schema"].endswith("draft/2020-12/schema")


@pytest.mark.parametrize("example", VALID, ids=examples.name)
def test_a_valid_example_passes_the_json_schema(example: Example) -> None:
    validator("answer-generated").validate(example.event())


@pytest.mark.parametrize("example", INVALID, ids=examples.name)
def test_the_json_schema_refuses_exactly_the_invalid_examples_it_can_see(example: Example) -> None:
    try:
        refused = not validator("answer-generated").is_valid(example.event())
    except ValueError:
        refused = False  # no JSON value: no schema ever gets to see it
    assert refused == example.expected["schema_sees"]


def test_every_example_file_is_in_the_index() -> None:
    files = {path.relative_to(examples.DIRECTORY).as_posix() for path in examples.DIRECTORY.glob("*valid/*")}
    listed = {example.file for example in (*VALID, *INVALID)}
    assert {file for file in files if not file.endswith(".headers.json")} == listed


@pytest.mark.parametrize("path", sorted(examples.DIRECTORY.glob("published/*.json")), ids=lambda path: path.name)
def test_a_published_example_passes_the_json_schema(path: Any) -> None:
    validator("attribution-computed").validate(json.loads(path.read_text(encoding="utf-8"))["value"])


@pytest.mark.parametrize("truncated", [False, True])
def test_the_headers_of_a_dead_letter_pass_their_json_schema(*, truncated: bool) -> None:
    headers = DeadLetterHeaders(
        reason=DeadLetterReason.TOO_LARGE,
        detail="2000000 bytes",
        topic="answers",
        partition=0,
        offset=7,
        timestamp=-1,
        attempts=1,
        code_version="0.1.0",
        truncated=truncated,
        original_size_bytes=2_000_000 if truncated else None,
        original_sha256="ab" * 32 if truncated else None,
    )
    validator("dead-letter-headers").validate({name: value.decode() for name, value in headers.encode()})
