"""Rows of the ledger as callers see them, whatever an operator or another program has made of the rows."""

import json
import math
from collections.abc import Sequence
from typing import Any

from sqlalchemy.engine import RowMapping

from bench_proxy.errors import InvalidRequest
from bench_proxy.marks import Mark
from bench_proxy.upstream import dollars

SHOWN = (
    "call",
    "alias",
    "status",
    "late",
    "seconds",
    "first_token_seconds",
    "prompt_tokens",
    "completion_tokens",
    "cost",
    "finish_reason",
)
"""The columns of a seat that its JSON shows by their own names."""


def panel_json(row: RowMapping, of_panel: Sequence[RowMapping], *, answers: bool) -> dict[str, Any]:
    """A panel with its seats, in their order; their answers where they are wanted."""
    over = row["partial"] is not None
    # Nothing is left to be judged without knowing whose it is.
    open_book = over and not any(s["status"] == "late" or (s["status"] == "ok" and hidden(s)) for s in of_panel)
    best = [seat["call"] for seat in of_panel if seat["preferred"]]
    return {
        "panel": row["id"],
        "at": integer(row["at_ms"]) / 1000,
        "collection": f"bench/{row['collection']}",
        "reply": row["reply"],
        "shape": row["shape"],
        "shape_by": row["shape_by"],
        "asked": row["asked"],
        "over": over,
        "partial": row["partial"],
        "seconds": _shown("seconds", row["seconds"]),
        "seats": [_seat_json(seat, answer=answers, hidden=hidden(seat) and not open_book) for seat in of_panel],
        "skipped": loaded(row["skipped"], []),
        **({"best": best[0]} if best else {}),
        **({"note": row["note"]} if row["note"] else {}),
    }


def hidden(seat: RowMapping) -> bool:
    """Whether nobody is to know whose it is. A blind panel's seat keeps its letter until it was judged."""
    return bool(seat["mask"]) and seat["judged_ms"] is None


def _seat_json(seat: RowMapping, *, answer: bool, hidden: bool) -> dict[str, Any]:
    shown: dict[str, Any] = {"seat": "blind" if hidden else seat["kind"]}
    values = {name: _shown(name, seat[name]) for name in SHOWN}
    shown |= {name: value for name, value in values.items() if value is not None}
    if hidden:  # what it cost, and what its error says, would name it
        shown["alias"] = seat["mask"]
        shown.pop("cost", None)
    if answer and seat["answer"]:
        shown["answer"] = seat["answer"]
    if seat["error"]:
        error = loaded(seat["error"], {})
        shown["error"] = {**error, "message": error.get("type", "")} if hidden else error
    shown["owed"] = seat["status"] == "ok" and mark_of(seat).owed
    if seat["judged_ms"] is not None:
        shown["verdict"] = {
            "useful": seat["useful"],
            "note": seat["note"],
            "real": loaded(seat["real"], []),
            "false": loaded(seat["false"], []),
            "by": seat["judged_by"],
            "at": integer(seat["judged_ms"]) / 1000,
            **({"preferred": seat["preferred"]} if seat["preferred"] is not None else {}),
        }
    return shown


TURN_SHOWN = (
    "turn",
    "call",
    "alias",
    "status",
    "seconds",
    "first_piece_seconds",
    "tool_calls",
    "finish_reason",
    "prompt_tokens",
    "completion_tokens",
    "cached_tokens",
    "cache_write_tokens",
    "reasoning_tokens",
    "cost",
)
"""The columns of a turn that its JSON shows by their own names, as far as they are known."""


def conversation_json(
    row: RowMapping, calls: Sequence[RowMapping], history: Sequence[RowMapping] | None = None
) -> dict[str, Any]:
    """A conversation with its calls, in their order; with the history of its turns also what was answered last. What
    shadows cost stands apart from it.
    """
    shadows = [_shadow_json(call, answer=history is not None) for call in calls if call["kind"] == "shadow"]
    return {
        "conversation": row["id"],
        "at": integer(row["at_ms"]) / 1000,
        "last": integer(row["last_ms"]) / 1000,
        "collection": f"bench/{row['collection']}",
        "model": row["model"],
        "shape": row["shape"],
        "sticky_by": row["sticky_by"],
        "alias": row["alias"] or None,
        "turns": integer(row["turns"]),
        "calls": [_call_json(call, answer=history is not None) for call in calls if call["kind"] != "shadow"],
        **({"shadows": shadows} if shadows else {}),
        **({"history": [_turn_json(turn) for turn in history]} if history is not None else {}),
    }


def _call_json(call: RowMapping, *, answer: bool) -> dict[str, Any]:
    """A seat of no panel: what can only be said of those is left out."""
    shown = _seat_json(call, answer=answer, hidden=False)
    first = {"first_piece_seconds": shown.pop("first_token_seconds")} if "first_token_seconds" in shown else {}
    return {name: value for name, value in shown.items() if name not in {"seat", "status", "late"}} | first


def _shadow_json(call: RowMapping, *, answer: bool) -> dict[str, Any]:
    shown = _seat_json(call, answer=answer, hidden=False)
    return {"turn": integer(call["number"]), **{n: v for n, v in shown.items() if n not in {"seat", "late"}}}


def _turn_json(turn: RowMapping) -> dict[str, Any]:
    values = {name: _shown(name, turn[name]) for name in TURN_SHOWN}
    return {
        **{name: value for name, value in values.items() if value not in {None, ""}},
        "at": integer(turn["at_ms"]) / 1000,
        **{name: loaded(turn[name], []) for name in ("failed_over", "skipped", "left_out")},
    }


def mark_of(seat: RowMapping) -> Mark:
    real, false = (tuple(loaded(seat[name], [])) for name in ("real", "false"))
    return Mark(seat["alias"], seat["useful"], seat["preferred"], seat["note"], real, false, seat["judged_by"])


def cursor_of(row: RowMapping) -> str:
    return f"{row['at_ms']}.{row['id']}"


def place_of(cursor: str) -> tuple[int, str]:
    at_ms, _, panel = cursor.partition(".")
    if not (at_ms.isascii() and at_ms.isdigit() and len(at_ms) <= 15 and panel and "\0" not in panel):
        raise InvalidRequest(f"{cursor[:64]!r} is not a cursor: take it from `next` of the page before", param="cursor")
    return int(at_ms), panel


def loaded(text: Any, otherwise: Any) -> Any:
    """JSON that we wrote, or whatever an operator made of it."""
    try:
        value = json.loads(text)
    except (TypeError, ValueError):
        return otherwise
    return value if isinstance(value, type(otherwise)) else otherwise


def integer(value: Any) -> int:
    """SQLite's columns hold anything: text, and infinities too."""
    return int(value) if isinstance(value, int | float) and math.isfinite(value) else 0


def _shown(name: str, value: Any) -> Any:
    """The value of a column: seconds to the millisecond, as in the reply, and a sum of costs without its noise.

    JSON has no infinities and no bytes, and SQLite's columns may.
    """
    if isinstance(value, bytes):
        return None
    if not isinstance(value, float):
        return value
    if not math.isfinite(value):
        return None
    if name == "cost":
        return dollars(value)
    return round(value, 3) if name.endswith("seconds") else value
