"""The Kafka side of the worker on a cluster that is told to misbehave."""
