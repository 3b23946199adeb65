"""The pure core: numpy and the standard library only; no IO, no clock, no randomness, no logging."""
