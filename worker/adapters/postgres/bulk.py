"""Many rows in one statement: by COPY, or as one array per column where a statement must look at them."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import ARRAY, Column, FromClause, Text, bindparam, cast, column, func, select
from sqlalchemy.dialects.postgresql import JSONB, Insert, insert
from sqlalchemy.ext.asyncio import AsyncConnection

from worker.errors import RetryableError


def unnested(columns: Sequence[Column[Any]]) -> FromClause:
    """The rows that `arrays_of` will fill in; JSONB travels as text, encoded once."""
    types = {item.name: Text() if isinstance(item.type, JSONB) else item.type for item in columns}
    arrays = [bindparam(name, type_=ARRAY(type_)) for name, type_ in types.items()]
    rows = func.unnest(*arrays).table_valued(*(column(name, type_) for name, type_ in types.items()), name="rows")
    return rows.render_derived()


def insert_unnested(columns: Sequence[Column[Any]]) -> Insert:
    """INSERT of these columns of one table; the others take their defaults. Rows arrive in the order they are given."""
    rows = unnested(columns)
    values = [cast(rows.c[item.name], JSONB) if isinstance(item.type, JSONB) else rows.c[item.name] for item in columns]
    return insert(columns[0].table).from_select([item.name for item in columns], select(*values))


def arrays_of(columns: Sequence[Column[Any]], rows: Iterable[tuple[object, ...]]) -> Mapping[str, Sequence[object]]:
    """The parameters of a statement over `unnested(columns)`: a tuple per row, in the order of the columns."""
    transposed = list(zip(*rows, strict=True)) or [()] * len(columns)
    return {item.name: values for item, values in zip(columns, transposed, strict=True)}


async def copy_rows(
    connection: AsyncConnection, columns: Sequence[Column[Any]], rows: Sequence[tuple[object, ...]]
) -> None:
    """COPY into these columns of one table, within the connection's transaction, which a statement must have opened.

    It costs the client a fifth of unnested arrays.

    Raises:
        RetryableError: a value that its column's type cannot hold; other errors are the driver's own.
    """
    driver: Any = (await connection.get_raw_connection()).driver_connection
    table = columns[0].table.name
    try:
        await driver.copy_records_to_table(table, records=rows, columns=[item.name for item in columns])
    except (ValueError, TypeError, OverflowError) as error:
        raise RetryableError(f"a value for {table} cannot be encoded ({type(error).__name__})") from None
