"""The AsyncAPI 3.0 document: three channels, who reads and writes them, and what their records look like."""

from typing import Any, Final

from pydantic.json_schema import models_json_schema

from schemas.answer_generated import AnswerGenerated
from schemas.attribution_computed import AttributionComputed
from schemas.cloud_events import (
    ANSWER_GENERATED_TYPE,
    ATTRIBUTE_PREFIX,
    ATTRIBUTION_COMPUTED_TYPE,
    JSON_CONTENT_TYPE,
    SPECVERSION,
    STRUCTURED_CONTENT_TYPE,
)
from schemas.dead_letter import HEADER_PREFIX, REPLAY_HEADER, REPLAYS_MAX, DeadLetterHeaders

ANSWERS_TOPIC: Final = "answers"
ATTRIBUTIONS_TOPIC: Final = "attributions"
DEAD_LETTER_TOPIC: Final = "answers.dead-letter"
"""The topics' names by default; each is a setting of the worker."""

KAFKA_BINDING_VERSION: Final = "0.5.0"

_Json = dict[str, Any]


def asyncapi_document() -> _Json:
    """The document as JSON values; the schemas in it are those of `schemas/json`."""
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "attribution-worker",
            "version": "1.0.0",
            "description": (
                "Answers of a generative search engine in, exact credit per source out. Readers ignore fields they do "
                "not know; a field is added within a major version, never changed or taken away."
            ),
            "license": {"name": "Apache-2.0"},
        },
        "defaultContentType": JSON_CONTENT_TYPE,
        "channels": {
            "answers": _channel(ANSWERS_TOPIC, "answerGenerated", "Answer events; a null value is skipped."),
            "attributions": _channel(ATTRIBUTIONS_TOPIC, "attributionComputed", "One event per settled revision."),
            "deadLetters": _channel(DEAD_LETTER_TOPIC, "deadLetter", "Records set aside, replayable as they were."),
        },
        "operations": {
            "receiveAnswer": _operation("receive", "answers", "answerGenerated"),
            "publishAttribution": _operation("send", "attributions", "attributionComputed"),
            "publishDeadLetter": _operation("send", "deadLetters", "deadLetter"),
        },
        "components": {
            "messages": {
                "answerGenerated": _answer_generated(),
                "attributionComputed": _attribution_computed(),
                "deadLetter": _dead_letter(),
            },
            "schemas": _schemas(),
        },
    }


def dead_letter_headers_schema() -> _Json:
    """The added headers as they are on the wire: each one text."""
    fields = DeadLetterHeaders.model_json_schema()
    properties = {
        HEADER_PREFIX + name: _as_text(field, fields["$defs"]) for name, field in fields["properties"].items()
    }
    properties[REPLAY_HEADER] = _replay_header()
    return {
        "title": "DeadLetterHeaders",
        "description": fields["description"],
        "type": "object",
        "properties": properties,
        "required": [HEADER_PREFIX + name for name in fields["required"]],
        "additionalProperties": True,
    }


def _channel(topic: str, message: str, description: str) -> _Json:
    return {
        "address": topic,
        "description": description,
        "messages": {message: {"$ref": f"#/components/messages/{message}"}},
        "bindings": {"kafka": {"topic": topic, "bindingVersion": KAFKA_BINDING_VERSION}},
    }


def _operation(action: str, channel: str, message: str) -> _Json:
    return {
        "action": action,
        "channel": {"$ref": f"#/channels/{channel}"},
        "messages": [{"$ref": f"#/channels/{channel}/messages/{message}"}],
    }


def _answer_generated() -> _Json:
    return {
        "name": ANSWER_GENERATED_TYPE,
        "title": "An answer was generated",
        "summary": f"CloudEvents {SPECVERSION} in binary or structured ({STRUCTURED_CONTENT_TYPE}) mode, or bare JSON.",
        "contentType": JSON_CONTENT_TYPE,
        "headers": _answer_headers(),
        "payload": {"$ref": "#/components/schemas/AnswerGenerated"},
        "bindings": _kafka_key("Any; the tenant and answer id keep the events of one answer in order."),
    }


