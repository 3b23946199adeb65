"""When dead letters mean a bad deploy rather than bad records: a pure rule over what the tables say."""

from dataclasses import dataclass

from worker.settings import DeadLetterSettings


@dataclass(frozen=True, slots=True)
class RecentOutcomes:
    """Dead letters and settled answers of one topic since the last resume, by database time.

    `consecutive` dead letters came after the last settled answer; `dead_letters` are among the latest `outcomes`, of
    which at most `ratio_window - 1` are counted: the next dead letter fills the window.
    """

    consecutive: int
    dead_letters: int
    outcomes: int


def refusal(recent: RecentOutcomes, settings: DeadLetterSettings) -> str | None:
    """Why the next dead letter must not be written, and what to do; None when it may be.

    The ratio counts only once `consecutive_max` outcomes are known (or the window is full): so many failures in a row
    are allowed anyway, and fewer outcomes say nothing about a share.
    """
    if recent.consecutive >= settings.consecutive_max:
        return _advice(f"{recent.consecutive} dead letters in a row (dead_letters.consecutive_max)")
    outcomes_min = min(settings.consecutive_max, settings.ratio_window - 1)
    ratio = (recent.dead_letters + 1) / (recent.outcomes + 1)
    if recent.outcomes >= outcomes_min and ratio > settings.ratio_max:
        share = f"{recent.dead_letters} of the latest {recent.outcomes} outcomes are dead letters"
        return _advice(f"{share}, and one more passes {settings.ratio_max:.0%} (dead_letters.ratio_max)")
    return None


def _advice(limit: str) -> str:
    return (
        f"the dead-letter limit is reached: {limit}. Nothing more is set aside until the cause is mended: look at "
        "reason and detail in the table dead_letters, then run `attribution-worker resume --reason '…'`"
    )
