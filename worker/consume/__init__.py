"""From the stream to settled records and committed offsets."""

from worker.consume.consume import Consume, ConsumeState

__all__ = ["Consume", "ConsumeState"]
