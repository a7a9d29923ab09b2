"""Panels and answers as the ledger is given them, and what it must make of them."""

import itertools
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from bench_proxy.ids import call_id
from bench_proxy.ledger.schema import COUNTERS, conversations, seats, sums, turns
from bench_proxy.panel.seats import Answer, Report, Seat, SeatError, Seating, Skipped

_numbers = itertools.count(1)


def seating(*aliases: str, owner: str = "", **more: Any) -> Seating:
    """A panel of an id of its own, with these members."""
    panel = f"p20260301-120005-{next(_numbers):016}"
    return Seating(
        **{
            "panel": panel,
            "collection": "core",
            "model": "bench/core",
            "reply": "all",
            "shape": "general",
            "shape_by": "default",
            "seats": tuple(Seat(call_id(panel, "member", n), "member", a) for n, a in enumerate(aliases, 1)),
            "skipped": (),
            **more,
        }
    )


def answer(of: Seating, number: int = 0, status: str = "ok", **more: Any) -> Answer:
    """What became of the seat of this number."""
    known: dict[str, Any] = {"text": "Yes."} if status == "ok" else {}
    if status == "error":
        known["error"] = SeatError(500, "server_error", "broken")
    return Answer(of.seats[number], status, 1.5, **{**known, **more})  # type: ignore[arg-type]


def report(of: Seating, *answers: Answer, note: str = "") -> Report:
    return Report(of, answers, 2.0, note)


def skipped(alias: str) -> Skipped:
    return Skipped("member", alias, "cannot see images")


Key = tuple[str, str, str, str]


def counted(connection: Connection) -> dict[Key, dict[str, int]]:
    """The sums as they are kept, without lines that count nothing."""
    lines = {
        (row["collection"], row["owner"], row["alias"], row["shape"]): {n: row[n] for n in COUNTERS if row[n]}
        for row in connection.execute(sa.select(sums)).mappings()
    }
    return {key: line for key, line in lines.items() if line}


def recounted(connection: Connection) -> dict[Key, dict[str, int]]:
    """The sums as the rows say they must be."""
    lines: dict[Key, Counter[str]] = {}
    for row in connection.execute(sa.select(seats)).mappings():
        for collection, owner in (("", ""), (row["collection"], row["owner"])):
            lines.setdefault((collection, owner, row["alias"], row["shape"]), Counter()).update(_counts(row))
    of_turns = sa.select(turns, *(conversations.c[name] for name in ("collection", "owner", "shape")))
    for row in connection.execute(of_turns.join_from(turns, conversations, on_conversation)).mappings():
        for alias, counts in _counts_of_turn(row):
            for collection, owner in (("", ""), (row["collection"], row["owner"])):
                lines.setdefault((collection, owner, alias, row["shape"]), Counter()).update(counts)
    return {key: {name: n for name, n in line.items() if n} for key, line in lines.items()}


on_conversation = turns.c.conversation == conversations.c.id


def _counts_of_turn(row: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, int]]]:
    if row["alias"] and row["status"] != "error":
        yield row["alias"], {"turns": 1}
    failed: dict[str, list[str]] = {}
    for each in json.loads(row["failed_over"]):
        failed.setdefault(each["alias"], []).append(each["error"]["type"])
    for alias, types in failed.items():
        at_fault = not set(types) <= {"cancelled", "context_window", "tools", "bad_request"}
        yield alias, {"failovers": len(types), "seated": at_fault, "failed": at_fault}


def _counts(row: Mapping[str, Any]) -> dict[str, int]:
    return {
        "seated": 1,
        "answered": row["status"] == "ok",
        "empty": row["status"] == "empty",
        "failed": row["status"] == "error",
        "late": bool(row["late"]),
        "useful": row["useful"] is True,
        "not_useful": row["useful"] is False,
        "claims_held": len(json.loads(row["real"])) if row["useful"] is not None else 0,
        "claims_failed": len(json.loads(row["false"])) if row["useful"] is not None else 0,
    }
