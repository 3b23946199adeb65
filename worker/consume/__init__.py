"""From the stream to settled records and committed offsets."""

from worker.consume.consume import Consume
from worker.consume.state import ConsumeState

__all__ = ["Consume", "ConsumeState"]
