"""`attribution-worker config`: the effective configuration."""

import json
import re
from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Annotated, NamedTuple, assert_never

import typer
from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo
from pydantic_core import to_jsonable_python
from rich.markup import escape

from worker.cli.terminal import console, plain
from worker.settings import FILE_SUFFIX, Settings, is_secret, load_settings, variable_name

REDACTED = "**********"
CREDENTIALS = re.compile(r"(://)[^/@\s]+@")
"""A user and password within an address."""


class ConfigFormat(StrEnum):
    TABLE = "table"
    JSON = "json"
    ENV = "env"


class Row(NamedTuple):
    """One setting as shown; a secret's value is already redacted."""

    section: str
    purpose: str
    variable: str
    value: str
    changed: bool
    description: str


def config(
    output: Annotated[
        ConfigFormat,
        typer.Option(
            "--format",
            help="table: each value with what it is for; json: name and value; env: a commented file of the defaults.",
        ),
    ] = ConfigFormat.TABLE,
) -> None:
    """Show every setting, its value and what it is for; secrets are redacted.

    A setting is an environment variable: ATTRIBUTION_, the section, two underscores, the name. Lists and tables are
    JSON; an empty value is the default. A secret may be in a file instead: the variable with _FILE behind it names it.
    Unknown ATTRIBUTION_ variables and settings that contradict each other are
    refused here exactly as `run` refuses them, so this is the way to check a deployment's environment.

    Example: `ATTRIBUTION_INTAKE__RECORDS_MAX=50 attribution-worker config`

    Example: `attribution-worker config --format env > .env`. No command reads that file by itself; for a shell:
    `set -a; . ./.env; set +a`
    """
    match output:
        case ConfigFormat.TABLE:
            for line in table_lines(rows_of(load_settings())):
                console.print(line, soft_wrap=True)
        case ConfigFormat.JSON:
            values = {row.variable: row.value for row in rows_of(load_settings())}
            console.out(json.dumps(values, indent=2), highlight=False)
        case ConfigFormat.ENV:
            console.out(environment_file(), end="", highlight=False)
        case _:
            assert_never(output)


def rows_of(settings: Settings) -> Iterator[Row]:
    """Every setting, section by section."""
    for section, value in settings:
        if isinstance(value, BaseModel):
            purpose = (type(value).__doc__ or "").splitlines()[0]
            for name, leaf in value:
                field = type(value).model_fields[name]
                changed = leaf != field.get_default()
                variable = variable_name([section, name])
                yield Row(section, purpose, variable, shown(leaf), changed, _described(field, variable))
        else:
            field = Settings.model_fields[section]
            changed = value != field.get_default()
            yield Row("", "Everything else.", variable_name([section]), shown(value), changed, field.description or "")


def _described(field: FieldInfo, variable: str) -> str:
    described = field.description or ""
    return f"{described}; or {variable}{FILE_SUFFIX}, a file with it" if is_secret(field) else described


def shown(value: object) -> str:
    if isinstance(value, SecretStr):
        return REDACTED
    if value is None:
        return ""
    jsonable = to_jsonable_python(value)
    text = jsonable if isinstance(jsonable, str) else json.dumps(jsonable)
    return CREDENTIALS.sub(rf"\1{REDACTED}@", text)


def table_lines(rows: Iterable[Row]) -> Iterator[str]:
    """A line per setting as the environment has it, and what it is for; no columns: names take half a terminal."""
    yield "Effective configuration; changed settings have a *, the others their default."
    section: str | None = None
    for row in rows:
        if section != row.section:
            section = row.section
            yield f"\n[bold]{escape(row.purpose)}[/]"
        yield f"{'*' if row.changed else ' '} {row.variable}=[bold]{plain(row.value)}[/]"
        yield f"      [dim]{escape(row.description)}[/]"


def environment_file() -> str:
    """Every setting with its default, commented out: `.env.example`."""
    lines = [
        "# Every setting of the worker, its default and what it is for. Generated: `make generate` writes it anew.",
        "# Uncomment what you change. Unknown names and contradictions are refused at start.",
    ]
    section: str | None = None
    for row in rows_of(Settings.model_construct()):
        if row.section != section:
            section = row.section
            lines += ["", f"# {row.purpose}"]
        value = "postgresql://user:password@127.0.0.1:5432/attribution" if row.value == REDACTED else row.value
        lines += [f"# {row.description}", f"#{row.variable}={value}"]
    return "\n".join(lines) + "\n"
