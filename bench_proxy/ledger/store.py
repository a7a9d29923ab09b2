"""The ledger over SQLite or PostgreSQL: every statement that bench-proxy sends."""

import asyncio
import json
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import Connection, Engine, RowMapping
from sqlalchemy.exc import SQLAlchemyError

from bench_proxy.bench import Page
from bench_proxy.errors import InvalidRequest, LedgerUnavailable, NotFound
from bench_proxy.ledger.database import migrate, open_engines
from bench_proxy.ledger.schema import COUNTERS, panels, seats, sums, verdicts
from bench_proxy.ledger.writer import Writer
from bench_proxy.panel.seats import Answer, Report, Seating
from bench_proxy.records import Record, Sums, Verdict, record

log = logging.getLogger("bench_proxy")

T = TypeVar("T")

COUNTED_AS = {"ok": "answered", "empty": "empty", "error": "failed", "late": "late"}
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


class SqlLedger:
    """Implements `bench.Ledger`. Use `open`; one instance a process, in one event loop."""

    def __init__(self, writing: Engine, reading: Engine, content: Callable[[], str]) -> None:
        self._writing = writing
        self._reading = reading
        self._content = content
        self._closed = False
        self._writer = Writer(writing)
        self._readers = ThreadPoolExecutor(max_workers=4, thread_name_prefix="bench-ledger-read")
        dialect = postgresql if writing.dialect.name == "postgresql" else sqlite
        self._insert: Any = dialect.insert
        self._add_to_sums = _upsert(self._insert)

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
        await self._writer.close()
        await asyncio.to_thread(self._readers.shutdown)
        for engine in (self._writing, self._reading):
            engine.dispose()

    async def reserve(self, shape: str, choose: Callable[[Mapping[str, int]], Sequence[str]]) -> list[str]:
        def write(connection: Connection) -> list[str]:
            mine = (sums.c.collection == "") & (sums.c.owner == "") & (sums.c.shape == shape)
            rows = connection.execute(sa.select(sums.c.alias, sums.c.last_seated_ms).where(mine))
            chosen = list(choose({row.alias: _integer(row.last_seated_ms) for row in rows}))
            now = _now_ms()
            for alias in chosen:
                connection.execute(self._add_to_sums, _delta("", "", alias, shape, last_seated_ms=now))
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
            "asked": _text(asked),
            "skipped": json.dumps([s.as_json() for s in seating.skipped]),
            "note": "",
        }
        future = await self._writer.put(lambda connection: connection.execute(panels.insert(), row))
        future.add_done_callback(lambda done: _log_lost(seating.panel, done))

    async def answered(self, seating: Seating, owner: str, answer: Answer, *, late: bool) -> None:
        row = self._seat_row(seating, owner, answer, late=late)
        if late or answer.status == "late":
            await self._durable(lambda connection: self._write_late(connection, row))
        else:
            await self._durable(lambda connection: self._write_answer(connection, row))

    async def closed(self, report: Report) -> None:
        panel = report.seating.panel
        values = {"partial": report.partial, "seconds": report.seconds, "note": report.note}
        await self._durable(
            lambda connection: connection.execute(panels.update().where(panels.c.id == panel).values(values))
        )

    async def judge(self, verdict: Verdict, owner: str | None) -> bool:
        return await self._durable(lambda connection: self._write_verdict(connection, verdict, owner))

    async def owed(self, calls: Sequence[str], owner: str | None) -> list[str]:
        def read(connection: Connection) -> list[str]:
            found = sa.select(seats.c.call).where(
                seats.c.call.in_([_text(call) for call in calls]),
                seats.c.status == "ok",
                seats.c.useful.is_(None),
                *_owned(seats, owner),
            )
            owed = set(connection.execute(found).scalars())
            return [call for call in dict.fromkeys(calls) if call in owed]

        return await self._read(read)

    async def record(self, collection: str | None, owner: str | None) -> list[Record]:
        if collection is None and owner is None:
            where = [sums.c.collection == "", sums.c.owner == ""]
        else:
            where = [sums.c.collection != "" if collection is None else sums.c.collection == _text(collection)]
            where += _owned(sums, owner)
        totals = [sa.func.sum(sums.c[name]).label(name) for name in COUNTERS]
        latest = [sa.func.max(sums.c[name]).label(name) for name in ("last_seated_ms", "last_judged_ms")]
        query = (
            sa.select(sums.c.alias, sums.c.shape, *totals, *latest)
            .where(*where)
            .group_by(sums.c.alias, sums.c.shape)
            .order_by(sums.c.alias, sums.c.shape)
        )

        def read(connection: Connection) -> list[Record]:
            return [record(Sums(**_integers(row))) for row in connection.execute(query).mappings()]

        return await self._read(read)

    async def panels(self, limit: int, cursor: str | None, collection: str | None, owner: str | None) -> Page:
        newest = (panels.c.at_ms.desc(), panels.c.id.desc())
        query = sa.select(panels).where(*_owned(panels, owner)).order_by(*newest).limit(limit + 1)
        if collection is not None:
            query = query.where(panels.c.collection == _text(collection))
        if cursor is not None:
            query = query.where(sa.tuple_(panels.c.at_ms, panels.c.id) < sa.tuple_(*_at(cursor)))

        def read(connection: Connection) -> Page:
            rows = connection.execute(query).mappings().all()
            following = _cursor(rows[limit - 1]) if len(rows) > limit else None
            shown = rows[:limit]
            of_panel: dict[str, list[RowMapping]] = {row["id"]: [] for row in shown}
            seated = sa.select(seats).where(seats.c.panel.in_(of_panel)).order_by(seats.c.number)
            for seat in connection.execute(seated).mappings():
                of_panel[seat["panel"]].append(seat)
            return Page([_panel_json(row, of_panel[row["id"]], answers=False) for row in shown], following)

        return await self._read(read)

    async def panel(self, panel: str, owner: str | None) -> Mapping[str, Any] | None:
        def read(connection: Connection) -> Mapping[str, Any] | None:
            found = sa.select(panels).where(panels.c.id == _text(panel), *_owned(panels, owner))
            row = connection.execute(found).mappings().first()
            if row is None:
                return None
            seated = sa.select(seats).where(seats.c.panel == panel).order_by(seats.c.number)
            return _panel_json(row, connection.execute(seated).mappings().all(), answers=True)

        return await self._read(read)

    async def healthy(self) -> bool:
        try:
            await self._read(lambda connection: connection.execute(sa.select(1)))
        except LedgerUnavailable:
            return False
        return True

    async def _durable(self, write: Callable[[Connection], T]) -> T:
        return await (await self._writer.put(write))  # type: ignore[no-any-return]

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

    def _seat_row(self, seating: Seating, owner: str, answer: Answer, *, late: bool) -> dict[str, Any]:
        return {
            "call": answer.seat.call,
            "panel": seating.panel,
            "number": seating.seats.index(answer.seat),
            "at_ms": _now_ms(),
            "owner": owner,
            "collection": seating.collection,
            "shape": seating.shape,
            "kind": answer.seat.kind,
            "alias": answer.seat.alias,
            "status": answer.status,
            "late": late or answer.status == "late",
            "seconds": answer.seconds,
            "first_token_seconds": answer.first_token_seconds,
            "prompt_tokens": answer.prompt_tokens,
            "completion_tokens": answer.completion_tokens,
            "cost": answer.cost,
            "finish_reason": (answer.finish_reason or "")[:64] or None,
            "answer": _text(answer.text) if self._content() != "none" else "",
            "error": json.dumps(answer.error.as_json()) if answer.error else None,
            "note": "",
            "real": "[]",
            "false": "[]",
            "judged_by": "",
        }

    def _write_answer(self, connection: Connection, row: Mapping[str, Any]) -> None:
        connection.execute(seats.insert(), row)
        counts = {COUNTED_AS[row["status"]]: 1} | ({"late": 1} if row["late"] else {})
        self._count(connection, row, seated=1, last_seated_ms=row["at_ms"], **counts)

    def _write_late(self, connection: Connection, row: Mapping[str, Any]) -> None:
        """A seat that the panel left behind: once when it is late, once more when it answers after all."""
        earlier = connection.execute(sa.select(seats.c.status).where(seats.c.call == row["call"])).scalar()
        if earlier is None:
            self._write_answer(connection, row)
        elif earlier == "late" and row["status"] != "late":
            values = {k: v for k, v in row.items() if k not in {"call", "note", "real", "false", "judged_by"}}
            connection.execute(seats.update().where(seats.c.call == row["call"]).values(values))
            self._count(connection, row, **{COUNTED_AS[row["status"]]: 1})

    def _write_verdict(self, connection: Connection, verdict: Verdict, owner: str | None) -> bool:
        found = sa.select(seats).where(seats.c.call == _text(verdict.call), *_owned(seats, owner))
        seat = connection.execute(found).mappings().first()
        if seat is None:
            raise NotFound(f"there is no call {verdict.call[:96]!r}, or it has not answered yet", param="call")
        if seat["status"] != "ok":
            raise InvalidRequest(
                f"call {verdict.call} did not answer ({seat['status']}): there is nothing to judge", param="call"
            )
        said = {
            "useful": verdict.useful,
            "note": verdict.note,
            "real": json.dumps(verdict.real),
            "false": json.dumps(verdict.false),
            "judged_by": verdict.by,
        }
        if all(seat[name] == value for name, value in said.items()):
            return False
        now = _now_ms()
        connection.execute(
            verdicts.insert(), {"call": verdict.call, "at_ms": now, "owner": owner or seat["owner"], **said}
        )
        connection.execute(seats.update().where(seats.c.call == verdict.call).values(**said, judged_ms=now))
        change = {"useful": 0, "not_useful": 0}
        for judged, by in ((seat["useful"], -1), (verdict.useful, 1)):
            if judged is not None:
                change["useful" if judged else "not_useful"] += by
        self._count(connection, dict(seat), **change, last_judged_ms=now)
        return True

    def _count(self, connection: Connection, seat: Mapping[str, Any], **change: int) -> None:
        """Change the sums over everything and those of the seat's collection and key, in the same transaction."""
        for collection, owner in (("", ""), (seat["collection"], seat["owner"])):
            connection.execute(self._add_to_sums, _delta(collection, owner, seat["alias"], seat["shape"], **change))


