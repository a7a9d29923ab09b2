"""The ledger over SQLite or PostgreSQL: every statement that bench-proxy sends."""

import asyncio
import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine, RowMapping
from sqlalchemy.exc import SQLAlchemyError

from bench_proxy.bench import Judged, Page, Picked
from bench_proxy.errors import InvalidRequest, LedgerUnavailable, NotFound
from bench_proxy.facts import Learned, Subject, learned
from bench_proxy.keys import BenchKey, KeyPage, Use
from bench_proxy.ledger import conversations, keys
from bench_proxy.ledger.conversations import OF_TURNS, Turns
from bench_proxy.ledger.database import migrate, open_engines
from bench_proxy.ledger.gathering import LATEST, Gathering
from bench_proxy.ledger.keys import Keys
from bench_proxy.ledger.pruning import Pruning
from bench_proxy.ledger.schema import COUNTERS, facts, panels, picks, seats, sums, verdicts, wins
from bench_proxy.ledger.scope import owned, within
from bench_proxy.ledger.showing import cursor_of, hidden, integer, loaded, mark_of, panel_json, place_of
from bench_proxy.ledger.values import now_ms, storable
from bench_proxy.ledger.writer import Writer
from bench_proxy.marks import Mark, Marks, Pick, judged, picked, tally
from bench_proxy.panel.seats import Answer, Report, Seating
from bench_proxy.records import Record, Sums, Verdict, record
from bench_proxy.route.keeping import Pin, TurnReport
from bench_proxy.route.shadows import Shadow

log = logging.getLogger("bench_proxy")

T = TypeVar("T")

COUNTED_AS = {"ok": "answered", "empty": "empty", "error": "failed", "late": "late"}

LISTED_CHARACTERS = 200
"""Of a request, in a list of panels."""

HEALTHY_WITHIN = 3.0
"""Seconds that a probe waits for the database."""

MOST_UNWRITTEN = 1000
"""Panels that are remembered while the ledger does not work; above it the oldest is given up."""

PROBE: Subject = ("", "")
"""The row that is written to find out whether one can be."""

FAR_MS = 60_000

MERGING = "merging"

# Made once: to put a statement together costs as much as to run it.
_LAST_SEATED = sa.select(sums.c.alias, sums.c.last_seated_ms).where(
    sums.c.collection == "", sums.c.owner == "", sums.c.shape == sa.bindparam("of")
)


