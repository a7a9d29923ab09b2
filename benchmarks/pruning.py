"""What removing a ledger of a million answers takes: `python -m benchmarks.pruning`, about five minutes, on SQLite."""

import asyncio
import resource
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import sqlalchemy as sa

from bench_proxy.errors import NotFound
from bench_proxy.ledger.database import open_engines
from bench_proxy.ledger.schema import seats
from bench_proxy.ledger.store import SqlLedger
from bench_proxy.records import Verdict
from benchmarks import kept

ANSWERS = 1_000_000
MOST_MB = 50


def main() -> None:
    answers = int(sys.argv[1]) if len(sys.argv) > 1 else ANSWERS
    with tempfile.TemporaryDirectory() as directory:
        url = f"sqlite:///{directory}/bench.db"
        kept.fill(url, answers)
        size = Path(directory, "bench.db").stat().st_size
        print(f"a ledger of {answers:,} answers, {size:,} bytes")
        asyncio.run(measure(url))


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
