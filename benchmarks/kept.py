"""A ledger that holds much already: answers of panels, verdicts on them, and conversations."""

from collections.abc import Iterator
from multiprocessing import get_context
from typing import Any

from bench_proxy.ids import call_id
from bench_proxy.ledger.database import migrate, open_engines
from bench_proxy.ledger.pruning import DAY_MS
from bench_proxy.ledger.schema import conversations, panels, seats, turns, verdicts
from bench_proxy.ledger.values import now_ms

SEATS = 5
"""Of a panel."""

TEXT = "An answer of some length, as models give them. " * 40
AT_ONCE = 1000


def fill(url: str, answers: int, *, talks: int = 0) -> None:
    """Make the ledger, with so many answers of panels and so many conversations of one turn. In a process of its own,
    whose memory goes with it.
    """
    filling = get_context("spawn").Process(target=_fill, args=(url, answers // SEATS, talks))
    filling.start()
    filling.join()
    if filling.exitcode:
        raise RuntimeError(f"the ledger {url} was not filled")


def call(number: int) -> str:
    """The call of an answer, of those that `fill` has made."""
    return call_id(_name("p", number // SEATS), "member", number % SEATS + 1)


def _fill(url: str, panel_count: int, talks: int) -> None:
    writer, reader = open_engines(url)
    migrate(writer)
    for numbers in _batches(panel_count):
        with writer.begin() as connection:
            connection.execute(panels.insert(), [_panel(number) for number in numbers])
            connection.execute(seats.insert(), [row for number in numbers for row in _seats(number)])
            connection.execute(verdicts.insert(), [_verdict(number) for number in numbers])
    for numbers in _batches(talks):
        with writer.begin() as connection:
            connection.execute(conversations.insert(), [_conversation(number) for number in numbers])
            connection.execute(turns.insert(), [_turn(number) for number in numbers])
    for engine in (writer, reader):
        engine.dispose()


def _batches(count: int) -> Iterator[range]:
    return (range(start, min(start + AT_ONCE, count)) for start in range(0, count, AT_ONCE))


def _panel(number: int) -> dict[str, Any]:
    """Two days old; the last ones are the youngest."""
    row = {"owner": "o", "collection": "core", "model": "bench/core", "reply": "all", "shape": "general"}
    row |= {"shape_by": "default", "asked": TEXT, "skipped": "[]", "note": ""}
    return {**row, "id": _name("p", number), "at_ms": now_ms() - 2 * DAY_MS, "partial": False, "seconds": 1.0}


def _seats(number: int) -> Iterator[dict[str, Any]]:
    for seat in range(1, SEATS + 1):
        panel = _name("p", number)
        row = {"call": call_id(panel, "member", seat), "panel": panel, "number": seat, "owner": "o"}
        row |= {"at_ms": now_ms() - 2 * DAY_MS, "collection": "core", "shape": "general", "kind": "member", "mask": ""}
        row |= {"alias": f"model-{seat}", "status": "ok", "late": False, "seconds": 1.0, "answer": TEXT, "note": ""}
        yield {**row, "real": "[]", "false": "[]", "judged_by": ""}


def _verdict(number: int) -> dict[str, Any]:
    row = {"call": call_id(_name("p", number), "member", 1), "at_ms": now_ms(), "owner": "o", "useful": True}
    return {**row, "note": "", "real": "[]", "false": "[]", "judged_by": ""}


def _conversation(number: int) -> dict[str, Any]:
    at = now_ms() - 2 * DAY_MS
    row = {"id": _name("r", number), "sticky": f"{number:064x}", "sticky_by": "fingerprint", "owner": "o"}
    row |= {"collection": "core", "model": "bench/core:route", "shape": "general", "alias": "model-1"}
    return {**row, "at_ms": at, "last_ms": at, "turns": 1}


def _turn(number: int) -> dict[str, Any]:
    row = {"conversation": _name("r", number), "turn": 1, "at_ms": now_ms() - 2 * DAY_MS, "number": 1}
    row |= {"call": f"{_name('r', number)}.1", "alias": "model-1", "status": "ok", "seconds": 1.0, "tool_calls": 0}
    return {**row, "failed_over": "[]", "skipped": "[]", "left_out": "[]"}


def _name(kind: str, number: int) -> str:
    return f"{kind}20260101-000000-{number:016}"
