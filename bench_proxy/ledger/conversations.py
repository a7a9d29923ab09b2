"""Conversations in the ledger: their turns, the calls of the models that answered, and who answers now.

A call is a row of `seats` of the kind `route`, whose panel is the conversation: so verdicts, what is owed and the sums
are those of any answer. Its tokens, cost and seconds are those of all its turns together, its text is the last that the
model said. Nothing of what was asked is kept.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

import sqlalchemy as sa
from sqlalchemy.engine import Connection, RowMapping

from bench_proxy.bench import Page
from bench_proxy.errors import InvalidRequest, NotFound
from bench_proxy.ledger.gathering import Gathering
from bench_proxy.ledger.schema import conversations, seats, turns
from bench_proxy.ledger.scope import owned
from bench_proxy.ledger.showing import conversation_json, cursor_of, integer, place_of
from bench_proxy.ledger.values import MOST_INTEGER, added, counted, storable
from bench_proxy.route.keeping import Pin, TurnReport
from bench_proxy.route.shadows import Shadow

ROUTE = "route"
"""The kind of a seat that is a call of a conversation."""

SHADOW = "shadow"
"""The kind of one that answered a turn only to be judged."""

OF_TURNS = (ROUTE, SHADOW)

NO_FAULT = frozenset({"cancelled", "context_window", "tools", "bad_request"})
"""Errors that say nothing of how well a model works: another one of the same size would have had them too."""

MOST_CALLS = 1000
"""Numbers above it are none that were given: no collection has so many members."""


# Made once: to put a statement together costs as much as to run it.
_ADD_CALL = seats.insert()
_CHANGE_CALL = seats.update().where(seats.c.call == sa.bindparam("of"))
_TURNS = sa.select(conversations.c.turns).where(conversations.c.id == sa.bindparam("of"))
_CALL = (
    sa.select(seats)
    .where(seats.c.panel == sa.bindparam("of"), seats.c.kind == ROUTE, seats.c.alias == sa.bindparam("by"))
    .order_by(seats.c.number)
    .limit(1)
)
_ALIASES = (
    sa.select(turns.c.number, turns.c.alias)
    .where(turns.c.conversation == sa.bindparam("of"), turns.c.number.between(1, MOST_CALLS))
    .group_by(turns.c.number, turns.c.alias)
    .order_by(turns.c.number, sa.func.min(turns.c.id))
)


class Count(Protocol):
    def __call__(self, connection: Connection, seat: Mapping[str, Any], **change: int) -> None:
        """Change the sums that a seat counts in, in the same transaction."""
        ...


class Turns:
    """Writes turns. Whoever writes holds the write lock: what was read in the same transaction still stands."""

    def __init__(self, insert: Any, gathering: Gathering, count: Count, *, returning: bool) -> None:
        """`insert` is the dialect's; `returning` says that the database tells what a statement has written."""
        self._add_conversation = _upsert(insert)
        self._count_turn = self._add_conversation.returning(conversations.c.turns) if returning else None
        self._gathering = gathering
        self._count = count

    def write(self, connection: Connection, report: TurnReport, owner: str, *, keep_text: bool) -> TurnReport:
        """Returns the turn with the numbers that it has on the record: its place among the turns that are recorded, and
        the call that its model has already, or a new one. Two turns that are taken at the same time, or by processes
        that know nothing of each other, think of the same.
        """
        report = replace(report, turn=self._counted_turn(connection, report, owner))
        kept: RowMapping | None = None
        if report.call:
            mine = {"of": report.conversation, "by": storable(report.alias)[:256]}
            kept = connection.execute(_CALL, mine).mappings().first()
            number = self._new_number(connection, report) if kept is None else integer(kept["number"])
            report = replace(report, number=number, call=f"{report.conversation}.{number}")
        self._gathering.turn(connection, _turn_row(report))
        if report.call:
            self._write_call(connection, report, kept, _call_row(report, owner, keep_text=keep_text))
        self._count_failures(connection, report, owner)
        return report

    def _counted_turn(self, connection: Connection, report: TurnReport, owner: str) -> int:
        """The turn's place; SQLite before 3.35 has to be asked for it."""
        row = _conversation_row(report, owner)
        if self._count_turn is not None:
            taken = connection.execute(self._count_turn, row).scalar()
        else:
            connection.execute(self._add_conversation, row)
            taken = connection.execute(_TURNS, {"of": report.conversation}).scalar()
        return min(integer(taken), MOST_INTEGER)

    def _new_number(self, connection: Connection, report: TurnReport) -> int:
        """Of a model whose answer none of the conversation's calls is."""
        if report.turn == 1:
            return report.number
        # From the turns, since a caller was also told the call of one that came to nothing.
        self._gathering.send(connection)
        given = _aliases(connection, report.conversation)
        if (alias := storable(report.alias)[:256]) in given:
            return given.index(alias) + 1
        free = report.number > len(given) or not given[report.number - 1]
        return report.number if free else len(given) + 1

    def write_shadow(self, connection: Connection, shadow: Shadow, owner: str, *, keep_text: bool) -> None:
        row = _shadow_row(shadow, owner, keep_text=keep_text)
        connection.execute(_ADD_CALL, row)
        stopped = shadow.error is not None and shadow.error.kind in NO_FAULT
        outcome = {"ok": "answered", "empty": "empty", "error": "failed"}[row["status"]]
        if not stopped:
            self._count(connection, row, seated=1, **{outcome: 1})

    def _write_call(
        self, connection: Connection, report: TurnReport, kept: RowMapping | None, row: Mapping[str, Any]
    ) -> None:
        """A turn that came to nothing begins no call; of a call that there is it has used something all the same."""
        counts = {} if report.status == "error" else {"turns": 1, "last_seated_ms": report.at_ms}
        if kept is not None:
            changed = _together(kept, row, anew=report.status != "error")
            connection.execute(_CHANGE_CALL, {"of": kept["call"], **changed})
        elif report.status == "ok" or (report.status == "cancelled" and report.reply.text):
            connection.execute(_ADD_CALL, row)
            counts |= {"seated": 1, "answered": 1}
        if counts:
            self._count(connection, row, **counts)

    def _count_failures(self, connection: Connection, report: TurnReport, owner: str) -> None:
        """Once a model and turn, however often it was tried."""
        tries = Counter(failed.alias for failed in report.failed_over)
        at_fault = {failed.alias for failed in report.failed_over if failed.type not in NO_FAULT}
        for alias, times in tries.items():
            failed = {"seated": 1, "failed": 1, "last_seated_ms": report.at_ms} if alias in at_fault else {}
            self._count(connection, _counted_in(report, owner, alias), failovers=times, **failed)


