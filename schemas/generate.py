"""Write the JSON Schemas and the AsyncAPI document from the models, or check that the committed ones are theirs."""

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel

from schemas.answer_generated import AnswerGenerated
from schemas.asyncapi import asyncapi_document, dead_letter_headers_schema
from schemas.attribution_computed import AttributionComputed

DIRECTORY: Final = Path(__file__).parent
REPAIR_COMMAND: Final = "python -m schemas.generate"
JSON_SCHEMA_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_SUFFIX: Final = ".schema.json"


def generated_files() -> dict[str, str]:
    """The text of every generated file by its path below `schemas/`."""
    schemas = {
        "answer-generated.v1": _model_schema(AnswerGenerated),
        "attribution-computed.v1": _model_schema(AttributionComputed),
        "dead-letter-headers.v1": dead_letter_headers_schema(),
    }
    files = {f"json/{name}{_SUFFIX}": _text(_identified(name, schema)) for name, schema in schemas.items()}
    return {**files, "asyncapi.json": _text(asyncapi_document())}


def stale_files(directory: Path) -> list[str]:
    """Paths below `directory` that differ from what the models say, or that no model stands behind any more."""
    generated = generated_files()
    differing = [
        path
        for path, text in generated.items()
        if not (directory / path).is_file() or (directory / path).read_text(encoding="utf-8") != text
    ]
    committed = {path.relative_to(directory).as_posix() for path in directory.glob(f"json/*{_SUFFIX}")}
    return sorted([*differing, *(committed - generated.keys())])


def write_files(directory: Path) -> None:
    """Make `directory` hold exactly the generated files."""
    for path in stale_files(directory):
        (directory / path).unlink(missing_ok=True)
    for path, text in generated_files().items():
        (directory / path).parent.mkdir(parents=True, exist_ok=True)
        (directory / path).write_text(text, encoding="utf-8")


def main(arguments: list[str] | None = None, directory: Path = DIRECTORY) -> int:
    parser = argparse.ArgumentParser(prog=REPAIR_COMMAND, description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a file is not up to date")
    if not parser.parse_args(arguments).check:
        write_files(directory)
        return 0
    stale = stale_files(directory)
    for path in stale:
        sys.stderr.write(f"{directory / path} is not what the models say; `{REPAIR_COMMAND}` repairs it\n")
    return 1 if stale else 0


def _model_schema(model: type[BaseModel]) -> dict[str, Any]:
    return model.model_json_schema(mode="validation")


def _identified(name: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"$schema": JSON_SCHEMA_DIALECT, "$id": f"urn:attribution-worker:schema:{name}", **schema}


def _text(document: Mapping[str, Any]) -> str:
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    sys.exit(main())
