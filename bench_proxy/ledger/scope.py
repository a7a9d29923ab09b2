"""Whose rows a statement is about. An owner of None sees everything."""

import sqlalchemy as sa

from bench_proxy.ledger.values import storable


def owned(table: sa.Table, owner: str | None) -> list[sa.ColumnElement[bool]]:
    return [] if owner is None else [table.c.owner == owner]


def within(table: sa.Table, collection: str | None, owner: str | None) -> list[sa.ColumnElement[bool]]:
    """The rows of `sums` or `wins` for a collection and a key, None being any."""
    if collection is None and owner is None:
        return [table.c.collection == "", table.c.owner == ""]
    of_collection = table.c.collection != "" if collection is None else table.c.collection == storable(collection)
    return [of_collection, *owned(table, owner)]