def _attribution_computed() -> _Json:
    return {
        "name": ATTRIBUTION_COMPUTED_TYPE,
        "title": "An attribution was computed",
        "summary": (
            f"CloudEvents {SPECVERSION} in binary mode. May come more than once: ce_id is a UUIDv5 over tenant, "
            "answer id and revision, so an id seen before is a repetition."
        ),
        "contentType": JSON_CONTENT_TYPE,
        "headers": _cloud_event_headers(ATTRIBUTION_COMPUTED_TYPE, required=True),
        "payload": {"$ref": "#/components/schemas/AttributionComputed"},
        "bindings": _kafka_key('The JSON array of tenant and answer id in ASCII, like ["default","a-1"].'),
    }


def _dead_letter() -> _Json:
    return {
        "name": "dead-letter",
        "title": "A record was set aside",
        "summary": "Key, value and headers as they were consumed, and behind them headers that say why.",
        "contentType": "application/octet-stream",
        "headers": {"$ref": "#/components/schemas/DeadLetterHeaders"},
        "payload": {"description": "The bytes as they were consumed."},
        "bindings": _kafka_key("As it was consumed."),
    }


def _answer_headers() -> _Json:
    schema = _cloud_event_headers(ANSWER_GENERATED_TYPE, required=False)
    schema["properties"][REPLAY_HEADER] = _replay_header()
    return schema


def _replay_header() -> _Json:
    return {
        "type": "string",
        "pattern": "^[0-9]+$",
        "description": (
            "How often the record was replayed from the dead letters; written by a replay, behind the record's own "
            f"headers, and never by a producer. What is no number from 0 to {REPLAYS_MAX} counts as 0."
        ),
    }


def _cloud_event_headers(event_type: str, *, required: bool) -> _Json:
    attributes: _Json = {
        "specversion": {"type": "string", "const": SPECVERSION},
        "type": {"type": "string", "const": event_type},
        "source": {"type": "string", "minLength": 1},
        "id": {"type": "string", "minLength": 1},
        "time": {"type": "string", "format": "date-time"},
    }
    headers: _Json = {ATTRIBUTE_PREFIX + name: schema for name, schema in attributes.items()}
    headers["content-type"] = {"type": "string"}
    headers["traceparent"] = {"type": "string", "description": "W3C Trace Context; carried on from the answer event"}
    schema: _Json = {"type": "object", "properties": headers}
    if required:
        schema["required"] = [name for name in headers if name != "traceparent"]
    return schema


def _kafka_key(description: str) -> _Json:
    key = {"type": "string", "description": description}
    return {"kafka": {"key": key, "bindingVersion": KAFKA_BINDING_VERSION}}


def _schemas() -> _Json:
    _, schema = models_json_schema(
        [(AnswerGenerated, "validation"), (AttributionComputed, "validation")],
        ref_template="#/components/schemas/{model}",
    )
    definitions: _Json = schema["$defs"]
    return {**definitions, "DeadLetterHeaders": dead_letter_headers_schema()}


def _as_text(field: _Json, definitions: _Json) -> _Json:
    text: _Json = {"type": "string"}
    if "description" in field:
        text["description"] = field["description"]
    shape = next((option for option in field.get("anyOf", [field]) if option.get("type") != "null"), field)
    if "$ref" in shape:
        text["enum"] = definitions[shape["$ref"].rpartition("/")[2]]["enum"]
    elif shape["type"] == "integer":
        text["pattern"] = "^[0-9]+$" if shape.get("minimum") == 0 else "^-?[0-9]+$"
    elif shape["type"] == "boolean":
        text["enum"] = ["true", "false"]
    elif "pattern" in shape:
        text["pattern"] = shape["pattern"]
    return text
