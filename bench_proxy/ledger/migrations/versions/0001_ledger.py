"""Panels, seats, verdicts and their sums."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

ID, SHORT, NAME = sa.String(64), sa.String(32), sa.String(256)


def upgrade() -> None:
    op.create_table(
        "panels",
        sa.Column("id", ID, primary_key=True),
        sa.Column("at_ms", sa.BigInteger, nullable=False),
        sa.Column("owner", ID, nullable=False),
        sa.Column("collection", ID, nullable=False),
        sa.Column("model", NAME, nullable=False),
        sa.Column("reply", sa.String(16), nullable=False),
        sa.Column("shape", SHORT, nullable=False),
        sa.Column("shape_by", NAME, nullable=False),
        sa.Column("asked", sa.Text, nullable=False),
        sa.Column("skipped", sa.Text, nullable=False),
        sa.Column("partial", sa.Boolean),
        sa.Column("seconds", sa.Float),
        sa.Column("note", sa.Text, nullable=False),
    )
    op.create_index("panels_newest", "panels", [sa.text("at_ms DESC"), sa.text("id DESC")])
    op.create_index("panels_of_owner", "panels", ["owner", sa.text("at_ms DESC"), sa.text("id DESC")])
    op.create_table(
        "seats",
        sa.Column("call", sa.String(96), primary_key=True),
        sa.Column("panel", ID, nullable=False),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("at_ms", sa.BigInteger, nullable=False),
        sa.Column("owner", ID, nullable=False),
        sa.Column("collection", ID, nullable=False),
        sa.Column("shape", SHORT, nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("alias", NAME, nullable=False),
        sa.Column("mask", sa.String(8), nullable=False),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("late", sa.Boolean, nullable=False),
        sa.Column("seconds", sa.Float, nullable=False),
        sa.Column("first_token_seconds", sa.Float),
        sa.Column("prompt_tokens", sa.Integer),
        sa.Column("completion_tokens", sa.Integer),
        sa.Column("cost", sa.Float),
        sa.Column("finish_reason", sa.String(64)),
        sa.Column("answer", sa.Text, nullable=False),
        sa.Column("error", sa.Text),
        sa.Column("useful", sa.Boolean),
        sa.Column("preferred", sa.Boolean),
        sa.Column("note", sa.Text, nullable=False),
        sa.Column("real", sa.Text, nullable=False),
        sa.Column("false", sa.Text, nullable=False),
        sa.Column("judged_by", sa.Text, nullable=False),
        sa.Column("judged_ms", sa.BigInteger),
    )
    op.create_index("ix_seats_panel", "seats", ["panel"])
    op.create_table(
        "verdicts",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True, autoincrement=True),
        sa.Column("call", sa.String(96), nullable=False),
        sa.Column("at_ms", sa.BigInteger, nullable=False),
        sa.Column("owner", ID, nullable=False),
        sa.Column("useful", sa.Boolean),
        sa.Column("note", sa.Text, nullable=False),
        sa.Column("real", sa.Text, nullable=False),
        sa.Column("false", sa.Text, nullable=False),
        sa.Column("judged_by", sa.Text, nullable=False),
    )
    op.create_index("ix_verdicts_call", "verdicts", ["call"])
    op.create_table(
        "picks",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True, autoincrement=True),
        sa.Column("panel", ID, nullable=False),
        sa.Column("at_ms", sa.BigInteger, nullable=False),
        sa.Column("owner", ID, nullable=False),
        sa.Column("best", sa.String(96)),
        sa.Column("over", sa.Text, nullable=False),
        sa.Column("note", sa.Text, nullable=False),
        sa.Column("judged_by", sa.Text, nullable=False),
    )
    op.create_index("ix_picks_panel", "picks", ["panel"])
    counters = (
        "seated", "answered", "empty", "failed", "late", "useful", "not_useful", "preferred", "not_preferred",
    )  # fmt: skip
    op.create_table(
        "sums",
        sa.Column("collection", ID, primary_key=True),
        sa.Column("owner", ID, primary_key=True),
        sa.Column("alias", NAME, primary_key=True),
        sa.Column("shape", SHORT, primary_key=True),
        *(sa.Column(name, sa.BigInteger, nullable=False) for name in counters),
        sa.Column("last_seated_ms", sa.BigInteger, nullable=False),
        sa.Column("last_judged_ms", sa.BigInteger, nullable=False),
    )
    op.create_index("sums_of_owner", "sums", ["owner", "collection"])
    op.create_table(
        "wins",
        sa.Column("collection", ID, primary_key=True),
        sa.Column("owner", ID, primary_key=True),
        sa.Column("shape", SHORT, primary_key=True),
        sa.Column("winner", NAME, primary_key=True),
        sa.Column("loser", NAME, primary_key=True),
        sa.Column("times", sa.BigInteger, nullable=False),
    )
    op.create_index("wins_of_owner", "wins", ["owner", "collection"])
    op.create_table(
        "facts",
        sa.Column("alias", NAME, primary_key=True),
        sa.Column("served", ID, primary_key=True),
        sa.Column("context_window", sa.BigInteger),
        sa.Column("tools", sa.Boolean),
        sa.Column("vision", sa.Boolean),
        sa.Column("at_ms", sa.BigInteger, nullable=False),
    )