def _upsert(insert: Any) -> Any:
    """The first turn says what a conversation is, each one that it goes on and who answers."""
    new = insert(conversations)
    later = new.excluded.last_ms > conversations.c.last_ms
    changed = {
        "last_ms": sa.case((later, new.excluded.last_ms), else_=conversations.c.last_ms),
        "alias": sa.case((new.excluded.alias != "", new.excluded.alias), else_=conversations.c.alias),
        "turns": conversations.c.turns + 1,
    }
    return new.on_conflict_do_update(index_elements=[conversations.c.id], set_=changed)


def _ended_ms(report: TurnReport) -> int:
    return report.at_ms + round(1000 * report.seconds)


def _counted_in(report: TurnReport, owner: str, alias: str) -> dict[str, str]:
    """What says in which sums a model counts."""
    collection, shape = storable(report.collection)[:64], storable(report.shape)[:32]
    return {"collection": collection, "owner": owner, "alias": storable(alias)[:256], "shape": shape}


def _conversation_row(report: TurnReport, owner: str) -> dict[str, Any]:
    return {
        **_counted_in(report, owner, report.alias),
        "id": report.conversation,
        "sticky": report.sticky,
        "sticky_by": report.sticky_by,
        "model": storable(report.model)[:256],
        "at_ms": report.at_ms,
        "last_ms": _ended_ms(report),
        "turns": 1,
    }


