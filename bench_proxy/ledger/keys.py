"""Bench keys in the ledger: found by their digest, counted by minute and day. Whoever writes holds the write lock, so
that what was read in the same transaction still stands, in whatever process.
"""

import json
from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, RowMapping

from bench_proxy.keys import ID, BenchKey, KeyPage, Limits, Minute, Use, check_day, counted, day_of
from bench_proxy.ledger.schema import bench_keys, key_days, key_holds
from bench_proxy.ledger.showing import cursor_of, integer, loaded, place_of
from bench_proxy.ledger.values import counted as counted_tokens
from bench_proxy.ledger.values import storable
from bench_proxy.upstream import dollars


class Keys:
    """Writes keys and what they use."""

    def __init__(self, insert: Any) -> None:
        """`insert` is the dialect's."""
        self._add_to_day = _upsert(insert)

    def count_use(self, connection: Connection, owner: str, use: Use, now_ms: int) -> None:
        """Add what a call has used to the day of the key that asked."""
        if not counts(owner, use):
            return
        tokens, cost = counted_tokens(use.tokens), _cost(use.cost)
        connection.execute(self._add_to_day, {"key": owner, "day": day_of(now_ms), "tokens": tokens, "cost": cost})


def counts(owner: str, use: Use) -> bool:
    """Whether there is something to count: only keys have days."""
    return bool(ID.fullmatch(owner)) and bool(counted_tokens(use.tokens) or _cost(use.cost))


def make(connection: Connection, key: BenchKey) -> None:
    row = {
        "id": key.id,
        "digest": key.digest,
        "last_four": key.last_four,
        "name": storable(key.name),
        "collections": json.dumps(list(key.collections)) if key.collections is not None else None,
        "requests_a_minute": key.limits.requests_a_minute,
        "tokens_a_day": key.limits.tokens_a_day,
        "cost_a_day": key.limits.cost_a_day,
        "at_ms": key.at_ms,
        "expires_ms": key.expires_ms,
        "minute_ms": 0,
        "minute_requests": 0,
    }
    connection.execute(bench_keys.insert(), row)


def by_digest(connection: Connection, digest: str) -> BenchKey | None:
    found = sa.select(bench_keys).where(bench_keys.c.digest == digest)
    row = connection.execute(found).mappings().first()
    return None if row is None else _key(row)


def page(connection: Connection, limit: int, cursor: str | None, now_ms: int) -> KeyPage:
    query = sa.select(bench_keys).order_by(bench_keys.c.at_ms.desc(), bench_keys.c.id.desc()).limit(limit + 1)
    if cursor is not None:
        query = query.where(sa.tuple_(bench_keys.c.at_ms, bench_keys.c.id) < sa.tuple_(*place_of(cursor)))
    rows = connection.execute(query).mappings().all()
    shown = rows[:limit]
    today = sa.select(key_days).where(
        key_days.c.key.in_([row["id"] for row in shown]), key_days.c.day == day_of(now_ms)
    )
    spent = {row["key"]: _use(row) for row in connection.execute(today).mappings()}
    following = cursor_of(rows[limit - 1]) if len(rows) > limit else None
    return KeyPage([(_key(row), spent.get(row["id"], Use())) for row in shown], following)


def revoke(connection: Connection, id: str, now_ms: int) -> tuple[BenchKey, Use] | None:
    mine = bench_keys.c.id == storable(id)
    connection.execute(bench_keys.update().where(mine, bench_keys.c.revoked_ms.is_(None)).values(revoked_ms=now_ms))
    row = connection.execute(sa.select(bench_keys).where(mine)).mappings().first()
    return None if row is None else (_key(row), _spent(connection, id, now_ms))


def count(connection: Connection, key: BenchKey, now_ms: int) -> None:
    """Raises Overloaded."""
    mine = bench_keys.c.id == key.id
    values = {"last_used_ms": now_ms}
    if (limit := key.limits.requests_a_minute) is not None:
        row = connection.execute(sa.select(bench_keys.c.minute_ms, bench_keys.c.minute_requests).where(mine)).first()
        minute = Minute() if row is None else Minute(integer(row.minute_ms), integer(row.minute_requests))
        minute = counted(minute, limit, now_ms)
        values |= {"minute_ms": minute.start_ms, "minute_requests": minute.requests}
    connection.execute(bench_keys.update().where(mine).values(values))


def hold(connection: Connection, id: str, key: BenchKey, most: Use, until_ms: int, now_ms: int) -> None:
    """Raises BudgetSpent, Overloaded. What a process that died has set aside is free again when its time is over."""
    mine = key_holds.c.key == key.id
    connection.execute(key_holds.delete().where(mine, key_holds.c.until_ms <= now_ms))
    rows = connection.execute(sa.select(key_holds).where(mine)).mappings()
    held = sum((_use(row) for row in rows), Use())
    check_day(key.limits, _spent(connection, key.id, now_ms), held, now_ms)
    row = {"id": id, "key": key.id, "tokens": most.tokens, "cost": most.cost, "until_ms": until_ms}
    connection.execute(key_holds.insert(), row)


def let_go(connection: Connection, hold: str) -> None:
    connection.execute(key_holds.delete().where(key_holds.c.id == hold))


def _spent(connection: Connection, id: str, now_ms: int) -> Use:
    today = sa.select(key_days).where(key_days.c.key == id, key_days.c.day == day_of(now_ms))
    row = connection.execute(today).mappings().first()
    return Use() if row is None else _use(row)


def _upsert(insert: Any) -> Any:
    new = insert(key_days)
    added = {name: key_days.c[name] + new.excluded[name] for name in ("tokens", "cost")}
    return new.on_conflict_do_update(index_elements=list(key_days.primary_key), set_=added)


def _key(row: RowMapping) -> BenchKey:
    return BenchKey(
        id=row["id"],
        name=row["name"],
        digest=row["digest"],
        last_four=row["last_four"],
        at_ms=integer(row["at_ms"]),
        collections=None if row["collections"] is None else _names(row["collections"]),
        limits=Limits(_whole(row["requests_a_minute"]), _whole(row["tokens_a_day"]), _price(row["cost_a_day"])),
        expires_ms=_whole(row["expires_ms"]),
        revoked_ms=_whole(row["revoked_ms"]),
        last_used_ms=_whole(row["last_used_ms"]),
    )


def _names(text: str) -> tuple[str, ...]:
    """A list that cannot be read allows nothing."""
    return tuple(name for name in loaded(text, []) if isinstance(name, str))


def _whole(value: object) -> int | None:
    """What is no number is 0: a limit that lets nothing through, a time that is over."""
    return None if value is None else integer(value)


def _price(value: object) -> float | None:
    return None if value is None else _cost(value)


def _use(row: Mapping[str, Any] | RowMapping) -> Use:
    return Use(integer(row["tokens"]), dollars(_cost(row["cost"])))


def _cost(value: object) -> float:
    """What a model's server said of its price may be anything."""
    return float(value) if isinstance(value, int | float) and 0 <= value < float("inf") else 0.0
