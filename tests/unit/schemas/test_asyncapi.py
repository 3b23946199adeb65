import json
from collections.abc import Iterator
from typing import Any

from jsonschema import Draft202012Validator

from schemas.asyncapi import asyncapi_document
from schemas.generate import generated_files
from worker.codec.replays import replayed_headers
from worker.settings import KafkaSettings

DOCUMENT = asyncapi_document()


def references(part: Any) -> Iterator[str]:
    if isinstance(part, dict):
        if isinstance(part.get("$ref"), str):
            yield part["$ref"]
        for child in part.values():
            yield from references(child)
    elif isinstance(part, list):
        for child in part:
            yield from references(child)


def resolved(reference: str) -> Any:
    part: Any = DOCUMENT
    for name in reference.removeprefix("#/").split("/"):
        part = part[name]
    return part


def test_every_reference_leads_somewhere_in_the_document() -> None:
    found = list(references(DOCUMENT))
    assert found
    assert all(reference.startswith("#/") and isinstance(resolved(reference), dict) for reference in found)


def test_the_topics_are_those_the_worker_uses_by_default() -> None:
    kafka = KafkaSettings()
    addresses = {name: channel["address"] for name, channel in DOCUMENT["channels"].items()}
    assert addresses == {
        "answers": kafka.answers_topic,
        "attributions": kafka.attributions_topic,
        "deadLetters": kafka.dead_letter_topic,
    }


def test_every_channel_has_one_operation_and_every_message_a_kafka_key_and_headers() -> None:
    operations = [operation["channel"]["$ref"] for operation in DOCUMENT["operations"].values()]
    assert sorted(operations) == sorted(f"#/channels/{name}" for name in DOCUMENT["channels"])
    for message in DOCUMENT["components"]["messages"].values():
        assert message["bindings"]["kafka"]["key"]["type"] == "string"
        assert "headers" in message


def test_the_schemas_in_it_are_the_json_schemas() -> None:
    for model, file in (("AnswerGenerated", "answer-generated"), ("AttributionComputed", "attribution-computed")):
        published = json.loads(
            generated_files()[f"json/{file}.v1.schema.json"].replace("#/$defs/", "#/components/schemas/")
        )
        assert DOCUMENT["components"]["schemas"][model]["properties"] == published["properties"]
        for name, definition in published["$defs"].items():
            assert DOCUMENT["components"]["schemas"][name] == definition


def test_the_header_that_a_replay_writes_is_told_where_it_can_be_met() -> None:
    (name, count), *_ = replayed_headers(())
    assert count is not None
    of_answers = DOCUMENT["components"]["messages"]["answerGenerated"]["headers"]
    for headers in (of_answers, DOCUMENT["components"]["schemas"]["DeadLetterHeaders"]):
        Draft202012Validator(headers["properties"][name]).validate(count.decode())
        assert name not in headers.get("required", [])
