"""One LLM call: journal → limiter → budget → provider. A response that was paid for is used, never bought again."""

from worker.calls.asking import Asking
from worker.calls.completions import Calls, Completed
from worker.calls.sizing import call_key_of

__all__ = ["Asking", "Calls", "Completed", "call_key_of"]