def _upsert(insert: Any) -> Any:
    new = insert(sums)
    added = {name: sums.c[name] + new.excluded[name] for name in COUNTERS}
    latest = {
        name: sa.case((new.excluded[name] > sums.c[name], new.excluded[name]), else_=sums.c[name])
        for name in ("last_seated_ms", "last_judged_ms")
    }
    return new.on_conflict_do_update(index_elements=list(sums.primary_key), set_={**added, **latest})


def _delta(collection: str, owner: str, alias: str, shape: str, **change: int) -> dict[str, Any]:
    zero = dict.fromkeys((*COUNTERS, "last_seated_ms", "last_judged_ms"), 0)
    return {"collection": collection, "owner": owner, "alias": alias, "shape": shape, **zero, **change}


def _owned(table: sa.Table, owner: str | None) -> list[sa.ColumnElement[bool]]:
    return [] if owner is None else [table.c.owner == owner]


def _panel_json(row: RowMapping, of_panel: Sequence[RowMapping], *, answers: bool) -> dict[str, Any]:
    return {
        "panel": row["id"],
        "at": row["at_ms"] / 1000,
        "collection": f"bench/{row['collection']}",
        "reply": row["reply"],
        "shape": row["shape"],
        "shape_by": row["shape_by"],
        "asked": row["asked"] if answers else row["asked"][:200],
        "over": row["partial"] is not None,
        "partial": row["partial"],
        "seconds": row["seconds"],
        "seats": [_seat_json(seat, answer=answers) for seat in of_panel],
        "skipped": json.loads(row["skipped"]),
        **({"note": row["note"]} if row["note"] else {}),
    }


