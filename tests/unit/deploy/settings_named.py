"""Whether what a deployment sets is something that the worker reads."""

from collections.abc import Iterable

from pydantic import BaseModel

from worker.settings import Settings, variable_name


def known_settings() -> frozenset[str]:
    """Every variable of the worker's environment."""
    names: set[str] = set()
    for name, field in Settings.model_fields.items():
        section = field.annotation
        if isinstance(section, type) and issubclass(section, BaseModel):
            names |= {variable_name([name, leaf]) for leaf in section.model_fields}
        else:
            names.add(variable_name([name]))
    return frozenset(names)


def unknown_settings(names: Iterable[str]) -> list[str]:
    return sorted(set(names) - known_settings())