class SqlLedger:
    """Implements `bench.Ledger`, `facts.FactStore` and `keys.KeyStore`. Use `open`; one instance a process, in
    one event loop.
    """

    def __init__(self, writing: Engine, reading: Engine, content: Callable[[], str]) -> None:
        self._writing = writing
        self._reading = reading
        self._content = content
        self._closed = False
        self._readers = ThreadPoolExecutor(max_workers=4, thread_name_prefix="bench-ledger-read")
        # Its own kind alone: the other database's is large.
        self._insert: Any = import_module(f"sqlalchemy.dialects.{writing.dialect.name}").insert
        self._unwritten: dict[str, Mapping[str, Any]] = {}
        self._lost: dict[str, str] = {}
        self._gathering = Gathering(self._insert(panels).on_conflict_do_nothing(), _upsert(self._insert))
        self._writer = Writer(writing, self._gathering.send)
        returning = writing.dialect.insert_returning
        self._turns = Turns(self._insert, self._gathering, self._count, returning=returning)
        self._keys = Keys(self._insert)
        self._add_to_wins = _upsert_wins(self._insert)
        self._add_to_facts = _upsert_facts(self._insert)
        self.pruning = Pruning(self._durable, self._add_to_facts)

    @classmethod
    async def open(cls, url: str, content: Callable[[], str]) -> "SqlLedger":
        """`content` says what may be kept now: full, answers or none. Raises LedgerUnavailable."""
        try:
            writing, reading = await asyncio.to_thread(open_engines, url)
            await asyncio.to_thread(migrate, writing)
        except (SQLAlchemyError, OSError, ValueError, ImportError) as error:
            detail = " ".join(str(getattr(error, "orig", None) or error).split())
            raise LedgerUnavailable(f"the ledger {_public(url)} cannot be opened: {detail}") from error
        return cls(writing, reading, content)

    async def close(self) -> None:
        """Commit what waits, then let go of the database."""
        self._closed = True
        ending = ThreadPoolExecutor(max_workers=1, thread_name_prefix="bench-ledger-end")
        await self._writer.close(ending)
        await asyncio.get_running_loop().run_in_executor(ending, self._readers.shutdown)
        ending.shutdown(wait=False)
        for engine in (self._writing, self._reading):
            engine.dispose()

    async def reserve(self, shape: str, choose: Callable[[Mapping[str, int]], Sequence[str]]) -> list[str]:
        def write(connection: Connection) -> list[str]:
            self._gathering.send(connection)
            rows = connection.execute(_LAST_SEATED, {"of": shape})
            seated = {row.alias: integer(row.last_seated_ms) for row in rows}
            chosen = list(choose(seated))
            at = _behind(now_ms(), seated.values())
            for alias in chosen:
                self._gathering.count(connection, "", "", alias, shape, {"last_seated_ms": at})
            return chosen

        return await self._durable(write)

    async def opened(self, seating: Seating, owner: str, asked: str, at_ms: int) -> None:
        row = {
            "id": seating.panel,
            "at_ms": at_ms,
            "owner": owner,
            "collection": seating.collection,
            "model": seating.model[:256],
            "reply": seating.reply,
            "shape": seating.shape,
            "shape_by": seating.shape_by,
            "asked": storable(asked),
            "skipped": json.dumps([s.as_json() for s in seating.skipped]),
            "partial": None,
            "seconds": None,
            "note": "",
        }
        failed = partial(self._not_opened, row)
        await self._writer.leave(lambda connection: self._gathering.panel(connection, row), failed)

    async def answered(
        self, seating: Seating, owner: str, answer: Answer, place: int, use: Use, *, late: bool, urgent: bool = True
    ) -> None:
        panel = seating.panel
        row = self._seat_row(seating, owner, answer, place, late=late)
        kind = self._write_late if late or answer.status == "late" else self._write_answer

        def write(connection: Connection) -> None:
            kind(connection, row, use)

        if not urgent and panel not in self._unwritten:
            await self._writer.leave(write, partial(self._not_answered, panel))
            return
        await self._durable_of(panel, write, urgent=urgent)
        self._tell_of_lost(panel)

    async def count_use(self, owner: str, use: Use) -> None:
        if keys.counts(owner, use):
            await self._durable(lambda connection: self._keys.count_use(connection, owner, use, now_ms()))

    async def closed(self, report: Report) -> None:
        panel = report.seating.panel
        values = {"partial": report.partial, "seconds": report.seconds, "note": report.note}
        if (row := self._unwritten.get(panel)) is not None:  # as whoever writes it then has to write it
            self._unwritten[panel] = {**row, **values}
        change = {"of": panel, **values}
        await self._durable_of(panel, lambda c: self._gathering.change_panel(c, change), urgent=False)
        self._tell_of_lost(panel)

    def _not_opened(self, row: Mapping[str, Any], error: Exception) -> None:
        """A row that could not be written is written with the next one of its panel: the ledger may work by then."""
        log.warning("panel %s is not on the record yet: %s", row["id"], error)
        if isinstance(error, LedgerUnavailable):  # else it never will be, and must not take its seats with it
            _remember(self._unwritten, row["id"], row)

    def _not_answered(self, panel: str, error: Exception) -> None:
        """Raised by what of the panel is waited for next."""
        log.warning("an answer of panel %s is not on the record: %s", panel, error)
        _remember(self._lost, panel, str(error))

    def _tell_of_lost(self, panel: str) -> None:
        if (why := self._lost.pop(panel, None)) is not None:
            raise LedgerUnavailable(f"an answer of {panel} is not on the record: {why}")

    async def _durable_of(self, panel: str, write: Callable[[Connection], T], *, urgent: bool) -> T:
        """A write about a panel, behind the panel's own row where that was lost."""
        if (row := self._unwritten.get(panel)) is None:
            return await self._durable(write, urgent=urgent)

        def both(connection: Connection) -> T:
            self._gathering.panel(connection, row)
            return write(connection)

        written = await self._durable(both, urgent=urgent)
        self._unwritten.pop(panel, None)
        return written

    async def took(self, report: TurnReport, owner: str) -> TurnReport:
        keep_text = report.keep_text and self._content() != "none"

        def write(connection: Connection) -> TurnReport:
            kept = self._turns.write(connection, report, owner, keep_text=keep_text)
            self._keys.count_use(connection, owner, report.use, now_ms())
            return kept

        return await self._durable(write)

    async def shadowed(self, shadow: Shadow, owner: str) -> None:
        keep_text = shadow.keep_text and self._content() != "none"
        await self._durable(lambda c: self._turns.write_shadow(c, shadow, owner, keep_text=keep_text))

    async def pinned(self, sticky: str, since_ms: int) -> Pin | None:
        return await self._read(lambda connection: conversations.pinned(connection, sticky, since_ms))

    async def judge(self, verdict: Verdict, owner: str | None) -> Judged:
        return await self._durable(lambda connection: self._write_verdict(connection, verdict, owner))

    async def pick(self, pick: Pick, owner: str | None) -> Picked:
        return await self._durable(lambda connection: self._write_pick(connection, pick, owner))

    async def owed(self, calls: Sequence[str], owner: str | None) -> list[str]:
        def read(connection: Connection) -> list[str]:
            found = sa.select(seats.c.call).where(
                seats.c.call.in_([storable(call) for call in calls]),
                seats.c.status == "ok",
                seats.c.useful.is_(None),
                seats.c.preferred.is_(None),
                *owned(seats, owner),
            )
            owed = set(connection.execute(found).scalars())
            return [call for call in dict.fromkeys(calls) if call in owed]

        return await self._read(read)

    async def record(self, collection: str | None, owner: str | None) -> list[Record]:
        query = (
            sa.select(sums.c.alias, sums.c.shape, *_summed())
            .where(*within(sums, collection, owner))
            .group_by(sums.c.alias, sums.c.shape)
            .order_by(sums.c.alias, sums.c.shape)
        )

        def read(connection: Connection) -> list[Record]:
            return [record(Sums(**_integers(row))) for row in connection.execute(query).mappings()]

        return await self._read(read)

    async def totals(self) -> list[tuple[str, Sums]]:
        of = (sums.c.collection, sums.c.alias)
        query = sa.select(*of, *_summed()).where(sums.c.collection != "").group_by(*of).order_by(*of)

        def read(connection: Connection) -> list[tuple[str, Sums]]:
            found = []
            for row in connection.execute(query).mappings():
                counts = {name: value for name, value in row.items() if name != "collection"}
                found.append((row["collection"], Sums(shape="", **_integers(counts))))
            return found

        return await self._read(read)

    async def wins(self, collection: str | None, owner: str | None) -> dict[str, dict[tuple[str, str], int]]:
        pair = (wins.c.shape, wins.c.winner, wins.c.loser)
        query = (
            sa.select(*pair, _total(wins.c.times).label("times"))
            .where(*within(wins, collection, owner))
            .group_by(*pair)
        )

        def read(connection: Connection) -> dict[str, dict[tuple[str, str], int]]:
            of_shape: dict[str, dict[tuple[str, str], int]] = {}
            for row in connection.execute(query):
                of_shape.setdefault(row.shape, {})[row.winner, row.loser] = integer(row.times)
            return of_shape

        return await self._read(read)

    async def panels(self, limit: int, cursor: str | None, collection: str | None, owner: str | None) -> Page:
        newest = (panels.c.at_ms.desc(), panels.c.id.desc())
        asked = sa.func.substr(panels.c.asked, 1, LISTED_CHARACTERS).label("asked")
        columns = [column for column in panels.c if column.name != "asked"]
        query = sa.select(*columns, asked).where(*owned(panels, owner)).order_by(*newest).limit(limit + 1)
        if collection is not None:
            query = query.where(panels.c.collection == storable(collection))
        if cursor is not None:
            query = query.where(sa.tuple_(panels.c.at_ms, panels.c.id) < sa.tuple_(*place_of(cursor)))

        def read(connection: Connection) -> Page:
            rows = connection.execute(query).mappings().all()
            following = cursor_of(rows[limit - 1]) if len(rows) > limit else None
            shown = rows[:limit]
            of_panel: dict[str, list[RowMapping]] = {row["id"]: [] for row in shown}
            # Without the answers, which a list does not show.
            columns = [column for column in seats.c if column.name != "answer"]
            seated = sa.select(*columns).where(seats.c.panel.in_(of_panel)).order_by(seats.c.number)
            for seat in connection.execute(seated).mappings():
                of_panel[seat["panel"]].append(seat)
            return Page([panel_json(row, of_panel[row["id"]], answers=False) for row in shown], following)

        return await self._read(read)

    async def panel(self, panel: str, owner: str | None) -> Mapping[str, Any] | None:
        def read(connection: Connection) -> Mapping[str, Any] | None:
            found = sa.select(panels).where(panels.c.id == storable(panel), *owned(panels, owner))
            row = connection.execute(found).mappings().first()
            if row is None:
                return None
            seated = sa.select(seats).where(seats.c.panel == panel).order_by(seats.c.number)
            return panel_json(row, connection.execute(seated).mappings().all(), answers=True)

        return await self._read(read)

    async def conversations(self, limit: int, cursor: str | None, collection: str | None, owner: str | None) -> Page:
        return await self._read(lambda connection: conversations.page(connection, limit, cursor, collection, owner))

    async def conversation(self, conversation: str, owner: str | None) -> Mapping[str, Any] | None:
        return await self._read(lambda connection: conversations.one(connection, conversation, owner))

    async def learn(self, news: Mapping[Subject, Learned]) -> None:
        rows = [_fact_row(subject, fact) for subject, fact in sorted(news.items(), key=lambda item: item[0])]

        def write(connection: Connection) -> None:
            for row in rows:
                connection.execute(self._add_to_facts, row)

        await self._durable(write)

    async def learned(self) -> Mapping[Subject, Learned]:
        names = ("context_window", "tools", "vision")
        # Read as they stand: SQLite keeps anything in a column, and what is no fact must not fail the others.
        values = [sa.type_coerce(facts.c[name], sa.types.NullType()).label(name) for name in names]
        query = sa.select(facts.c.alias, facts.c.served, *values).where(facts.c.alias != PROBE[0])

        def read(connection: Connection) -> Mapping[Subject, Learned]:
            rows = connection.execute(query)
            return {(row.alias, row.served): learned(row.context_window, row.tools, row.vision) for row in rows}

        return await self._read(read)

    async def make_key(self, key: BenchKey) -> None:
        await self._durable(lambda connection: keys.make(connection, key))

    async def bench_key(self, digest: str) -> BenchKey | None:
        return await self._read(lambda connection: keys.by_digest(connection, digest))

    async def bench_keys(self, limit: int, cursor: str | None) -> KeyPage:
        return await self._read(lambda connection: keys.page(connection, limit, cursor, now_ms()))

    async def revoke_key(self, id: str, now_ms: int) -> tuple[BenchKey, Use] | None:
        return await self._durable(lambda connection: keys.revoke(connection, id, now_ms))

    async def count_request(self, key: BenchKey, now_ms: int) -> None:
        await self._durable(lambda connection: keys.count(connection, key, now_ms))

    async def hold(self, id: str, key: BenchKey, most: Use, until_ms: int, now_ms: int) -> None:
        await self._durable(lambda connection: keys.hold(connection, id, key, most, until_ms, now_ms))

    async def let_go(self, hold: str) -> None:
        await self._durable(lambda connection: keys.let_go(connection, hold))

    async def healthy(self) -> bool:
        """Whether it can be read, and written: after a write that failed one more is tried, since nobody who was told
        that this process is not ready will send it anything to write.
        """
        try:
            async with asyncio.timeout(HEALTHY_WITHIN):
                # A row, since a constant reads nothing of a database that may be broken.
                await self._read(lambda connection: connection.execute(sa.select(sums.c.alias).limit(1)).all())
                if self._writer.failing:
                    row = _fact_row(PROBE, Learned())
                    await self._durable(lambda connection: connection.execute(self._add_to_facts, row))
        except (LedgerUnavailable, TimeoutError):
            return False
        return True

    async def _durable(self, write: Callable[[Connection], T], *, urgent: bool = True) -> T:
        return await (await self._writer.put(write, urgent=urgent))  # type: ignore[no-any-return]

    async def _read(self, read: Callable[[Connection], T]) -> T:
        if self._closed:
            raise LedgerUnavailable("the ledger is closed: the proxy is stopping")

        def run() -> T:
            try:
                with self._reading.connect() as connection:
                    return read(connection)
            except SQLAlchemyError as error:
                raise LedgerUnavailable(f"the ledger cannot be read ({type(error).__name__})") from error

        return await asyncio.get_running_loop().run_in_executor(self._readers, run)

    def _seat_row(self, seating: Seating, owner: str, answer: Answer, place: int, *, late: bool) -> dict[str, Any]:
        return {
            "call": answer.seat.call,
            "panel": seating.panel,
            "number": place,
            "at_ms": now_ms(),
            "owner": owner,
            "collection": seating.collection,
            # A merge is another kind of work than the task itself: it has a record of its own.
            "shape": MERGING if answer.seat.kind == "merger" else seating.shape,
            "kind": answer.seat.kind,
            "mask": answer.seat.mask,
            "alias": answer.seat.alias,
            "status": answer.status,
            "late": late or answer.status == "late",
            "seconds": answer.seconds,
            "first_token_seconds": answer.first_token_seconds,
            "prompt_tokens": answer.prompt_tokens,
            "completion_tokens": answer.completion_tokens,
            "cost": answer.cost,
            "finish_reason": storable(answer.finish_reason or "")[:64] or None,
            "answer": storable(answer.text) if self._content() != "none" else "",
            "error": json.dumps(answer.error.as_json()) if answer.error else None,
            "note": "",
            "real": "[]",
            "false": "[]",
            "judged_by": "",
        }

    def _write_answer(self, connection: Connection, row: Mapping[str, Any], use: Use) -> None:
        self._gathering.seat(connection, row)
        counts = _counted(row) | ({"late": 1} if row["late"] else {})
        began = row["at_ms"] - round(1000 * row["seconds"])
        self._count(connection, row, seated=1, last_seated_ms=began, **counts)
        if row["status"] != "late":
            self._keys.count_use(connection, row["owner"], use, row["at_ms"])

    def _write_late(self, connection: Connection, row: Mapping[str, Any], use: Use) -> None:
        """A seat that the panel left behind: once when it is late, once more when it ends. One that is stopped stays
        late, and says why it has not answered after all.
        """
        self._gathering.send(connection)
        mine = seats.c.call == row["call"]
        earlier = connection.execute(sa.select(seats.c.status, seats.c.error).where(mine)).first()
        if earlier is None:
            self._write_answer(connection, row, use)
        elif earlier.status == "late" and earlier.error is None and row["status"] != "late":
            kept = {"call", "note", "real", "false", "judged_by"}
            counted = _counted(row)
            values = {k: v for k, v in row.items() if k not in kept} if counted else {"error": row["error"]}
            connection.execute(seats.update().where(mine).values(values))
            self._count(connection, row, **counted)
            self._keys.count_use(connection, row["owner"], use, row["at_ms"])

    def _write_verdict(self, connection: Connection, verdict: Verdict, owner: str | None) -> Judged:
        self._gathering.send(connection)
        verdict = replace(verdict, call=conversations.call_named(connection, verdict.call, owner))
        seat = _answered_seat(connection, verdict.call, owner, param="call")
        answers = _answers_beside(connection, seat)
        before = {call: mark_of(row) for call, row in answers.items()}
        after = judged(before, verdict)
        alias = _shown_alias(seat, after[verdict.call])
        if after == before:
            return Judged(recorded=False, alias=alias)
        now = now_ms()
        said = {name: value for name, value in _columns(after[verdict.call]).items() if name != "preferred"}
        row = {"call": verdict.call, "at_ms": now, "owner": owner or seat["owner"], **said}
        connection.execute(verdicts.insert(), row)
        self._put_marks(connection, answers, before, after, now)
        return Judged(recorded=True, alias=alias)

    def _write_pick(self, connection: Connection, pick: Pick, owner: str | None) -> Picked:
        self._gathering.send(connection)
        found = sa.select(panels).where(panels.c.id == storable(pick.panel), *owned(panels, owner))
        panel = connection.execute(found).mappings().first()
        if panel is None:
            if conversations.exists(connection, pick.panel, owner):
                raise InvalidRequest(
                    f"{pick.panel} is a conversation: its models answered different turns, and none is picked over "
                    "another; judge each call by a verdict",
                    param="panel",
                )
            raise NotFound(f"there is no panel {pick.panel[:64]!r}", param="panel")
        if pick.best is not None:
            best = _answered_seat(connection, pick.best, owner, param="best")
            if best["kind"] in OF_TURNS:
                raise InvalidRequest(
                    f"call {pick.best} is of a conversation and no seat of a panel; judge it by a verdict", param="best"
                )
            if best["panel"] != pick.panel:
                raise InvalidRequest(f"call {pick.best} is a seat of another panel, {best['panel']}", param="best")
            if best["kind"] == "merger":
                raise InvalidRequest(
                    f"call {pick.best} merged the answers and is not one of them; judge it by a verdict of its own",
                    param="best",
                )
        answers = _answers(connection, pick.panel, seats.c.kind != "merger")
        before = {call: mark_of(row) for call, row in answers.items()}
        after = picked(before, pick)
        over = [call for call, mark in after.items() if mark.preferred is False]
        if after != before:
            now = now_ms()
            row = {"panel": pick.panel, "at_ms": now, "owner": owner or panel["owner"], "best": pick.best}
            said = {"over": json.dumps(over), "note": pick.note, "judged_by": pick.by}
            connection.execute(picks.insert(), {**row, **said})
            self._put_marks(connection, answers, before, after, now)
        alias = None if pick.best is None else after[pick.best].alias
        return Picked(after != before, alias, {call: after[call].alias for call in over})

    def _put_marks(
        self, connection: Connection, answers: Mapping[str, RowMapping], before: Marks, after: Marks, now: int
    ) -> None:
        """What is said of a panel's answers, with the sums that change by it."""
        for call, mark in after.items():
            if mark != before[call]:
                judged_ms = answers[call]["judged_ms"] if mark.owed else now
                values = {**_columns(mark), "judged_ms": judged_ms}
                connection.execute(seats.update().where(seats.c.call == call).values(values))
        change = tally(after).since(tally(before))
        seat_of = {row["alias"]: row for row in answers.values()}
        changed = {mark.alias for call, mark in after.items() if mark != before[call]}
        for alias in changed | {alias for alias, _ in change.counts}:
            counts = {counter: n for (of, counter), n in change.counts.items() if of == alias}
            self._count(connection, dict(seat_of[alias]), **counts, last_judged_ms=now)
        for (winner, loser), times in change.wins.items():
            seat = seat_of[winner]
            for collection, owner in (("", ""), (seat["collection"], seat["owner"])):
                key = {"collection": collection, "owner": owner, "shape": seat["shape"]}
                connection.execute(self._add_to_wins, {**key, "winner": winner, "loser": loser, "times": times})

    def _count(self, connection: Connection, seat: Mapping[str, Any], **change: int) -> None:
        """Change the sums over everything and those of the seat's collection and key, in the same transaction."""
        self._gathering.count_twice(connection, seat["collection"], seat["owner"], seat["alias"], seat["shape"], change)


