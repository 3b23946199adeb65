"""`attribution-worker credit`: the contract of its document, its result and its refusals."""

import json
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from tests.unit.core import credit_vectors
from worker.cli.credit import FormatError, credit, read

app = typer.Typer(pretty_exceptions_enable=False)
app.command()(credit)


def run(document: str | bytes | dict[str, Any], *arguments: str) -> Result:
    text = json.dumps(document) if isinstance(document, dict) else document
    return CliRunner().invoke(app, list(arguments) or ["-"], input=text)


def refusal(document: str | bytes | dict[str, Any]) -> str:
    result = run(document)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.count("\n") == 1
    assert result.stderr.startswith("<stdin>: ")
    return result.stderr


def test_supports_alone_are_enough() -> None:
    result = run('{"supports": [[0.2, 1], [0.7, 0]]}')
    assert result.exit_code == 0
    assert json.loads(result.stdout) == {
        "credit_units": [400_000_000_000, 450_000_000_000],
        "share_units": [470_588_235_294, 529_411_764_706],
        "utility_units": 850_000_000_000,
        "residual_units": 150_000_000_000,
        "credit": [0.4, 0.45],
        "share": [0.470588235294, 0.529411764706],
        "utility": 0.85,
        "residual": 0.15,
    }


def test_a_file_is_read_like_stdin(tmp_path: Path) -> None:
    file = tmp_path / "matrix.json"
    file.write_text('{"supports": [[0.2, 1], [0.7, 0]]}')
    assert run("", str(file)).stdout == run('{"supports": [[0.2, 1], [0.7, 0]]}').stdout


@pytest.mark.parametrize("vector", json.loads(credit_vectors.VECTORS_PATH.read_text(encoding="utf-8"))["vectors"])
def test_every_golden_vector_comes_out_bit_for_bit(vector: dict[str, Any]) -> None:
    document = {key: vector[key] for key in ("weights", "owners", "policy", "policy_parameters", "grouping")}
    document["supports"] = [[cell / 10_000 for cell in row] for row in vector["supports"]]
    result = json.loads(run(document).stdout)
    for key in ("credit_units", "share_units", "utility_units", "residual_units"):
        assert result[key] == vector[key]
    assert [round(number * 10**12) for number in result["credit"]] == vector["credit_units"]


def test_left_out_and_null_keys_are_the_defaults() -> None:
    supports = [[0.3, 0.7, 1], [1, 1, 0]]
    explicit = {
        "weights": [1, 1],
        "owners": [None, None, None],
        "policy": "max",
        "policy_parameters": {},
        "grouping": "source",
    }
    plain = run({"supports": supports}).stdout
    assert run({"supports": supports, **explicit}).stdout == plain
    assert run({"supports": supports, **dict.fromkeys(explicit)}).stdout == plain
    assert run({"supports": supports, "grouping": "owner"}).stdout == plain


def test_a_policys_parameters_have_their_defaults() -> None:
    for policy, parameters in {"top_k": {"k": 2}, "rank_weighted": {"omega": ["1", "1/2", "1/4"]}}.items():
        document = {"supports": [[0.3, 0.7, 1]], "policy": policy}
        assert run(document).stdout == run({**document, "policy_parameters": parameters}).stdout


def test_numbers_are_the_decimals_that_were_written() -> None:
    assert json.loads(run('{"supports": [[0.29999999999999999999999, 1e-4, 0.00005]]}').stdout)["utility_units"] == (
        300_000_000_000
    )
    assert json.loads(run('{"supports": [["0.3"]], "weights": [7]}').stdout)["credit"] == [0.3]


