"""Conversations, their turns, and what verdicts say of claims."""

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

ID, SHORT, NAME = sa.String(64), sa.String(32), sa.String(256)
KEY = ("collection", "owner", "alias", "shape")


def upgrade() -> None:
    op.create_table(
        "conversations",
        sa.Column("id", ID, primary_key=True),
        sa.Column("sticky", ID, nullable=False),
        sa.Column("sticky_by", SHORT, nullable=False),
        sa.Column("owner", ID, nullable=False),
        sa.Column("collection", ID, nullable=False),
        sa.Column("model", NAME, nullable=False),
        sa.Column("shape", SHORT, nullable=False),
        sa.Column("at_ms", sa.BigInteger, nullable=False),
        sa.Column("last_ms", sa.BigInteger, nullable=False),
        sa.Column("alias", NAME, nullable=False),
        sa.Column("turns", sa.BigInteger, nullable=False),
    )
    op.create_index("conversations_newest", "conversations", [sa.text("at_ms DESC"), sa.text("id DESC")])
    op.create_index("conversations_of_owner", "conversations", ["owner", sa.text("at_ms DESC"), sa.text("id DESC")])
    op.create_index("conversations_of_key", "conversations", ["sticky", sa.text("last_ms DESC")])
    op.create_table(
        "turns",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True, autoincrement=True),
        sa.Column("conversation", ID, nullable=False),
        sa.Column("turn", sa.Integer, nullable=False),
        sa.Column("at_ms", sa.BigInteger, nullable=False),
        sa.Column("call", sa.String(96), nullable=False),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("alias", NAME, nullable=False),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("seconds", sa.Float, nullable=False),
        sa.Column("first_piece_seconds", sa.Float),
        sa.Column("tool_calls", sa.Integer, nullable=False),
        sa.Column("finish_reason", ID),
        sa.Column("prompt_tokens", sa.Integer),
        sa.Column("completion_tokens", sa.Integer),
        sa.Column("cached_tokens", sa.Integer),
        sa.Column("cache_write_tokens", sa.Integer),
        sa.Column("reasoning_tokens", sa.Integer),
        sa.Column("cost", sa.Float),
        sa.Column("failed_over", sa.Text, nullable=False),
        sa.Column("skipped", sa.Text, nullable=False),
        sa.Column("left_out", sa.Text, nullable=False),
    )
    op.create_index("ix_turns_conversation", "turns", ["conversation"])
    # The database fills them in for an older program, which runs beside this one and does not know of them.
    for name in ("claims_held", "claims_failed", "turns", "failovers"):
        op.add_column("sums", sa.Column(name, sa.BigInteger, nullable=False, server_default="0"))
    _count_claims()


def _count_claims() -> None:
    """Of the verdicts in force: one that replaces them takes off what it finds in the row."""
    held: Counter[tuple[str, ...]] = Counter()
    failed: Counter[tuple[str, ...]] = Counter()
    for key, real, false in _judged():
        for of in (("", "", *key[2:]), key):
            held[of] += real
            failed[of] += false
    change = ", ".join(f"{name} = {name} + :{name}" for name in ("claims_held", "claims_failed"))
    update = sa.text(f"UPDATE sums SET {change} WHERE " + " AND ".join(f"{name} = :{name}" for name in KEY))  # noqa: S608
    for key in {**held, **failed}:
        counts = {"claims_held": held[key], "claims_failed": failed[key]}
        op.get_bind().execute(update, {**dict(zip(KEY, key, strict=True)), **counts})


def _judged() -> Iterator[tuple[tuple[str, ...], int, int]]:
    """The key of the sums that a judged seat counts in, and how many claims held and failed."""
    columns: list[sa.ColumnClause[Any]] = [sa.column(name) for name in (*KEY, "real", "false")]
    rows = op.get_bind().execute(
        sa.select(*columns).select_from(sa.table("seats")).where(sa.text("useful IS NOT NULL"))
    )
    for row in rows.mappings():
        yield tuple(row[name] for name in KEY), _claims(row["real"]), _claims(row["false"])


def _claims(text: Any) -> int:
    try:
        claims = json.loads(text)
    except (TypeError, ValueError):
        return 0
    return len(claims) if isinstance(claims, list) else 0
