"""What removing a ledger of a million answers takes: `python -m benchmarks.pruning`, about five minutes, on SQLite."""

import asyncio
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from multiprocessing import Process
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from bench_proxy.errors import NotFound
from bench_proxy.ids import call_id
from bench_proxy.ledger.database import migrate, open_engines
from bench_proxy.ledger.pruning import DAY_MS
from bench_proxy.ledger.schema import panels, seats, verdicts
from bench_proxy.ledger.store import SqlLedger
from bench_proxy.ledger.values import now_ms
from bench_proxy.records import Verdict

PANELS = 200_000
SEATS = 5
TEXT = "An answer of some length, as models give them. " * 40
AT_ONCE = 1000
MOST_MB = 50


def main() -> None:
    panel_count = int(sys.argv[1]) if len(sys.argv) > 1 else PANELS
    with tempfile.TemporaryDirectory() as directory:
        url = f"sqlite:///{directory}/bench.db"
        # In a process of its own: memory that it took and gave back would hide what pruning takes.
        filling = Process(target=fill, args=(url, panel_count))
        filling.start()
        filling.join()
        size = Path(directory, "bench.db").stat().st_size
        print(f"a ledger of {panel_count * SEATS:,} answers, {size:,} bytes")
        asyncio.run(measure(url))


def fill(url: str, panel_count: int) -> None:
    writer, reader = open_engines(url)
    migrate(writer)
    for start in range(0, panel_count, AT_ONCE):
        numbers = range(start, min(start + AT_ONCE, panel_count))
        with writer.begin() as connection:
            connection.execute(panels.insert(), [panel_row(number) for number in numbers])
            connection.execute(seats.insert(), [row for number in numbers for row in seat_rows(number)])
            connection.execute(verdicts.insert(), [verdict_row(number) for number in numbers])
    for engine in (writer, reader):
        engine.dispose()


def panel_row(number: int) -> dict[str, Any]:
    """Two days old; the last ones are the youngest."""
    row = {"owner": "o", "collection": "core", "model": "bench/core", "reply": "all", "shape": "general"}
    row |= {"shape_by": "default", "asked": TEXT, "skipped": "[]", "note": ""}
    return {**row, "id": name(number), "at_ms": now_ms() - 2 * DAY_MS, "partial": False, "seconds": 1.0}


def seat_rows(number: int) -> Iterator[dict[str, Any]]:
    for seat in range(1, SEATS + 1):
        row = {"call": call_id(name(number), "member", seat), "panel": name(number), "number": seat, "owner": "o"}
        row |= {"at_ms": now_ms() - 2 * DAY_MS, "collection": "core", "shape": "general", "kind": "member", "mask": ""}
        row |= {"alias": f"model-{seat}", "status": "ok", "late": False, "seconds": 1.0, "answer": TEXT, "note": ""}
        yield {**row, "real": "[]", "false": "[]", "judged_by": ""}


def verdict_row(number: int) -> dict[str, Any]:
    row = {"call": call_id(name(number), "member", 1), "at_ms": now_ms(), "owner": "o", "useful": True}
    return {**row, "note": "", "real": "[]", "false": "[]", "judged_by": ""}


def name(number: int) -> str:
    return f"p20260101-000000-{number:016}"


async def measure(url: str) -> None:
    ledger = await SqlLedger.open(url, lambda: "full")
    waits: list[float] = []
    writing = asyncio.create_task(keep_writing(ledger, waits))
    await asyncio.sleep(1)
    before, began = peak_mb(), time.monotonic()
    removed = await ledger.pruning.prune(lambda: 1)
    seconds, extra = time.monotonic() - began, peak_mb() - before
    writing.cancel()
    await asyncio.wait([writing])
    await ledger.close()
    waits.sort()
    print(f"{removed:,} panels removed in {seconds:.0f} s")
    print(f"memory on top, at its peak: {extra:.1f} MB")
    print(
        f"meanwhile a write took {1000 * waits[len(waits) // 2]:.1f} ms in the middle, {1000 * waits[-1]:.0f} at most"
    )
    if extra > MOST_MB or left(url):
        sys.exit(f"more than {MOST_MB} MB, or not all of it was removed")


async def keep_writing(ledger: SqlLedger, waits: list[float]) -> None:
    """Verdicts on a call that is not there: each is a transaction of its own."""
    while True:
        began = time.monotonic()
        with suppress(NotFound):
            await ledger.judge(Verdict("p0.member1", useful=True), None)
        waits.append(time.monotonic() - began)
        await asyncio.sleep(0.02)


def left(url: str) -> int:
    writer, reader = open_engines(url)
    with reader.connect() as connection:
        count = connection.execute(sa.select(sa.func.count()).select_from(seats)).scalar_one()
    for engine in (writer, reader):
        engine.dispose()
    return int(count)


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()
