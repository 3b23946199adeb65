"""Which migrations run before a rollout and which after it: decided from their names alone."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import takewhile
from typing import assert_never

from worker.errors import FatalError


class Stage(StrEnum):
    """`pre` before the workers of a release start, `post` after the last worker of the release before has stopped."""

    ALL = "all"
    PRE = "pre"
    POST = "post"


@dataclass(frozen=True, slots=True)
class Migration:
    """One revision and the name of its file, `NNNN_{pre|post}_what`."""

    revision: str
    name: str

    @property
    def stage(self) -> Stage:
        """When it may run.

        Raises:
            FatalError: the name does not say.
        """
        told = self.name.split("_")[1:2]
        if told not in (["pre"], ["post"]):
            raise FatalError(f"migration {self.name} does not say whether it is pre or post")
        return Stage(told[0])


def chosen(pending: Sequence[Migration], stage: Stage, *, is_new: bool) -> Sequence[Migration]:
    """What to apply now of the migrations not yet applied, which are given in order; always a beginning of them.

    Order is never changed: a stage ends before the first migration of the other kind. A new database, which no worker
    can be using, is given everything before a rollout.

    Raises:
        FatalError: a migration of this stage cannot run, as one of the other stage comes before it.
    """
    match stage:
        case Stage.ALL:
            return pending
        case Stage.PRE if is_new:
            return pending
        case Stage.PRE:
            ready = list(takewhile(lambda migration: migration.stage is Stage.PRE, pending))
            _require_no_pre_behind(pending[len(ready) :])
            return ready
        case Stage.POST:
            _require_no_pre_first(pending)
            return list(takewhile(lambda migration: migration.stage is Stage.POST, pending))
        case _:
            assert_never(stage)


def _require_no_pre_behind(held: Sequence[Migration]) -> None:
    blocked = [migration.name for migration in held if migration.stage is Stage.PRE]
    if blocked:
        raise FatalError(
            f"{blocked[0]} must run before this version's workers start, but {held[0].name} comes before it and "
            "belongs to an earlier rollout that was never finished. Nothing was changed. Once only workers of the "
            "version before this one are running: `attribution-worker migrate --stage post`, then --stage pre again"
        )


def _require_no_pre_first(pending: Sequence[Migration]) -> None:
    if pending and pending[0].stage is Stage.PRE:
        raise FatalError(
            f"{pending[0].name} is missing and must run first. Nothing was changed. Run `attribution-worker migrate "
            "--stage pre`, roll this version out, and when the last worker of the one before has stopped: --stage post"
        )
