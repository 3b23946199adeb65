"""Wire contracts: what is read from Kafka and what is written to it. Imports nothing of ours."""
