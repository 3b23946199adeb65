import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.adapters.postgres.stages import Migration, Stage, chosen
from worker.errors import FatalError

PRE, POST = "pre", "post"
kinds = st.lists(st.sampled_from([PRE, POST]), max_size=6)


def pending(*stages: str) -> list[Migration]:
    return [Migration(f"{number:04}", f"{number:04}_{stage}_what") for number, stage in enumerate(stages, 4)]


def applied(stages: list[str], stage: Stage, *, is_new: bool = False) -> list[str]:
    return [migration.stage.value for migration in chosen(pending(*stages), stage, is_new=is_new)]


def test_before_a_rollout_only_pre_migrations_run() -> None:
    assert applied([PRE, PRE, POST], Stage.PRE) == [PRE, PRE]
    assert applied([POST], Stage.PRE) == []
    assert applied([], Stage.PRE) == []


def test_after_a_rollout_post_migrations_run_up_to_the_next_rollouts() -> None:
    assert applied([POST, POST], Stage.POST) == [POST, POST]
    assert applied([POST, PRE, POST], Stage.POST) == [POST]
    assert applied([], Stage.POST) == []


def test_post_refuses_while_pre_is_missing_and_says_what_to_do() -> None:
    with pytest.raises(FatalError, match=r"0004_pre_what is missing .* migrate --stage pre`, roll this"):
        applied([PRE, POST], Stage.POST)


def test_pre_behind_a_rollout_that_was_never_finished_is_refused_and_says_what_to_do() -> None:
    with pytest.raises(FatalError, match=r"0005_pre_what must run .* 0004_post_what comes before it .* --stage post`"):
        applied([POST, PRE], Stage.PRE)
    with pytest.raises(FatalError, match="0006_pre_what must run"):
        applied([PRE, POST, PRE], Stage.PRE)


@given(kinds)
def test_a_new_database_which_no_worker_can_be_using_is_given_everything(stages: list[str]) -> None:
    assert applied(stages, Stage.PRE, is_new=True) == stages
    assert applied(stages, Stage.ALL, is_new=True) == stages


@given(stages=kinds, stage=st.sampled_from(Stage), is_new=st.booleans())
def test_migrations_run_in_their_order_or_not_at_all(stages: list[str], stage: Stage, *, is_new: bool) -> None:
    given_ = pending(*stages)
    try:
        ready = chosen(given_, stage, is_new=is_new)
    except FatalError:
        return
    assert list(ready) == given_[: len(ready)]
    if stage is Stage.PRE:
        assert PRE not in [migration.stage for migration in given_[len(ready) :]], "new workers find all they need"


def test_a_name_that_does_not_say_when_it_runs_is_refused() -> None:
    with pytest.raises(FatalError, match="0004_tables"):
        chosen([Migration("0004", "0004_tables")], Stage.PRE, is_new=False)
