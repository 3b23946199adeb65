from pathlib import Path

import pytest

from schemas.generate import DIRECTORY, generated_files, main, stale_files, write_files


def test_the_committed_files_are_what_the_models_say() -> None:
    assert stale_files(DIRECTORY) == []


def test_what_is_written_passes_the_check(tmp_path: Path) -> None:
    assert main([], tmp_path) == 0
    assert main(["--check"], tmp_path) == 0
    assert {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.json")} == generated_files().keys()


@pytest.mark.parametrize("path", sorted(generated_files()))
def test_the_check_names_the_file_that_differs_and_the_command_that_repairs_it(
    path: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_files(tmp_path)
    (tmp_path / path).write_text("{}\n", encoding="utf-8")
    assert main(["--check"], tmp_path) == 1
    said = capsys.readouterr().err
    assert path in said
    assert "python -m schemas.generate" in said
    assert (tmp_path / path).read_text(encoding="utf-8") == "{}\n"


def test_a_missing_file_and_one_that_no_model_stands_behind_are_both_found_and_repaired(tmp_path: Path) -> None:
    write_files(tmp_path)
    (tmp_path / "asyncapi.json").unlink()
    (tmp_path / "json" / "answer-generated.v0.schema.json").write_text("{}", encoding="utf-8")
    assert stale_files(tmp_path) == ["asyncapi.json", "json/answer-generated.v0.schema.json"]
    write_files(tmp_path)
    assert stale_files(tmp_path) == []
