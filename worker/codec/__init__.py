"""Bytes and wire versions ↔ core nouns; the clock, the limits and the code version are given, never read here."""

from worker.codec.answers import Decoded, EventLimits, decode_answer, read_answer_key
from worker.codec.attributions import encode_attribution
from worker.codec.dead_letters import decode_dead_letter, encode_dead_letter
from worker.codec.identity import content_hash, event_id, message_key

__all__ = [
    "Decoded",
    "EventLimits",
    "content_hash",
    "decode_answer",
    "decode_dead_letter",
    "encode_attribution",
    "encode_dead_letter",
    "event_id",
    "message_key",
    "read_answer_key",
]