def _remember(of_panels: dict[str, T], panel: str, what: T) -> None:
    of_panels[panel] = what
    if len(of_panels) > MOST_UNWRITTEN:
        del of_panels[next(iter(of_panels))]


def _behind(now: int, seated: Iterable[int]) -> int:
    """A time behind all of these, since many panels are seated in one millisecond and each has its place in the order.
    One that the clock is far from says nothing.
    """
    return max([now, *(ms + 1 for ms in seated if ms < now + FAR_MS)])


def _counted(row: Mapping[str, Any]) -> dict[str, int]:
    """What a seat's end adds to its model's sums; a call that we stopped ourselves says nothing of the model."""
    stopped = row["status"] == "error" and loaded(row["error"], {}).get("type") == "cancelled"
    return {} if stopped else {COUNTED_AS[row["status"]]: 1}


def _upsert(insert: Any) -> Any:
    new = insert(sums)
    added = {name: sums.c[name] + new.excluded[name] for name in COUNTERS}
    latest = {
        name: sa.case((new.excluded[name] > sums.c[name], new.excluded[name]), else_=sums.c[name]) for name in LATEST
    }
    return new.on_conflict_do_update(index_elements=list(sums.primary_key), set_={**added, **latest})


def _upsert_wins(insert: Any) -> Any:
    new = insert(wins)
    added = {"times": wins.c.times + new.excluded.times}
    return new.on_conflict_do_update(index_elements=list(wins.primary_key), set_=added)


