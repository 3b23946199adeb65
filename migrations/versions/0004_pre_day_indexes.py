"""What one day's report reads does not grow with history; before the first worker starts."""

from pathlib import Path

from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    for statement in Path(__file__).with_suffix(".sql").read_text(encoding="utf-8").split(";\n"):
        op.get_bind().exec_driver_sql(statement)
