"""An index by which the days that are too old are found, of whatever keys."""

from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    op.create_index("ix_key_days_day", "key_days", ["day"])