def _upsert_facts(insert: Any) -> Any:
    """A window is only ever lowered, a capability only ever learned; whoever writes last."""
    new = insert(facts)
    lower = sa.or_(facts.c.context_window.is_(None), new.excluded.context_window < facts.c.context_window)
    taken = {
        "context_window": sa.case((lower, new.excluded.context_window), else_=facts.c.context_window),
        **{name: sa.func.coalesce(new.excluded[name], facts.c[name]) for name in ("tools", "vision")},
        "at_ms": new.excluded.at_ms,
    }
    return new.on_conflict_do_update(index_elements=list(facts.primary_key), set_=taken)


def _fact_row(subject: Subject, fact: Learned) -> dict[str, Any]:
    alias, served = subject
    known = {"context_window": fact.context_window, "tools": fact.tools, "vision": fact.vision}
    return {"alias": alias[:256], "served": served[:64], **known, "at_ms": now_ms()}


def _answered_seat(connection: Connection, call: str, owner: str | None, *, param: str) -> RowMapping:
    """A seat whose answer can be judged. Raises NotFound, InvalidRequest."""
    found = sa.select(seats).where(seats.c.call == storable(call), *owned(seats, owner))
    seat = connection.execute(found).mappings().first()
    if seat is None:
        _refuse_panel(connection, call, owner, param)
        raise NotFound(f"there is no call {call[:96]!r}, or it has not answered yet", param=param)
    if seat["status"] != "ok":
        raise InvalidRequest(f"call {call} did not answer ({seat['status']}): there is nothing to judge", param=param)
    return seat


