"""Which worker holds which static membership."""

from sqlalchemy import Column, PrimaryKeyConstraint, Table, Uuid

from worker.adapters.postgres.tables.columns import metadata, moment, words

worker_places = Table(
    "worker_places",
    metadata,
    words("group_id", "Kafka consumer group"),
    words("group_instance_id", "Static member of the group"),
    Column("worker_id", Uuid, nullable=False, comment="The process that took the place last; an older one leaves"),
    moment("taken_at", "Database time", default="now()"),
    PrimaryKeyConstraint("group_id", "group_instance_id"),
    comment="One row per static member. Of two workers with one instance id the one that started last stays.",
)