@pytest.mark.parametrize(
    ("document", "credit_units"),
    [({"supports": []}, []), ({"supports": [[], []]}, []), ({"supports": [], "owners": ["a", None]}, [0, 0])],
)
def test_an_answer_without_key_points_or_sources_is_all_residual(
    document: dict[str, Any], credit_units: list[int]
) -> None:
    result = json.loads(run(document).stdout)
    assert (result["credit_units"], result["residual"]) == (credit_units, 1.0)


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({}, '"supports" is missing'),
        ({"supports": None}, "supports is null: it must be a list of rows"),
        ({"supports": {}}, "supports is {}: it must be a list of rows"),
        ({"supports": [0.5]}, "supports[0] is 0.5: it must be a list"),
        ({"supports": [[0.1, 0.2], [0.1]]}, "supports[1] has 1 cells, supports[0] has 2"),
        ({"supports": [[0, 0], [0, 1.5]]}, "supports[1][1] is 1.5: it must be a number within 0 and 1"),
        ({"supports": [[0, -0.1]]}, "supports[0][1] is -0.1"),
        ({"supports": [[0, None]]}, "supports[0][1] is null"),
        ({"supports": [[True]]}, "supports[0][0] is true"),
        ({"supports": [["high"]]}, 'supports[0][0] is "high"'),
        ({"supports": [[[1]]]}, "supports[0][0] is [1]"),
        ({"supports": [[1]], "weights": [0]}, "weights[0] is 0: a weight must be a positive integer"),
        ({"supports": [[1]], "weights": [1.0]}, "weights[0] is 1.0: a weight must be"),
        ({"supports": [[1]], "weights": 1}, "weights is 1: it must be a list of positive integers"),
        ({"supports": [[1]], "weights": [1, 2]}, "weights has 2 entries for 1 key points"),
        ({"supports": [[1]], "owners": ["a", "b"]}, "owners has 2 entries for 1 sources"),
        ({"supports": [[1]], "owners": [7]}, "owners[0] is 7: it must be a name or null"),
        ({"supports": [[1]], "policy": "best"}, "'best' is unknown: it must be one of max, top_k, rank_weighted"),
        ({"supports": [[1]], "policy": 1}, "policy is 1: it must be a name"),
        ({"supports": [[1]], "policy_parameters": {"k": 2}}, "max does not know 'k'"),
        ({"supports": [[1]], "policy": "top_k", "policy_parameters": {"k": 0}}, "k is 0"),
        ({"supports": [[1]], "policy": "top_k", "policy_parameters": 2}, "policy_parameters is 2"),
        ({"supports": [[1]], "grouping": "publisher"}, "'publisher' is unknown"),
        ({"supports": [[1]], "weight": [1]}, "unknown key 'weight': the keys are supports, weights"),
    ],
)
def test_bad_input_is_refused_with_the_place_and_what_to_do(document: dict[str, Any], message: str) -> None:
    assert message in refusal(document)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is not JSON"),
        ("[[0.5]]", "must be a JSON object"),
        ('{"supports": [[NaN]]}', "NaN is no JSON number"),
        ('{"supports": [[Infinity]]}', "Infinity is no JSON number"),
        ('{"supports": [[-Infinity]]}', "-Infinity is no JSON number"),
        ('{"supports": [[1e999]]}', "supports[0][0] is"),
        ('{"supports": [[1]], "supports": [[0]]}', "the key 'supports' is there twice"),
        ('{"supports": [[1]]} {}', "is not JSON"),
        ('{"supports": ' + "[" * 200_000, "is nested too deeply"),
        ('{"supports": [[1]], "weights": [' + "9" * 5_000 + "]}", "digits"),
        (b'{"supports": "\xff"}', "is not UTF-8 (byte 14)"),
    ],
)
def test_text_that_is_no_such_document_is_refused(text: str | bytes, message: str) -> None:
    assert message in refusal(text)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    for path, why in ((tmp_path / "missing.json", "No such file or directory"), (tmp_path, "Is a directory")):
        result = run("", str(path))
        assert result.exit_code == 2
        assert result.stderr == f"{path}: cannot be read: {why}\n"


def test_input_has_a_limit(tmp_path: Path) -> None:
    file = tmp_path / "matrix.json"
    file.write_bytes(b"{}")
    assert read(str(file), bytes_max=2) == b"{}"
    with pytest.raises(FormatError, match="is larger than 1 bytes"):
        read(str(file), bytes_max=1)


def test_the_help_teaches_by_an_example_that_holds() -> None:
    assert """'{"supports": [[0.2, 1], [0.7, 0]]}'""" in (credit.__doc__ or "")
    assert json.loads(run('{"supports": [[0.2, 1], [0.7, 0]]}').stdout)["credit"][1] == 0.45
