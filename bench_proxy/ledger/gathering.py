"""Rows that the writes of one transaction add, gathered and sent together: a statement costs more than its rows."""

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from bench_proxy.ledger.schema import COUNTERS, seats, turns

LATEST = ("last_seated_ms", "last_judged_ms")

_ADD_SEATS = seats.insert()
_ADD_TURNS = turns.insert()


class Gathering:
    """For one writer thread. What a transaction has gathered and never sent is gone when the next one gathers."""

    def __init__(self, add_to_sums: Any) -> None:
        """`add_to_sums` adds a row of counts to the row of `sums` that has its key."""
        self._add_to_sums = add_to_sums
        self._of: sa.engine.RootTransaction | None = None
        self._seats: list[Mapping[str, Any]] = []
        self._turns: list[Mapping[str, Any]] = []
        self._sums: dict[tuple[str, str, str, str], dict[str, Any]] = {}

    def seat(self, connection: Connection, row: Mapping[str, Any]) -> None:
        self._begin(connection)
        self._seats.append(row)

    def turn(self, connection: Connection, row: Mapping[str, Any]) -> None:
        self._begin(connection)
        self._turns.append(row)

    def count(
        self, connection: Connection, collection: str, owner: str, alias: str, shape: str, change: Mapping[str, int]
    ) -> None:
        """Add to counters; of the times, keep the latest."""
        self._begin(connection)
        row = self._sums.setdefault((collection, owner, alias, shape), dict.fromkeys((*COUNTERS, *LATEST), 0))
        for name, value in change.items():
            row[name] = max(row[name], value) if name in LATEST else row[name] + value

    def send(self, connection: Connection) -> None:
        """Whoever reads what may have been gathered sends it first."""
        if self._of is not connection.get_transaction():
            return
        if self._seats:
            connection.execute(_ADD_SEATS, self._seats)
        if self._turns:
            connection.execute(_ADD_TURNS, self._turns)
        if self._sums:
            # In one order, whoever sends: two that lock rows crosswise would wait for each other.
            keys = ("collection", "owner", "alias", "shape")
            rows = [dict(zip(keys, key, strict=True)) | row for key, row in sorted(self._sums.items())]
            connection.execute(self._add_to_sums, rows)
        self._seats, self._turns, self._sums = [], [], {}

    def _begin(self, connection: Connection) -> None:
        if self._of is not (of := connection.get_transaction()):
            self._of, self._seats, self._turns, self._sums = of, [], [], {}
