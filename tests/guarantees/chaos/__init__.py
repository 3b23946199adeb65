"""Whole campaigns: real worker processes on a real Kafka, a real PostgreSQL and an emulated LLM, while things break."""
