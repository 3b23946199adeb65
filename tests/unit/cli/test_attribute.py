"""`attribution-worker attribute`: what comes out for what goes in."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.command_line import RunHere
from worker.demo.first_run import sample_events

SAMPLES = b"\n".join(sample_events())


def event(answer_id: str = "a-1", **changes: object) -> dict[str, Any]:
    """Its one key point is stated whole by `whole`, by half of its words by `half`, and not at all by `other`."""
    return {
        "answer_id": answer_id,
        "occurred_at": "2026-06-01T12:00:00Z",
        "query": "What holds the valley?",
        "answer": "Copper mines employ villagers.",
        "sources": [
            {"source_id": "half", "text": "Copper mines were closed.", "owner_id": "north"},
            {"source_id": "whole", "text": "Copper mines employ villagers.", "owner_id": "south"},
            {"source_id": "other", "text": "Rain fell all week.", "owner_id": "south"},
        ],
        **changes,
    }


def lines(*events: dict[str, Any]) -> bytes:
    return b"\n".join(json.dumps(one).encode() for one in events)


def attributed(run: RunHere, *arguments: str, stdin: bytes) -> list[dict[str, Any]]:
    ran = run("attribute", "-", "--format", "json", *arguments, stdin=stdin)
    assert (ran.exit_code, ran.stderr) == (0, "")
    return [json.loads(line) for line in ran.stdout.splitlines()]


def credits_of(line: dict[str, Any]) -> dict[str, int]:
    return {source["source_id"]: source["credit_units"] for source in line["sources"]}


def test_a_json_line_has_what_is_promised_and_numbers_that_agree(run: RunHere) -> None:
    [line] = attributed(run, stdin=lines(event()))
    assert {"answer_id", "status", "utility", "residual", "method", "sources", "key_points", "usage"} <= line.keys()
    assert (line["answer_id"], line["tenant"], line["status"]) == ("a-1", "default", "attributed")
    assert line["utility"] == 1.0
    assert line["residual"] == 0.0
    [key_point] = line["key_points"]
    assert {"text", "weight", "coverage", "supports", "quotes"} <= key_point.keys()
    assert key_point["text"] == "Copper mines employ villagers."
    assert key_point["supports"] == {"half": 0.5, "whole": 1.0, "other": 0.0}
    assert key_point["quotes"]["whole"] == "Copper mines employ villagers."
    assert set(key_point["quotes"]) == {"half", "whole"}
    assert line["usage"]["calls"] == 0
    assert line["usage"]["cost_usd"] == "0"
    fields = {"source_id", "owner_id", "credit_units", "share_units", "credit", "share"}
    assert all(set(source) == fields for source in line["sources"])
    # The layer up to 0.5 is shared by the two that reach it, the rest is the other's alone.
    assert [(source["credit"], source["share"]) for source in line["sources"]] == [(0.25, 0.25), (0.75, 0.75), (0, 0)]
    assert sum(source["share_units"] for source in line["sources"]) == 10**12
    assert line["method"]["policy"] == "max"
    assert len(line["method"]["method_hash"]) == 64


@pytest.mark.parametrize(
    ("options", "half", "whole"),
    [
        (["--policy", "max"], "1/4", "3/4"),
        # Supports ½ and 1: Σ Δ g = ½ · 1 + ½ · g(2), scaled back to the coverage of 1.
        (["--policy", "top_k", "--k", "2"], "1/3", "2/3"),
        (["--policy", "top_k", "--k", "1"], "1/4", "3/4"),
        (["--policy", "rank_weighted", "--omega", "1,1/2,1/4"], "3/10", "7/10"),
        (["--policy", "rank_weighted", "--omega", "1, 1"], "1/3", "2/3"),
    ],
)
def test_a_policy_divides_as_its_formula_says(run: RunHere, options: list[str], half: str, whole: str) -> None:
    [line] = attributed(run, *options, stdin=lines(event()))
    exact = [10**12 * int(part.split("/")[0]) / int(part.split("/")[1]) for part in (half, whole)]
    assert [credits_of(line)["half"], credits_of(line)["whole"]] == pytest.approx(exact, abs=1)
    assert sum(credits_of(line).values()) == 10**12


def test_grouping_by_owner_pays_an_owner_once_for_its_copies(run: RunHere) -> None:
    text = "Copper mines employ villagers."
    sources = [
        {"source_id": "copy-1", "text": text, "owner_id": "north"},
        {"source_id": "copy-2", "text": text, "owner_id": "north"},
        {"source_id": "single", "text": text, "owner_id": "south"},
    ]
    [plain] = attributed(run, stdin=lines(event(sources=sources)))
    [grouped] = attributed(run, "--grouping", "owner", stdin=lines(event(sources=sources)))
    assert sorted(credits_of(plain).values()) == [333_333_333_333, 333_333_333_333, 333_333_333_334]
    assert credits_of(grouped) == {"copy-1": 250_000_000_000, "copy-2": 250_000_000_000, "single": 500_000_000_000}


def test_the_environment_sets_the_method_and_an_option_overrides_it(run: RunHere) -> None:
    def policy_of(*arguments: str) -> str:
        ran = run("attribute", "-", "--format", "json", *arguments, stdin=lines(event()), env=by_environment)
        policy: str = json.loads(ran.stdout)["method"]["policy"]
        return policy

    by_environment = {"ATTRIBUTION_CREDIT__POLICY": "top_k"}
    assert policy_of() == "top_k"
    assert policy_of("--k", "3") == "top_k"
    assert policy_of("--policy", "rank_weighted") == "rank_weighted"


def test_output_keeps_the_order_of_the_input(run: RunHere) -> None:
    many = [event(f"a-{number}") for number in range(50)]
    assert [line["answer_id"] for line in attributed(run, stdin=lines(*many))] == [f"a-{n}" for n in range(50)]


def test_files_and_stdin_are_read_in_the_order_they_are_named(run: RunHere, tmp_path: Path) -> None:
    for name in ("one", "three"):
        (tmp_path / name).write_bytes(lines(event(name)))
    ran = run(
        "attribute", str(tmp_path / "one"), "-", str(tmp_path / "three"), "--format", "json", stdin=lines(event("two"))
    )
    assert [json.loads(line)["answer_id"] for line in ran.stdout.splitlines()] == ["one", "two", "three"]


def test_a_bad_line_is_named_with_field_and_reason_and_the_others_are_done(run: RunHere, tmp_path: Path) -> None:
    file = tmp_path / "answers.jsonl"
    no_text = event("a-2", sources=[{"source_id": "s1", "text": " "}])
    file.write_bytes(
        b"\n".join([lines(event("a-1")), b"nonsense", lines(no_text), b"", lines(event("a-3", occurred_at="noon"))])
        + b"\n"
        + lines({"schema_version": 2, **event("a-4")}, event("a-5"))
    )
    ran = run("attribute", str(file), "--format", "json")
    assert ran.exit_code == 1
    assert [json.loads(line)["answer_id"] for line in ran.stdout.splitlines()] == ["a-1", "a-5"]
    told = ran.stderr.splitlines()
    assert [line.split(": ")[:2] for line in told[:-1]] == [
        [f"{file}:2", "not_json"],
        [f"{file}:3", "invalid_event"],
        [f"{file}:5", "invalid_event"],
        [f"{file}:6", "unsupported_version"],
    ]
    assert "sources[0].text: " in told[1]
    assert "occurred_at: " in told[2]
    assert "noon" not in ran.stderr, "what a producer sent is quoted nowhere"
    assert told[-1] == "4 not attributed, 2 attributed: see above."


def test_the_same_event_twice_is_attributed_twice(run: RunHere) -> None:
    first, second = attributed(run, stdin=lines(event(), event()))
    assert first == second


def test_every_ending_of_an_answer_is_a_status_and_none_an_error(run: RunHere) -> None:
    stray = [{"source_id": "s", "text": "Rain fell all week."}]
    statuses = [
        line["status"]
        for line in attributed(
            run, stdin=lines(event(), event(answer=""), event(sources=[]), event(sources=stray), event(answer="🎉"))
        )
    ]
    assert statuses[:4] == ["attributed", "no_key_points", "no_sources", "ungrounded"]
    assert statuses[4] in {"no_key_points", "ungrounded"}


def test_a_table_says_who_earned_what_and_what_nobody_supports(run: RunHere) -> None:
    sources = event()["sources"]
    answer = "Copper mines employ villagers. Dragons guard the mountain pass."
    ran = run("attribute", "-", stdin=lines(event(answer=answer, sources=sources, reward=reward("2.40"))))
    assert ran.exit_code == 0
    printed = [line.rstrip() for line in ran.stdout.splitlines()]
    assert printed[0] == "What holds the valley?"
    assert [line.split() for line in printed[1:4]] == [
        ["half", "north", "██████", "25.0", "%"],
        ["whole", "south", "██████████████████", "75.0", "%"],
        ["other", "south", "0.0", "%"],
    ]
    assert printed[4] == "  attributed, 50.0 % of it is supported, 2.40 USD to share  (default/a-1)"
    assert printed[5] == "  ungrounded: Dragons guard the mountain pass."


def reward(amount: str) -> dict[str, str]:
    return {"amount": amount, "currency": "USD"}


@pytest.mark.parametrize("columns", [20, 40, 80, 120, 200])
def test_every_sample_fits_any_width_of_terminal(run: RunHere, columns: int) -> None:
    ran = run("attribute", "-", stdin=SAMPLES, columns=columns)
    assert ran.exit_code == 0
    assert "\x1b" not in ran.stdout, "no colours where nobody sees them"
    assert ran.stdout.count("supported") + ran.stdout.count("nobody earns") + ran.stdout.count("named none") >= 1


def test_text_of_an_event_cannot_command_the_terminal(run: RunHere) -> None:
    hostile = "clear \x1b[2J\x1b]0;title\x07 [red]bold[/] \u202eflipped\r\n\x9b"
    ran = run("attribute", "-", stdin=lines(event(query=hostile, answer=f"Dragons {hostile}", answer_id="[/]")))
    assert ran.exit_code == 0
    assert not {"\x1b", "\x07", "\x9b", "\u202e", "\r"} & set(ran.stdout)
    assert "[red]bold[/]" in ran.stdout
    assert "default/[/]" in ran.stdout


def test_an_empty_input_is_said_to_be_empty(run: RunHere) -> None:
    ran = run("attribute", "-", stdin=b"\n\n")
    assert (ran.exit_code, ran.stdout, ran.stderr) == (0, "", "No events: the input is empty.\n")


def test_a_binary_file_is_one_message(run: RunHere) -> None:
    ran = run("attribute", "-", stdin=bytes(range(128, 256)) * 50)
    assert ran.exit_code == 1
    assert ran.stderr.startswith("<stdin>:1: not UTF-8 text")
    assert ran.stderr.count("\n") == 2


def test_a_pretty_printed_event_with_a_byte_order_mark_is_read(run: RunHere) -> None:
    document = b"\xef\xbb\xbf" + json.dumps(event(), indent=4).replace("\n", "\r\n").encode()
    [line] = attributed(run, stdin=document)
    assert line["answer_id"] == "a-1"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["{here}/missing.jsonl"], "missing.jsonl: No such file or directory"),
        (["{here}"], "is a directory: name its files"),
        ([], "Missing argument 'FILE…'"),
        (["-", "--policy", "best"], "'best' is not one of 'max', 'top_k', 'rank_weighted'"),
        (["-", "--grouping", "publisher"], "'publisher' is not one of 'source', 'owner'"),
        (["-", "--judge", "oracle"], "'oracle' is not one of 'local'"),
        (["-", "--format", "xml"], "'xml' is not one of 'table', 'json'"),
        (["-", "--policy", "top_k", "--k", "0"], "Invalid value for '--k': "),
        (["-", "--k", "2"], "belongs to --policy top_k, and the policy is max"),
        (["-", "--omega", "1", "--policy", "top_k"], "belongs to --policy rank_weighted, and the policy is top_k"),
        (["-", "--policy", "rank_weighted", "--omega", "2,1"], "omega starts with 2"),
        (["-", "--policy", "rank_weighted", "--omega", "1,x"], "'x'"),
        (["-", "--policies", "max"], "No such option: --policies"),
    ],
)
def test_wrong_use_is_told_and_ends_with_2(run: RunHere, tmp_path: Path, arguments: list[str], message: str) -> None:
    ran = run("attribute", *(argument.format(here=tmp_path) for argument in arguments), stdin=lines(event()))
    assert (ran.exit_code, ran.stdout) == (2, "")
    assert message in ran.message


def test_a_missing_file_is_told_before_anything_is_attributed(run: RunHere) -> None:
    ran = run("attribute", "-", "missing.jsonl", stdin=lines(event()))
    assert (ran.exit_code, ran.stdout) == (2, "")
