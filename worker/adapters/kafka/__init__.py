"""Kafka through aiokafka, the only package that imports it."""