def _turn_row(report: TurnReport) -> dict[str, Any]:
    reply = report.reply
    return {
        "conversation": report.conversation,
        "turn": report.turn,
        "at_ms": report.at_ms,
        "call": report.call,
        "number": report.number,
        "alias": storable(report.alias)[:256],
        "status": report.status,
        "seconds": report.seconds,
        "first_piece_seconds": report.first_piece_seconds,
        "tool_calls": report.tool_calls,
        "finish_reason": _finish_reason(report),
        "prompt_tokens": counted(reply.prompt_tokens),
        "completion_tokens": counted(reply.completion_tokens),
        "cached_tokens": counted(reply.cached_tokens),
        "cache_write_tokens": counted(reply.cache_write_tokens),
        "reasoning_tokens": counted(reply.reasoning_tokens),
        "cost": reply.cost,
        "failed_over": json.dumps([failed.as_json() for failed in report.failed_over]),
        "skipped": json.dumps([skipped.as_json() for skipped in report.skipped]),
        "left_out": json.dumps(list(report.left_out)),
    }


def _call_row(report: TurnReport, owner: str, *, keep_text: bool) -> dict[str, Any]:
    reply = report.reply
    return {
        **_counted_in(report, owner, report.alias),
        "call": report.call,
        "panel": report.conversation,
        "number": report.number,
        "at_ms": _ended_ms(report),
        "kind": ROUTE,
        "mask": "",
        "status": "ok",
        "late": False,
        "seconds": report.seconds,
        "first_token_seconds": report.first_piece_seconds,
        "prompt_tokens": counted(reply.prompt_tokens),
        "completion_tokens": counted(reply.completion_tokens),
        "cost": reply.cost,
        "finish_reason": _finish_reason(report),
        "answer": storable(reply.text) if keep_text else "",
        "error": None,
        "note": "",
        "real": "[]",
        "false": "[]",
        "judged_by": "",
    }


def _shadow_row(shadow: Shadow, owner: str, *, keep_text: bool) -> dict[str, Any]:
    reply, error = shadow.reply, shadow.error
    told = None if error is None else {"status": error.status, "type": error.kind, "message": error.message}
    return {
        "collection": storable(shadow.collection)[:64],
        "owner": owner,
        "alias": storable(shadow.alias)[:256],
        "shape": storable(shadow.shape)[:32],
        "call": shadow.call,
        "panel": shadow.conversation,
        "number": shadow.turn,
        "at_ms": shadow.at_ms,
        "kind": SHADOW,
        "mask": "",
        "status": "error" if error is not None else "ok" if shadow.answer else "empty",
        "late": False,
        "seconds": shadow.seconds,
        "first_token_seconds": None,
        "prompt_tokens": counted(reply.prompt_tokens),
        "completion_tokens": counted(reply.completion_tokens),
        "cost": reply.cost,
        "finish_reason": storable(reply.finish_reason or "")[:64] or None,
        "answer": storable(shadow.answer) if keep_text else "",
        "error": None if told is None else storable(json.dumps(told)),
        "note": "",
        "real": "[]",
        "false": "[]",
        "judged_by": "",
    }


def _finish_reason(report: TurnReport) -> str | None:
    return storable(report.reply.finish_reason or "")[:64] or None


def _together(kept: RowMapping, row: Mapping[str, Any], *, anew: bool) -> dict[str, Any]:
    """What changes in the row of a call by one more turn; a turn that only called tools leaves what was said."""
    summed = {name: added(kept[name], row[name]) for name in ("seconds", "cost")}
    for name in ("prompt_tokens", "completion_tokens"):
        total = added(kept[name], row[name])
        summed[name] = None if total is None else min(int(total), MOST_INTEGER)
    last = {name: row[name] for name in ("answer", "finish_reason") if row[name]} if anew else {}
    return {**summed, **last}


