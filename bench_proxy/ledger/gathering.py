"""Rows that the writes of one transaction add, gathered and sent together: a statement costs more than its rows."""

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from bench_proxy.ledger.schema import COUNTERS, panels, seats, turns

LATEST = ("last_seated_ms", "last_judged_ms")

Key = tuple[str, str, str, str]
"""Collection, owner, alias and shape of counts."""


class Gathering:
    """For one writer thread. What a transaction has gathered and never sent is gone when the next one gathers."""

    def __init__(self, add_panels: sa.Insert, add_to_sums: sa.Insert) -> None:
        """`add_panels` adds rows that are not there yet, `add_to_sums` a row of counts to the row of its key."""
        self._add_panels = _Prepared(add_panels)
        self._change_panels = _Prepared(panels.update().where(panels.c.id == sa.bindparam("of")))
        self._add_seats = _Prepared(seats.insert().inline())
        self._add_turns = _Prepared(turns.insert().inline())
        self._add_to_sums = _Prepared(add_to_sums)
        self._of: sa.engine.RootTransaction | None = None
        self._clear()

    def panel(self, connection: Connection, row: Mapping[str, Any]) -> None:
        self._begin(connection)
        self._panels.append(row)

    def change_panel(self, connection: Connection, change: Mapping[str, Any]) -> None:
        """`change` has the panel's id as `of`, and the columns that change, always the same ones."""
        self._begin(connection)
        self._changes.append(change)

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
        _add(self._sums, (collection, owner, alias, shape), change)

    def count_twice(
        self, connection: Connection, collection: str, owner: str, alias: str, shape: str, change: Mapping[str, int]
    ) -> None:
        """Add to the counters of the collection and key and to those over everything."""
        self._begin(connection)
        _add(self._twice, (collection, owner, alias, shape), change)

    def send(self, connection: Connection) -> None:
        """Whoever reads what may have been gathered sends it first."""
        if self._of is not connection.get_transaction():
            return
        self._add_panels(connection, self._panels)
        self._change_panels(connection, self._changes)
        self._add_seats(connection, self._seats)
        self._add_turns(connection, self._turns)
        for (collection, owner, alias, shape), change in self._twice.items():
            _add(self._sums, (collection, owner, alias, shape), change)
            _add(self._sums, ("", "", alias, shape), change)
        # In one order, whoever sends: two that lock rows crosswise would wait for each other.
        counted = sorted(self._sums.items())
        self._add_to_sums(connection, [_NOTHING | dict(zip(_KEY, key, strict=True)) | row for key, row in counted])
        self._clear()

    def _begin(self, connection: Connection) -> None:
        if self._of is not (of := connection.get_transaction()):
            self._of = of
            self._clear()

    def _clear(self) -> None:
        self._panels: list[Mapping[str, Any]] = []
        self._changes: list[Mapping[str, Any]] = []
        self._seats: list[Mapping[str, Any]] = []
        self._turns: list[Mapping[str, Any]] = []
        self._sums: dict[Key, dict[str, Any]] = {}
        self._twice: dict[Key, dict[str, Any]] = {}


class _Prepared:
    """One statement for many rows, which all name the same columns. SQLAlchemy writes its text once; the rows go to the
    driver as they are, since binding each of them by SQLAlchemy costs more than to write it.
    """

    def __init__(self, statement: sa.Insert | sa.Update) -> None:
        self._statement = statement
        self._text = ""

    def __call__(self, connection: Connection, rows: list[Mapping[str, Any]]) -> None:
        if not rows:
            return
        if not self._text:
            self._text = str(self._statement.compile(dialect=connection.dialect, column_keys=list(rows[0])))
        connection.exec_driver_sql(self._text, rows)


_KEY = ("collection", "owner", "alias", "shape")
_NOTHING = dict.fromkeys((*COUNTERS, *LATEST), 0)


def _add(sums: dict[Key, dict[str, Any]], key: Key, change: Mapping[str, int]) -> None:
    row = sums.setdefault(key, {})
    for name, value in change.items():
        row[name] = max(row.get(name, 0), value) if name in LATEST else row.get(name, 0) + value
