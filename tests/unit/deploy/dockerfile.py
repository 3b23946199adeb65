"""A Dockerfile as its instructions, by stage."""

from collections.abc import Sequence
from dataclasses import dataclass

from tests.unit.deploy.files import DEPLOY

DOCKERFILE = DEPLOY / "Dockerfile"


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction; `told` is all that follows its name, on one line."""

    name: str
    told: str


def stages() -> Sequence[Sequence[Instruction]]:
    """The instructions of each stage, FROM first; what stands before the first FROM belongs to none."""
    found: list[list[Instruction]] = []
    for instruction in _instructions(DOCKERFILE.read_text()):
        if instruction.name == "FROM":
            found.append([])
        if found:
            found[-1].append(instruction)
    return found


def _instructions(text: str) -> Sequence[Instruction]:
    lines = "\n".join(line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#"))
    joined = lines.replace("\\\n", " ").splitlines()
    return [Instruction(name, " ".join(told.split())) for name, _, told in (line.partition(" ") for line in joined)]


def only(stage: Sequence[Instruction], name: str) -> str:
    """What the stage's only instruction of this name says."""
    [found] = [instruction.told for instruction in stage if instruction.name == name]
    return found