def pinned(connection: Connection, sticky: str, since_ms: int) -> Pin | None:
    found = (
        sa.select(conversations)
        .where(conversations.c.sticky == sticky, conversations.c.last_ms >= since_ms)
        .order_by(conversations.c.last_ms.desc(), conversations.c.id.desc())
        .limit(1)
    )
    row = connection.execute(found).mappings().first()
    if row is None:
        return None
    return Pin(row["id"], row["alias"], _aliases(connection, row["id"]), integer(row["turns"]))


def _aliases(connection: Connection, conversation: str) -> tuple[str, ...]:
    """By number. From the turns, since a caller was also told the call of one that came to nothing; what was never
    written leaves its number empty, so that it is not given again.
    """
    alias_of: dict[int, str] = {}
    for row in connection.execute(_ALIASES, {"of": conversation}):
        alias_of.setdefault(integer(row.number), row.alias)
    return tuple(alias_of.get(number, "") for number in range(1, max(alias_of, default=0) + 1))


def page(connection: Connection, limit: int, cursor: str | None, collection: str | None, owner: str | None) -> Page:
    newest = (conversations.c.at_ms.desc(), conversations.c.id.desc())
    query = sa.select(conversations).where(*owned(conversations, owner)).order_by(*newest).limit(limit + 1)
    if collection is not None:
        query = query.where(conversations.c.collection == storable(collection))
    if cursor is not None:
        query = query.where(sa.tuple_(conversations.c.at_ms, conversations.c.id) < sa.tuple_(*place_of(cursor)))
    rows = connection.execute(query).mappings().all()
    following = cursor_of(rows[limit - 1]) if len(rows) > limit else None
    shown = rows[:limit]
    calls: dict[str, list[RowMapping]] = {row["id"]: [] for row in shown}
    # Without the answers, which a list does not show.
    columns = [column for column in seats.c if column.name != "answer"]
    found = sa.select(*columns).where(seats.c.panel.in_(calls)).order_by(seats.c.number)
    for call in connection.execute(found).mappings():
        calls[call["panel"]].append(call)
    return Page([conversation_json(row, calls[row["id"]]) for row in shown], following)


def one(connection: Connection, conversation: str, owner: str | None) -> Mapping[str, Any] | None:
    row = _found(connection, conversation, owner)
    if row is None:
        return None
    of_turns = sa.select(turns).where(turns.c.conversation == row["id"]).order_by(turns.c.turn, turns.c.id)
    calls = _calls(connection, row["id"], *OF_TURNS)
    return conversation_json(row, calls, connection.execute(of_turns).mappings().all())


def exists(connection: Connection, conversation: str, owner: str | None) -> bool:
    return _found(connection, conversation, owner) is not None


def call_named(connection: Connection, name: str, owner: str | None) -> str:
    """The call that a verdict means: a conversation's id stands for its only call, any other name for itself.

    Raises NotFound for a conversation that nobody has answered, InvalidRequest where several models have.
    """
    if "." in name or not exists(connection, name, owner):
        return name
    calls = _calls(connection, name, ROUTE)
    if not calls:
        raise NotFound(f"no model has answered in conversation {name} yet", param="call")
    if len(calls) > 1:
        listed = ", ".join(f"{call['call']} ({call['alias']})" for call in calls)
        raise InvalidRequest(
            f"{len(calls)} models answered in conversation {name}; judge each by its own call: {listed}", param="call"
        )
    return str(calls[0]["call"])


def _found(connection: Connection, conversation: str, owner: str | None) -> RowMapping | None:
    found = sa.select(conversations).where(conversations.c.id == storable(conversation), *owned(conversations, owner))
    return connection.execute(found).mappings().first()


def _calls(connection: Connection, conversation: str, *kinds: str) -> Sequence[RowMapping]:
    found = sa.select(seats).where(seats.c.panel == conversation, seats.c.kind.in_(kinds)).order_by(seats.c.number)
    return connection.execute(found).mappings().all()
