"""The attribution worker: answer events in, exact per-source credit out."""
