"""Bench keys, what they use of their days, and what is set aside for requests under way."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"

ID = sa.String(64)


def upgrade() -> None:
    op.create_table(
        "bench_keys",
        sa.Column("id", ID, primary_key=True),
        sa.Column("digest", ID, nullable=False, unique=True),
        sa.Column("last_four", sa.String(4), nullable=False),
        sa.Column("name", sa.String(256), nullable=False),
        sa.Column("collections", sa.Text),
        sa.Column("requests_a_minute", sa.BigInteger),
        sa.Column("tokens_a_day", sa.BigInteger),
        sa.Column("cost_a_day", sa.Float),
        sa.Column("at_ms", sa.BigInteger, nullable=False),
        sa.Column("expires_ms", sa.BigInteger),
        sa.Column("revoked_ms", sa.BigInteger),
        sa.Column("last_used_ms", sa.BigInteger),
        sa.Column("minute_ms", sa.BigInteger, nullable=False),
        sa.Column("minute_requests", sa.BigInteger, nullable=False),
    )
    op.create_index("bench_keys_newest", "bench_keys", [sa.text("at_ms DESC"), sa.text("id DESC")])
    op.create_table(
        "key_days",
        sa.Column("key", ID, primary_key=True),
        sa.Column("day", sa.String(10), primary_key=True),
        sa.Column("tokens", sa.BigInteger, nullable=False),
        sa.Column("cost", sa.Float, nullable=False),
    )
    op.create_table(
        "key_holds",
        sa.Column("id", ID, primary_key=True),
        sa.Column("key", ID, nullable=False),
        sa.Column("tokens", sa.BigInteger, nullable=False),
        sa.Column("cost", sa.Float, nullable=False),
        sa.Column("until_ms", sa.BigInteger, nullable=False),
    )
    op.create_index("ix_key_holds_key", "key_holds", ["key"])
