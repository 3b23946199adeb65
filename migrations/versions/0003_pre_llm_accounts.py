"""The LLM call journal as it is written, budgets, and reuse of judgements; before the first worker starts."""

from pathlib import Path

from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    for statement in Path(__file__).with_suffix(".sql").read_text(encoding="utf-8").split(";\n"):
        op.get_bind().exec_driver_sql(statement)
