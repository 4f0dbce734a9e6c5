"""${message}"""  # noqa: INP001 - Alembic loads this file by path

from alembic import op
import sqlalchemy as sa
${imports if imports else ""}

revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}


def upgrade() -> None:
    """Forward."""
    ${upgrades if upgrades else "pass"}
