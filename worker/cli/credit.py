"""`attribution-worker credit`: the exact arithmetic alone, for anyone who wants to check a number or try a rule."""

import json
import sys
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from worker.core.credit import Credit, compute_credit
from worker.core.model import nearest_float
from worker.core.policy import Grouping, Policy
from worker.core.supports import support_units

INPUT_BYTES_MAX = 64 * 2**20
KEYS = ("supports", "weights", "owners", "policy", "policy_parameters", "grouping")


class FormatError(ValueError):
    """The input is not what `credit --help` describes; the message says where and what to do."""


def credit(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="A JSON document as described above; - reads it from stdin.")
    ],
) -> None:
    """Compute exact credit from a matrix of supports: no judge, no Kafka, no database.

    The document has one row of `supports` per key point and one number per source, each within 0 and 1 (rounded to four
    decimals, half to even). Optional: `weights` (a positive integer per key point), `owners` (a name or null per
    source), `policy` (`max`, `top_k` or `rank_weighted`), `policy_parameters` (`{"k": 2}` or `{"omega": ["1", "1/2"]}`)
    and `grouping` (`source`, or `owner`: the Owen value). The result is in units of 10⁻¹² and in decimals: `credit` is
    what each source earned of the answer, `share` its part of a fixed budget, `residual` what no source supports.

    Example: `echo '{"supports": [[0.2, 1], [0.7, 0]]}' | attribution-worker credit -` gives the second source 0.45: in
    the first key point it shares the layer up to 0.2 and has the rest, 0.9, alone; the key point is half of the answer.
    """
    try:
        result = credit_of(read(file))
    except ValueError as error:
        typer.echo(f"{'<stdin>' if file == '-' else file}: {error}", err=True)
        raise typer.Exit(2) from None
    lines = ",\n".join(f'  "{key}": {json.dumps(value)}' for key, value in result.items())
    typer.echo(f"{{\n{lines}\n}}")


def read(file: str, *, bytes_max: int = INPUT_BYTES_MAX) -> bytes:
    """The bytes of a file or of stdin.

    Raises:
        FormatError: more than `bytes_max`, or nothing that can be read.
    """
    try:
        if file == "-":
            content = sys.stdin.buffer.read(bytes_max + 1)
        else:
            with Path(file).open("rb") as stream:
                content = stream.read(bytes_max + 1)
    except OSError as error:
        raise FormatError(f"cannot be read: {error.strerror}") from None
    if len(content) > bytes_max:
        raise FormatError(f"is larger than {bytes_max} bytes")
    return content


def credit_of(content: bytes) -> dict[str, object]:
    """The result for a JSON document, as the command prints it.

    Raises:
        ValueError: naming the key, row or cell that is not as it must be, and what it must be.
    """
    document = parse(content)
    unknown = [key for key in document if key not in KEYS]
    if unknown:
        raise FormatError(f"unknown key {unknown[0]!r}: the keys are {', '.join(KEYS)}")
    if "supports" not in document:
        raise FormatError('"supports" is missing: give one row per key point, one number within 0 and 1 per source')
    policy = Policy.from_parameters(
        of_type(document, "policy", str, "a name", "max"),
        of_type(document, "policy_parameters", dict, "an object", {}),
    )
    grouping = Grouping.named(of_type(document, "grouping", str, "a name", Grouping.SOURCE.value))
    weights = of_type(document, "weights", list, "a list of positive integers, one per key point", None)
    owners = of_type(document, "owners", list, "a list of names or nulls, one per source", None)
    for index, owner in enumerate(owners or ()):
        if owner is not None and not isinstance(owner, str):
            raise FormatError(f"owners[{index}] is {json_of(owner)}: it must be a name or null")
    return written(compute_credit(supports_of(document), weights, owners=owners, policy=policy, grouping=grouping))


def parse(content: bytes) -> dict[str, Any]:
    """A JSON object, strictly: numbers stay the decimals that were written, and no key comes twice."""
    try:
        document = json.loads(
            content.decode(), parse_float=Decimal, parse_constant=refuse_constant, object_pairs_hook=once_each
        )
    except UnicodeDecodeError as error:
        raise FormatError(f"is not UTF-8 (byte {error.start})") from None
    except json.JSONDecodeError as error:
        raise FormatError(f"is not JSON: {error}") from None
    except RecursionError:
        raise FormatError("is nested too deeply") from None
    if not isinstance(document, dict):
        raise FormatError('must be a JSON object like {"supports": [[0.2, 1]]}')
    return document


def supports_of(document: dict[str, Any]) -> list[list[int]]:
    rows = document["supports"]
    if not isinstance(rows, list):
        raise FormatError(f"supports is {json_of(rows)}: it must be a list of rows, one per key point")
    for row_index, row in enumerate(rows):
        if not isinstance(row, list):
            raise FormatError(f"supports[{row_index}] is {json_of(row)}: it must be a list, one number per source")
    return [
        [units_at(f"supports[{row_index}][{source_index}]", support) for source_index, support in enumerate(row)]
        for row_index, row in enumerate(rows)
    ]


def units_at(place: str, support: Any) -> int:
    try:
        return support_units(support)
    except ValueError:
        raise FormatError(f"{place} is {json_of(support)}: it must be a number within 0 and 1, like 0.7") from None


def of_type(document: dict[str, Any], key: str, kind: type, what: str, default: Any) -> Any:
    """An optional key's value; null is the same as leaving the key out."""
    value = document.get(key)
    if value is None:
        return default
    if not isinstance(value, kind):
        raise FormatError(f"{key} is {json_of(value)}: it must be {what}")
    return value


def written(result: Credit) -> dict[str, object]:
    return {
        "credit_units": result.credit_units,
        "share_units": result.share_units,
        "utility_units": result.utility_units,
        "residual_units": result.residual_units,
        "credit": [nearest_float(units) for units in result.credit_units],
        "share": [nearest_float(units) for units in result.share_units],
        "utility": nearest_float(result.utility_units),
        "residual": nearest_float(result.residual_units),
    }


def json_of(value: Any) -> str:
    text = str(value) if isinstance(value, Decimal) else json.dumps(value, default=str)
    return text if len(text) <= 60 else f"{text[:60]}…"


def refuse_constant(name: str) -> NoReturn:
    raise FormatError(f"{name} is no JSON number: a missing support must be judged, never guessed")


def once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise FormatError(f"the key {twice!r} is there twice")
    return document
