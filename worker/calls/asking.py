"""Who a call is made for."""

from dataclasses import dataclass

from worker.core.model import AnswerKey
from worker.errors import WorkerError


class NotWantedError(WorkerError):
    """The call was not made: what became of the same answer's other calls makes it useless."""


@dataclass(slots=True)
class Asking:
    """An answer and its place in the order of admission.

    `is_lost` once the answer can have no judgement any more: its calls that are still in line are not bought.
    """

    answer_key: AnswerKey
    admission: int
    is_lost: bool = False
