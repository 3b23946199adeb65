"""CloudEvents 1.0 around our events: types, attribute names, and the envelope of structured mode."""

from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field

from schemas.answer_generated import AnswerGenerated

ANSWER_GENERATED: Final = "attribution-worker.answer.generated"
ATTRIBUTION_COMPUTED: Final = "attribution-worker.attribution.computed"
MAJOR_VERSION: Final = "v1"
ANSWER_GENERATED_TYPE: Final = f"{ANSWER_GENERATED}.{MAJOR_VERSION}"
ATTRIBUTION_COMPUTED_TYPE: Final = f"{ATTRIBUTION_COMPUTED}.{MAJOR_VERSION}"

SPECVERSION: Final = "1.0"
STRUCTURED_CONTENT_TYPE: Final = "application/cloudevents+json"
JSON_CONTENT_TYPE: Final = "application/json"
ATTRIBUTE_PREFIX: Final = "ce_"
"""Of the Kafka header of an attribute, in binary mode."""

REQUIRED_ATTRIBUTES: Final = ("specversion", "type", "id", "source")

_Attribute = Annotated[str, Field(min_length=1)]


class AnswerGeneratedEnvelope(BaseModel):
    """Structured mode: attributes and answer in one JSON object; attributes not named here are of no concern."""

    model_config = ConfigDict(frozen=True, strict=True, extra="ignore")

    specversion: _Attribute
    type: _Attribute
    id: _Attribute
    source: _Attribute
    datacontenttype: str | None = None
    # Any: a malformed trace context is dropped, it does not cost a record.
    traceparent: Any = None
    data: AnswerGenerated | None = None
    data_base64: str | None = None
