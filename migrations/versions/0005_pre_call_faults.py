"""An attribution is measured by the calls it counted; before the first worker starts."""

from pathlib import Path

from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    for statement in Path(__file__).with_suffix(".sql").read_text(encoding="utf-8").split(";\n"):
        op.get_bind().exec_driver_sql(statement)
