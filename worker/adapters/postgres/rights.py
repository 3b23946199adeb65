"""Who may do what in the database: the owner everything, the others what stands here and no more."""

from collections.abc import Mapping, Sequence
from enum import StrEnum

from sqlalchemy import Table, text
from sqlalchemy.ext.asyncio import AsyncConnection

from worker.adapters.postgres import tables
from worker.adapters.postgres.database import errors_translated
from worker.adapters.postgres.engine import open_engine
from worker.errors import FatalError
from worker.settings import PostgresSettings


class Role(StrEnum):
    """What a database role is for."""

    WRITER = "writer"
    OPERATOR = "operator"
    READER = "reader"


def _without(table: Table, *hidden: str) -> str:
    """The right to read a table but for some columns."""
    return f"SELECT ({', '.join(column.name for column in table.columns if column.name not in hidden)})"


RIGHTS: Mapping[Role, Mapping[Table, str]] = {
    # A worker adds what is settled and can never change it.
    Role.WRITER: {
        tables.answers: "SELECT, INSERT",
        tables.attributions: "SELECT, INSERT",
        tables.source_attributions: "SELECT, INSERT",
        tables.methods: "SELECT, INSERT",
        tables.dead_letters: "SELECT, INSERT",
        tables.intake_resumes: "SELECT",
        # To lock a row takes the right to update a column; this one is GENERATED ALWAYS, and cannot be.
        tables.outbox: "SELECT, INSERT, DELETE, UPDATE (outbox_id)",
        tables.llm_calls: "SELECT, INSERT, UPDATE",
        tables.llm_call_claims: "SELECT, INSERT, UPDATE, DELETE",
        tables.budget_leases: "SELECT, INSERT, UPDATE, DELETE",
        tables.reusable_judgements: "SELECT, INSERT, UPDATE, DELETE",
        tables.worker_places: "SELECT, INSERT, UPDATE",
    },
    # Whoever runs `dead-letters` and `resume`.
    Role.OPERATOR: {
        tables.answers: "SELECT",
        tables.dead_letters: "SELECT, UPDATE (state, resolved_at, resolution_note)",
        tables.intake_resumes: "SELECT, INSERT",
        tables.outbox: "SELECT, INSERT, DELETE, UPDATE (outbox_id)",
    },
    # Analysts and auditors: what was paid and why (`verify` too), no bytes as they came in or from a model.
    Role.READER: {
        tables.answers: "SELECT",
        tables.attributions: "SELECT",
        tables.source_attributions: "SELECT",
        tables.methods: "SELECT",
        tables.intake_resumes: "SELECT",
        tables.dead_letters: _without(tables.dead_letters, "key", "value", "headers"),
        tables.llm_calls: _without(tables.llm_calls, "response"),
    },
}
"""A table that is not named is out of the role's reach. A reader may read every view as well."""

VIEWS = text("SELECT viewname FROM pg_views WHERE schemaname = current_schema() ORDER BY 1")
ROLE = text(
    "SELECT quote_ident(r.rolname), r.rolsuper OR pg_has_role(r.oid, c.relowner, 'USAGE') FROM pg_roles r "
    "JOIN pg_class c ON c.oid = to_regclass('answers') WHERE r.rolname = :name"
)


async def grant_rights(settings: PostgresSettings, roles: Mapping[Role, str]) -> None:
    """Give each database role exactly the rights of what it is for, in one transaction; done again it changes nothing.

    Raises:
        FatalError: there is no such role, it may do everything anyway, or we are not the owner.
    """
    with errors_translated():
        async with open_engine(settings) as engine, engine.begin() as connection:
            views = list((await connection.execute(VIEWS)).scalars())
            schema = (await connection.execute(text("SELECT quote_ident(current_schema())"))).scalar_one()
            for role, name in roles.items():
                grantee = await _grantee(connection, name)
                for statement in _statements(role, grantee, schema, views):
                    await connection.execute(text(statement))


async def _grantee(connection: AsyncConnection, name: str) -> str:
    """The role as SQL spells it."""
    found = (await connection.execute(ROLE, {"name": name})).first()
    if found is None:
        raise FatalError(f"there is no database role {name!r}: make it with CREATE ROLE … LOGIN PASSWORD …")
    grantee, may_do_everything = found
    if may_do_everything:
        raise FatalError(f"the database role {name!r} owns the tables, or is a superuser: rights would not bind it")
    return str(grantee)


def _statements(role: Role, grantee: str, schema: str, views: Sequence[str]) -> list[str]:
    granted = [f"GRANT {rights} ON {table.name} TO {grantee}" for table, rights in RIGHTS[role].items()]
    if role is Role.READER:
        granted += [f"GRANT SELECT ON {view} TO {grantee}" for view in views]
    return [
        f"REVOKE ALL ON ALL TABLES IN SCHEMA {schema} FROM {grantee}",
        f"REVOKE CREATE ON SCHEMA {schema} FROM {grantee}",
        f"GRANT USAGE ON SCHEMA {schema} TO {grantee}",
        *granted,
    ]
