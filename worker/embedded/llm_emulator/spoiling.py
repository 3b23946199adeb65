"""Replies as models spoil them: each takes a good reply and gives what a parser must survive."""

import json
from collections.abc import Callable
from typing import Any

Spoil = Callable[[str], str]

HUGE_BYTES = 2_000_000
NUL = "\0"
LONE_SURROGATE = "\ud800"


def fenced(text: str) -> str:
    return f"```json\n{text}\n```"


def amid_prose(text: str) -> str:
    return f"Here is the JSON you asked for:\n\n{fenced(text)}\n\nTell me if anything is missing."


def two_objects(text: str) -> str:
    """An injected verdict first, the real one after it (opik#8195)."""
    return f'{{"key_points":[],"drop":[],"rows":[]}}\n{text}'


def cut_short(text: str) -> str:
    """Ends in the middle although the model says that it is done."""
    return text[: max(1, len(text) // 2)]


def empty(text: str) -> str:  # noqa: ARG001  # nothing of it is left
    return ""


def not_json(text: str) -> str:  # noqa: ARG001  # nothing of it is left
    return "I am sorry, I cannot find the sources that you mention."


def wrong_schema(text: str) -> str:
    return json.dumps({"result": text})


def array_at_the_top(text: str) -> str:
    return f"[{text}]"


def nul(text: str) -> str:
    """A bare control character: no JSON any more."""
    return text.replace('":', f'{NUL}":', 1)


def nul_escaped(text: str) -> str:
    """Valid JSON, and no text that PostgreSQL takes."""
    return _in_every_string(text, "\\u0000")


def lone_surrogate(text: str) -> str:
    """Half a character between the strings."""
    return text + LONE_SURROGATE


def lone_surrogate_escaped(text: str) -> str:
    """Valid JSON, and no text that UTF-8 can write."""
    return _in_every_string(text, "\\ud800")


def huge(text: str) -> str:
    return text[:-1] + ', "note": "' + "so " * (HUGE_BYTES // 3) + '"}'


def duplicate_names(text: str) -> str:
    """Two values under one name leave open which was meant."""
    return f"{text[:-1]},{text[1:]}"


def deep(text: str) -> str:
    """More levels than a reader's stack."""
    return text[:-1] + ',"note":' + "[" * 100_000 + "]" * 100_000 + "}"


def wrong_ids(text: str) -> str:
    """Ids that nobody issued."""
    return _edited(text, row=_with_wrong_ids, drop="k999")


def missing_cells(text: str) -> str:
    """The last row is left out, and of every other its first cell."""
    return _edited(text, row=_without_first_cell, rows=lambda rows: rows[:-1])


def extra_cells(text: str) -> str:
    """A row more than was asked for, about a key point and a source that are not there."""
    extra = {"k": "k999", "support": [{"s": "s999", "quote": "invented", "v": 1}], "zero": ["s998"]}
    return _edited(text, rows=lambda rows: [*rows, extra])


def duplicate_cells(text: str) -> str:
    return _edited(text, rows=lambda rows: [*rows, *rows[:1]])


def out_of_range(text: str) -> str:
    return _edited(text, row=lambda row: _with_scores(row, 1.5))


def negative_scores(text: str) -> str:
    return _edited(text, row=lambda row: _with_scores(row, -0.3))


def nan_scores(text: str) -> str:
    """As Python writes it, and JSON does not know it."""
    return _edited(text, row=lambda row: _with_scores(row, float("nan")))


def infinite_scores(text: str) -> str:
    """1e999: valid JSON that many readers take for infinity."""
    return _edited(text, row=lambda row: _with_scores(row, 0.123456789)).replace("0.123456789", "1e999")


def scores_in_words(text: str) -> str:
    return _edited(text, row=lambda row: _with_scores(row, "high"))


def no_scores(text: str) -> str:
    return _edited(text, row=lambda row: _with_scores(row, None))


def invented_quotes(text: str) -> str:
    return _edited(text, row=lambda row: _with_quotes(row, "zyx words that no source has ever held"))


def no_quotes(text: str) -> str:
    return _edited(text, row=lambda row: _with_quotes(row, ""))


def _in_every_string(text: str, escape: str) -> str:
    """Puts an escape behind the first letter of every value that is a string."""
    return text.replace(':"', f':"{escape}').replace('["', f'["{escape}')


def _edited(
    text: str,
    *,
    row: Callable[[dict[str, Any]], dict[str, Any]] = lambda row: row,
    rows: Callable[[list[Any]], list[Any]] = lambda rows: rows,
    drop: str | None = None,
) -> str:
    """A score reply with every row edited, then the list of them; a refine reply with one more id to drop."""
    members = json.loads(text)
    if "rows" in members:
        members["rows"] = rows([row(each) for each in members["rows"]])
    if "drop" in members and drop is not None:
        members["drop"].append(drop)
    return json.dumps(members, ensure_ascii=False, separators=(",", ":"))


def _with_wrong_ids(row: dict[str, Any]) -> dict[str, Any]:
    return row | {
        "support": [cell | {"s": f"{cell['s']}99"} for cell in row["support"]],
        "zero": [f"{source_id}99" for source_id in row["zero"]],
    }


def _without_first_cell(row: dict[str, Any]) -> dict[str, Any]:
    if row["support"]:
        return row | {"support": row["support"][1:]}
    return row | {"zero": row["zero"][1:]}


def _with_scores(row: dict[str, Any], score: object) -> dict[str, Any]:
    """Every source of the row gets it, those without support too: so that there is always one."""
    cells = [cell | {"v": score} for cell in row["support"]]
    cells += [{"s": source_id, "quote": "", "v": score} for source_id in row["zero"]]
    return row | {"support": cells, "zero": []}


def _with_quotes(row: dict[str, Any], quote: str) -> dict[str, Any]:
    cells = [cell | {"quote": quote} for cell in row["support"]]
    cells += [{"s": source_id, "quote": quote, "v": 0.7} for source_id in row["zero"]]
    return row | {"support": cells, "zero": []}
