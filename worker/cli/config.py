"""`attribution-worker config`: the effective configuration."""

import json
from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated, NamedTuple

import typer
from pydantic import BaseModel, SecretStr
from pydantic_core import to_jsonable_python
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from worker.settings import Settings, load_settings, variable_name


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
        ConfigFormat, typer.Option("--format", help="env prints a commented file of every setting and its default.")
    ] = ConfigFormat.TABLE,
) -> None:
    """Show every setting, its value and what it is for; secrets are redacted.

    A changed value is marked. Unknown ATTRIBUTION_ variables and settings that contradict each other are refused here
    exactly as `run` refuses them, so this is the way to check a deployment's environment.
    """
    match output:
        case ConfigFormat.TABLE:
            Console(highlight=False).print(table_of(rows_of(load_settings())))
        case ConfigFormat.JSON:
            print(json.dumps({row.variable: row.value for row in rows_of(load_settings())}, indent=2))  # noqa: T201 — plain output for a program
        case ConfigFormat.ENV:
            print(environment_file(), end="")  # noqa: T201 — plain output for a file


def rows_of(settings: Settings) -> Iterator[Row]:
    """Every setting, section by section."""
    for section, value in settings:
        if isinstance(value, BaseModel):
            purpose = (type(value).__doc__ or "").splitlines()[0]
            for name, leaf in value:
                field = type(value).model_fields[name]
                changed = leaf != field.get_default()
                yield Row(
                    section, purpose, variable_name([section, name]), shown(leaf), changed, field.description or ""
                )
        else:
            field = Settings.model_fields[section]
            changed = value != field.get_default()
            yield Row("", "Everything else.", variable_name([section]), shown(value), changed, field.description or "")


def shown(value: object) -> str:
    if isinstance(value, SecretStr):
        return "**********"
    if value is None:
        return ""
    plain = to_jsonable_python(value)
    return plain if isinstance(plain, str) else json.dumps(plain)


def table_of(rows: Iterator[Row]) -> Table:
    table = Table(title="Effective configuration (* = not the default)", title_justify="left")
    table.add_column("variable", no_wrap=True)
    table.add_column("value", overflow="fold")
    table.add_column("what for", overflow="fold")
    section: str | None = None
    for row in rows:
        if section not in (None, row.section):
            table.add_section()
        section = row.section
        value = escape(row.value)
        table.add_row(row.variable, f"[bold]{value}[/] *" if row.changed else value, escape(row.description))
    return table


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
        value = "postgresql://user:password@127.0.0.1:5432/attribution" if row.value == "**********" else row.value
        lines += [f"# {row.description}", f"#{row.variable}={value}"]
    return "\n".join(lines) + "\n"
