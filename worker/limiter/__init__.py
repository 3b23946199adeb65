"""Requests and tokens per minute per provider and model: reserve before a call, settle after it."""

from worker.limiter.account import AccountState
from worker.limiter.clock import Clock, LoopClock, Timer
from worker.limiter.line import CallTooLargeError, Limiter, LimiterState
from worker.limiter.slot import Slot

__all__ = ["AccountState", "CallTooLargeError", "Clock", "Limiter", "LimiterState", "LoopClock", "Slot", "Timer"]