def _seat_json(seat: RowMapping, *, answer: bool) -> dict[str, Any]:
    shown: dict[str, Any] = {"seat": seat["kind"]} | {n: seat[n] for n in SHOWN if seat[n] is not None}
    if answer and seat["answer"]:
        shown["answer"] = seat["answer"]
    if seat["error"]:
        shown["error"] = json.loads(seat["error"])
    shown["owed"] = seat["status"] == "ok" and seat["useful"] is None
    if seat["judged_ms"] is not None:
        shown["verdict"] = {
            "useful": seat["useful"],
            "note": seat["note"],
            "real": json.loads(seat["real"]),
            "false": json.loads(seat["false"]),
            "by": seat["judged_by"],
            "at": seat["judged_ms"] / 1000,
        }
    return shown


def _cursor(row: RowMapping) -> str:
    return f"{row['at_ms']}.{row['id']}"


def _at(cursor: str) -> tuple[int, str]:
    at_ms, _, panel = cursor.partition(".")
    if not (at_ms.isascii() and at_ms.isdigit() and len(at_ms) <= 15 and panel and "\0" not in panel):
        raise InvalidRequest(f"{cursor[:64]!r} is not a cursor: take it from `next` of the page before", param="cursor")
    return int(at_ms), panel


def _integers(row: RowMapping) -> dict[str, Any]:
    return {name: _integer(value) if name not in {"alias", "shape"} else value for name, value in row.items()}


def _integer(value: Any) -> int:
    """SQLite holds whatever it was given; what is no number counts nothing."""
    try:
        return int(value or 0)
    except (ValueError, OverflowError):
        return 0


def _text(text: str) -> str:
    """PostgreSQL's text holds no NUL."""
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}")


def _log_lost(panel: str, done: asyncio.Future[Any]) -> None:
    if not done.cancelled() and (error := done.exception()) is not None:
        log.error("panel %s is not on the record, its answers may be: %s", panel, error)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _public(url: str) -> str:
    """The database without its credentials."""
    return url.partition("://")[0] + "://" + url.partition("://")[2].rpartition("@")[2]
