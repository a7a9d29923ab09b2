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

conversations = Table(
    "conversations",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("sticky", String(64), nullable=False),  # the digest of the key by which its turns find one another
    Column("sticky_by", String(32), nullable=False),
    Column("owner", String(64), nullable=False),
    Column("collection", String(64), nullable=False),
    Column("model", String(256), nullable=False),
    Column("shape", String(32), nullable=False),
    Column("at_ms", BigInteger, nullable=False),
    Column("last_ms", BigInteger, nullable=False),  # the end of the last turn
    Column("alias", String(256), nullable=False),  # who answers now; empty as long as nobody has
    Column("turns", BigInteger, nullable=False),
)
Index("conversations_newest", conversations.c.at_ms.desc(), conversations.c.id.desc())
Index("conversations_of_owner", conversations.c.owner, conversations.c.at_ms.desc(), conversations.c.id.desc())
Index("conversations_of_key", conversations.c.sticky, conversations.c.last_ms.desc())

turns = Table(
    "turns",
    metadata,
    # Two turns of one conversation may be under way at a time and then have the same number: it is no key.
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True),
    Column("conversation", String(64), nullable=False, index=True),
    Column("turn", Integer, nullable=False),
    Column("at_ms", BigInteger, nullable=False),
    Column("call", String(96), nullable=False),  # empty where nobody answered, as the alias
    Column("number", Integer, nullable=False),
    Column("alias", String(256), nullable=False),
    Column("status", String(16), nullable=False),
    Column("seconds", Float, nullable=False),
    Column("first_piece_seconds", Float),
    Column("tool_calls", Integer, nullable=False),
    Column("finish_reason", String(64)),
    Column("prompt_tokens", Integer),
    Column("completion_tokens", Integer),
    Column("cached_tokens", Integer),
    Column("cache_write_tokens", Integer),
    Column("reasoning_tokens", Integer),
    Column("cost", Float),
    Column("failed_over", Text, nullable=False),
    Column("skipped", Text, nullable=False),
    Column("left_out", Text, nullable=False),
)

LATER_COUNTERS = ("claims_held", "claims_failed", "turns", "failovers")
"""Programs of before these go on counting in the same ledger, and do not name them."""

COUNTERS = (
    "seated", "answered", "empty", "failed", "late", "useful", "not_useful", "preferred", "not_preferred",
    *LATER_COUNTERS,
)  # fmt: skip

sums = Table(
    "sums",
    metadata,
    # One row per model and shape over everything has collection and owner empty: ranking and seating read only those.
    Column("collection", String(64), primary_key=True),
    Column("owner", String(64), primary_key=True),
    Column("alias", String(256), primary_key=True),
    Column("shape", String(32), primary_key=True),
    *(
        Column(name, BigInteger, nullable=False, default=0, server_default="0" if name in LATER_COUNTERS else None)
        for name in COUNTERS
    ),
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

bench_keys = Table(
    "bench_keys",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("digest", String(64), nullable=False, unique=True),  # SHA-256 of the key, which is nowhere
    Column("last_four", String(4), nullable=False),
    Column("name", String(256), nullable=False),
    Column("collections", Text),  # NULL is all
    Column("requests_a_minute", BigInteger),
    Column("tokens_a_day", BigInteger),
    Column("cost_a_day", Float),
    Column("at_ms", BigInteger, nullable=False),
    Column("expires_ms", BigInteger),
    Column("revoked_ms", BigInteger),
    Column("last_used_ms", BigInteger),
    Column("minute_ms", BigInteger, nullable=False),  # when the minute began whose requests are counted
    Column("minute_requests", BigInteger, nullable=False),
)
Index("bench_keys_newest", bench_keys.c.at_ms.desc(), bench_keys.c.id.desc())

key_days = Table(
    "key_days",
    metadata,
    # What the answers to a key's requests used on one day of UTC.
    Column("key", String(64), primary_key=True),
    Column("day", String(10), primary_key=True, index=True),
    Column("tokens", BigInteger, nullable=False),
    Column("cost", Float, nullable=False),
)

key_holds = Table(
    "key_holds",
    metadata,
    # The most that a request under way may use of its key's day; a process that dies leaves it until its time is over.
    Column("id", String(64), primary_key=True),
    Column("key", String(64), nullable=False, index=True),
    Column("tokens", BigInteger, nullable=False),
    Column("cost", Float, nullable=False),
    Column("until_ms", BigInteger, nullable=False),
)