def _refuse_panel(connection: Connection, name: str, owner: str | None, param: str) -> None:
    """Raises InvalidRequest when `name` is a panel's and no call's."""
    found = sa.select(panels.c.id).where(panels.c.id == storable(name), *owned(panels, owner))
    if connection.execute(found).first() is not None:
        calls = ", ".join(_answers(connection, name, sa.true())) or "none has answered yet"
        raise InvalidRequest(f"{name} is a panel; judge one of its calls: {calls}", param=param)


def _answers_beside(connection: Connection, seat: RowMapping) -> dict[str, RowMapping]:
    """The answers that a seat's is compared with, itself included. A merge is no answer among them, and the models of
    a conversation answered different turns.
    """
    if seat["kind"] in {"merger", *OF_TURNS}:
        return _answers(connection, seat["panel"], seats.c.call == seat["call"])
    return _answers(connection, seat["panel"], seats.c.kind != "merger")


def _answers(connection: Connection, panel: str, which: sa.ColumnElement[bool]) -> dict[str, RowMapping]:
    """By call."""
    found = sa.select(seats).where(seats.c.panel == panel, seats.c.status == "ok", which)
    rows = connection.execute(found.order_by(seats.c.number, seats.c.call)).mappings()
    return {row["call"]: row for row in rows}


