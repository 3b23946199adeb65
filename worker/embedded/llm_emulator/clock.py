"""The emulator's time: as fast as it is told to be."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime


class Clock:
    """`time_scale` emulated seconds pass in one second of `monotonic_s`."""

    def __init__(self, time_scale: float, monotonic_s: Callable[[], float]) -> None:
        self._time_scale = time_scale
        self._monotonic_s = monotonic_s
        self._started_s = monotonic_s()
        self._started = datetime.now(UTC)

    def now_ns(self) -> int:
        """Since the start."""
        return int((self._monotonic_s() - self._started_s) * self._time_scale * 1e9)

    def now(self) -> datetime:
        return self._started + timedelta(microseconds=self.now_ns() / 1_000)

    def real_s(self, emulated_s: float) -> float:
        return emulated_s / self._time_scale


def http_date(moment: datetime) -> str:
    return format_datetime(moment, usegmt=True)
