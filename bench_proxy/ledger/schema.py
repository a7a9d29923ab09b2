"""The tables. Times are milliseconds since the epoch; JSON columns hold text that we wrote."""

from sqlalchemy import BigInteger, Boolean, Column, Float, Index, Integer, MetaData, String, Table, Text

metadata = MetaData()

panels = Table(
    "panels",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("at_ms", BigInteger, nullable=False),
    Column("owner", String(64), nullable=False),
    Column("collection", String(64), nullable=False),
    Column("model", String(256), nullable=False),
    Column("reply", String(16), nullable=False),
    Column("shape", String(32), nullable=False),
    Column("shape_by", String(256), nullable=False),
    Column("asked", Text, nullable=False),
    Column("skipped", Text, nullable=False),
    Column("partial", Boolean),  # NULL while the panel runs, or when its process died
    Column("seconds", Float),
    Column("note", Text, nullable=False, default=""),
)
Index("panels_newest", panels.c.at_ms.desc(), panels.c.id.desc())
Index("panels_of_owner", panels.c.owner, panels.c.at_ms.desc(), panels.c.id.desc())

seats = Table(
    "seats",
    metadata,
    Column("call", String(96), primary_key=True),
    Column("panel", String(64), nullable=False, index=True),
    Column("number", Integer, nullable=False),
    Column("at_ms", BigInteger, nullable=False),
    Column("owner", String(64), nullable=False),
    Column("collection", String(64), nullable=False),
    Column("shape", String(32), nullable=False),
    Column("kind", String(16), nullable=False),
    Column("alias", String(256), nullable=False),
    Column("mask", String(8), nullable=False, default=""),  # the letter of a blind panel's seat
    Column("status", String(16), nullable=False),
    Column("late", Boolean, nullable=False),
    Column("seconds", Float, nullable=False),
    Column("first_token_seconds", Float),
    Column("prompt_tokens", Integer),
    Column("completion_tokens", Integer),
    Column("cost", Float),
    Column("finish_reason", String(64)),
    Column("answer", Text, nullable=False),
    Column("error", Text),
    Column("useful", Boolean),  # the verdict in force; NULL is none
    Column("preferred", Boolean),  # the pick in force: true for the best, false for the other answers
    Column("note", Text, nullable=False, default=""),
    Column("real", Text, nullable=False, default="[]"),
    Column("false", Text, nullable=False, default="[]"),
    Column("judged_by", Text, nullable=False, default=""),
    Column("judged_ms", BigInteger),
)

verdicts = Table(
    "verdicts",
    metadata,
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True),
    Column("call", String(96), nullable=False, index=True),
    Column("at_ms", BigInteger, nullable=False),
    Column("owner", String(64), nullable=False),
    Column("useful", Boolean),
    Column("note", Text, nullable=False),
    Column("real", Text, nullable=False),
    Column("false", Text, nullable=False),
    Column("judged_by", Text, nullable=False),
)

picks = Table(
    "picks",
    metadata,
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True),
    Column("panel", String(64), nullable=False, index=True),
    Column("at_ms", BigInteger, nullable=False),
    Column("owner", String(64), nullable=False),
    Column("best", String(96)),  # NULL withdrew what was said before
    Column("over", Text, nullable=False),  # the calls of the answers that it was preferred to
    Column("note", Text, nullable=False),
    Column("judged_by", Text, nullable=False),
)

COUNTERS = ("seated", "answered", "empty", "failed", "late", "useful", "not_useful", "preferred", "not_preferred")

sums = Table(
    "sums",
    metadata,
    # One row per model and shape over everything has collection and owner empty: ranking and seating read only those.
    Column("collection", String(64), primary_key=True),
    Column("owner", String(64), primary_key=True),
    Column("alias", String(256), primary_key=True),
    Column("shape", String(32), primary_key=True),
    *(Column(name, BigInteger, nullable=False, default=0) for name in COUNTERS),
    Column("last_seated_ms", BigInteger, nullable=False, default=0),
    Column("last_judged_ms", BigInteger, nullable=False, default=0),
)
Index("sums_of_owner", sums.c.owner, sums.c.collection)

wins = Table(
    "wins",
    metadata,
    # How often the one was useful and the other, on the same panel, was not, or was not preferred to it; over
    # everything and by collection and key, as in `sums`.
    Column("collection", String(64), primary_key=True),
    Column("owner", String(64), primary_key=True),
    Column("shape", String(32), primary_key=True),
    Column("winner", String(256), primary_key=True),
    Column("loser", String(256), primary_key=True),
    Column("times", BigInteger, nullable=False),
)
Index("wins_of_owner", wins.c.owner, wins.c.collection)

facts = Table(
    "facts",
    metadata,
    # What was learned of a model, as long as the alias is served by the same deployments: `served` is a digest of them.
    Column("alias", String(256), primary_key=True),
    Column("served", String(64), primary_key=True),
    Column("context_window", BigInteger),
    Column("tools", Boolean),
    Column("vision", Boolean),
    Column("at_ms", BigInteger, nullable=False),
)