def _columns(mark: Mark) -> dict[str, Any]:
    return {
        "useful": mark.useful,
        "preferred": mark.preferred,
        "note": mark.note,
        "real": json.dumps(mark.real),
        "false": json.dumps(mark.false),
        "judged_by": mark.by,
    }


def _shown_alias(seat: RowMapping, mark: Mark) -> str:
    return str(seat["mask"] if hidden(seat) and mark.owed else seat["alias"])


def _summed() -> list[sa.ColumnElement[Any]]:
    """The columns of `sums`, over the rows of a group."""
    latest = [sa.func.max(sums.c[name]).label(name) for name in LATEST]
    return [*(_total(sums.c[name]).label(name) for name in COUNTERS), *latest]


def _integers(row: Mapping[str, Any] | RowMapping) -> dict[str, Any]:
    return {name: integer(value) if name not in {"alias", "shape"} else value for name, value in row.items()}


def _total(column: sa.Column[int]) -> sa.Function[float]:
    """Over the collections or keys asked for; as a float, since SQLite fails when the sum of integers has no room."""
    return sa.func.sum(sa.cast(column, sa.Float))


def _public(url: str) -> str:
    """The database without its credentials, which may also stand in its query."""
    scheme, _, rest = url.partition("?")[0].partition("://")
    return f"{scheme}://{rest.rpartition('@')[2]}"
