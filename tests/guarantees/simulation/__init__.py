"""The worker's own code on a virtual clock, among servers that fail as a seed says: the same seed, the same run.

One event loop holds several workers, the broker, the database and the LLM provider. A seeded generator decides every
latency and fault, who is killed, frozen or stopped and when, and in which order the loop runs what is ready.
"""
