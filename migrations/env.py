"""Where Alembic meets a connection: one handed over by `worker.adapters.postgres.migrate`, never one of its own."""

import re

from alembic import context
from sqlalchemy import Connection
from sqlalchemy.schema import SchemaItem

from worker.adapters.postgres.tables import PARTITIONED_BY, metadata

PARTITION = re.compile(f"({'|'.join(table.name for table in PARTITIONED_BY)})_(default|[0-9]{{4}}_[0-9]{{2}})")


def include_object(
    _item: SchemaItem, name: str | None, kind: str, reflected: bool, _compare_to: SchemaItem | None
) -> bool:
    """Partitions come and go by the calendar; they are no part of the schema's history."""
    return not (kind == "table" and reflected and PARTITION.fullmatch(name or ""))


def run_migrations(connection: Connection) -> None:
    context.configure(
        connection=connection, target_metadata=metadata, include_object=include_object, compare_server_default=True
    )
    with context.begin_transaction():
        context.run_migrations()


run_migrations(context.config.attributes["connection"])
