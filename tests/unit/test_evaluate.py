"""`attribution-worker evaluate`: files in, Jaccard@K out, and bad lines by their place."""

import asyncio
import json
from pathlib import Path

import pytest
import typer

from worker.adapters.local_judge import LocalJudge
from worker.cli.evaluate import OutputFormat, evaluate_files, settings_for
from worker.core.local.judging import profile_of
from worker.core.model import Answer, Judgement, JudgeProfile
from worker.errors import RetryableError
from worker.settings import JudgeName, Settings

TRAM = {"source_id": "s2", "title": "Tram", "text": "Every six minutes the harbour tram runs."}
LINE: dict[str, object] = {
    "dataset": "harbours",
    "query_id": "q1",
    "query": "When does the tram run?",
    "answer": "The harbour tram runs every six minutes.",
    "sources": [
        {"source_id": "s1", "title": "Seals", "text": "Grey seals rest on rocks."},
        TRAM,
        {"source_id": "s3", "title": "Tower", "text": "The tower is closed."},
    ],
    "relevant": ["s2"],
    "key_points": [{"text": "The tram runs.", "importance": 2, "support": {"s1": 0.3, "s2": 0, "s3": 0}}],
}


class FailingJudge:
    """Gives up on the answers it is told to, judges the others as the local judge does."""

    def __init__(self, *query_ids: str) -> None:
        self.query_ids = query_ids
        self.judged: list[str] = []

    @property
    def profile(self) -> JudgeProfile:
        return profile_of(64)

    async def judge(self, answer: Answer) -> Judgement:
        if answer.key.answer_id in self.query_ids:
            raise RetryableError("no usable verdict")
        self.judged.append(answer.key.answer_id)
        return await LocalJudge(64).judge(answer)


def written(path: Path, *lines: object) -> Path:
    path.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines), encoding="utf-8")
    return path


def json_lines(capsys: pytest.CaptureFixture[str]) -> tuple[list[dict[str, object]], str]:
    printed = capsys.readouterr()
    return [json.loads(line) for line in printed.out.splitlines()], printed.err


def test_the_judge_and_the_recorded_matrix_are_scored_beside_chance(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path / "a.jsonl", LINE, "", LINE | {"query_id": "q2"})
    assert asyncio.run(evaluate_files([path], FailingJudge(), OutputFormat.JSON)) == 0
    results, _ = json_lines(capsys)
    assert [(result["judge"], result["queries"], result["jaccard_at_k"]) for result in results] == [
        ("local", 2, {"max_sum": 1.0, "leave_one_out": 1.0, "random": 0.3333}),
        ("recorded", 2, {"max_sum": 0.0, "leave_one_out": 0.0, "random": 0.3333}),
    ]
    assert results[0]["usd_per_answer"] == "0"


def test_recorded_matrices_alone_need_no_judge(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path / "a.jsonl", LINE)
    assert asyncio.run(evaluate_files([path], None, OutputFormat.JSON, verbose=True)) == 0
    results, _ = json_lines(capsys)
    assert [(result["judge"], result.get("query_id")) for result in results] == [("recorded", "q1"), ("recorded", None)]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"relevant": ["s9"]}, "relevant: no such source: s9"),
        ({"relevant": []}, "relevant"),
        ({"sources": [TRAM, TRAM]}, "source_id is repeated"),
        ({"key_points": [{"text": "x", "support": {"s1": 1}}]}, "key_points[0].support"),
        ({"key_points": [{"text": "x", "support": {"s1": 1, "s2": 1.1, "s3": 0}}]}, "key_points.0.support.s2"),
        ({"query_id": None}, "query_id"),
    ],
)
def test_a_bad_line_is_named_by_file_and_line_and_the_others_are_still_done(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], change: dict[str, object], problem: str
) -> None:
    path = written(tmp_path / "a.jsonl", LINE, LINE | change, LINE | {"query_id": "q3"})
    judge = FailingJudge()
    assert asyncio.run(evaluate_files([path], judge, OutputFormat.JSON)) == 1
    results, stderr = json_lines(capsys)
    assert judge.judged == ["q1", "q3"]
    assert results[0]["queries"] == 2
    assert f"{path}:2: " in stderr
    assert problem in stderr


def test_an_answer_the_judge_gives_up_on_is_named_and_the_others_are_still_done(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path / "a.jsonl", LINE, LINE | {"query_id": "q2"})
    judge = FailingJudge("q1")
    assert asyncio.run(evaluate_files([path], judge, OutputFormat.JSON)) == 1
    assert judge.judged == ["q2"]
    assert f"{path}:1: no usable verdict" in json_lines(capsys)[1]


def test_a_table_is_printed_for_people(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path / "a.jsonl", LINE)
    assert asyncio.run(evaluate_files([path], FailingJudge(), OutputFormat.TABLE, verbose=True)) == 0
    printed = capsys.readouterr().out
    assert "harbours" in printed
    assert "1.0000" in printed


def test_an_unknown_judge_is_refused_with_the_names_there_are() -> None:
    with pytest.raises(typer.BadParameter, match=r"local.*recorded"):
        settings_for(Settings(), "oracle")


def test_the_named_judge_replaces_the_configured_one() -> None:
    assert settings_for(Settings(), "local").judge.name is JudgeName.LOCAL
    assert settings_for(Settings(), None) == Settings()
