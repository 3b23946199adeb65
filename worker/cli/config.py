"""`attribution-worker config`: the effective configuration."""

from pydantic import BaseModel
from rich.console import Console
from rich.table import Table

from worker.settings import load_settings, variable_name


def config() -> None:
    """Show every setting, its value and what it is for; secrets are redacted.

    A changed value is marked. Unknown ATTRIBUTION_ variables and settings that contradict each other are refused here
    exactly as `run` refuses them, so this is the way to check a deployment's environment.
    """
    settings = load_settings()
    table = Table(title="Effective configuration", title_justify="left")
    table.add_column("variable", overflow="fold")
    table.add_column("value", overflow="fold")
    table.add_column("what for", overflow="fold")
    for name in type(settings).model_fields:
        value = getattr(settings, name)
        if isinstance(value, BaseModel):
            add_section(table, name, value)
        else:
            table.add_row(variable_name([name]), str(value), "")
    Console().print(table)


def add_section(table: Table, section: str, values: BaseModel) -> None:
    for name, field in type(values).model_fields.items():
        value = getattr(values, name)
        changed = name in values.model_fields_set and value != field.get_default()
        table.add_row(
            variable_name([section, name]), f"[bold]{value}[/] *" if changed else str(value), field.description or ""
        )
    table.add_section()
