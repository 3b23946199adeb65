"""What both providers demand of the JSON Schema of a structured reply."""

from collections.abc import Mapping

UNSUPPORTED_KEYWORDS = frozenset({
    "minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems", "uniqueItems", "pattern", "oneOf", "not",
    "patternProperties", "if", "then", "else", "dependentRequired",
})  # fmt: skip
"""Refused by at least one of both."""


def schema_problem(schema: object, where: str = "root") -> str | None:
    """The first thing that strict structured output does not take, in words; None for a good schema."""
    if not isinstance(schema, Mapping):
        return f"In context={where}, a schema must be an object."
    unsupported = sorted(UNSUPPORTED_KEYWORDS & schema.keys())
    if unsupported:
        return f"In context={where}, '{unsupported[0]}' is not permitted."
    if schema.get("type") == "object":
        return _object_problem(schema, where)
    if schema.get("type") == "array":
        return schema_problem(schema.get("items"), f"{where}.items")
    return None


def _object_problem(schema: Mapping[str, object], where: str) -> str | None:
    if schema.get("additionalProperties") is not False:
        return f"In context={where}, 'additionalProperties' is required to be supplied and to be false."
    properties = schema.get("properties")
    if not isinstance(properties, Mapping):
        return f"In context={where}, an object must have properties."
    required = schema.get("required")
    if not isinstance(required, list) or set(required) != set(properties):
        return f"In context={where}, 'required' must be an array including every key in properties."
    problems = (schema_problem(value, f"{where}.{name}") for name, value in properties.items())
    return next((problem for problem in problems if problem), None)
