"""What a process has used: its CPU seconds and its memory, those of its children with it."""

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

PAGE = os.sysconf("SC_PAGE_SIZE")
QUIET = 0.02
"""The share of a core below which a process is at rest; an idle LiteLLM uses 0.003."""


def tree(pid: int) -> list[int]:
    """The process and its descendants, as far as they still run."""
    children = [
        int(child) for file in Path(f"/proc/{pid}/task").glob("*/children") for child in file.read_text().split()
    ]
    return [pid, *(found for child in children for found in tree(child))]


def cpu_seconds(pid: int) -> float:
    """User and system time so far.

    Read from the process's own clock, which counts nanoseconds; `/proc/PID/stat` counts ticks of 10 ms, too coarse
    for a window of a second. The number of the clock is clock_getcpuclockid(3) of Linux.
    """
    return sum(time.clock_gettime(~process << 3 | 2) for process in tree(pid))


def rss_mb(pid: int) -> float:
    """Memory that is resident now."""
    pages = (int(Path(f"/proc/{process}/statm").read_text().split()[1]) for process in tree(pid))
    return sum(pages) * PAGE / 1e6


def threads(pid: int) -> int:
    return sum(len(list(Path(f"/proc/{process}/task").iterdir())) for process in tree(pid))


@dataclass(slots=True)
class Growth:
    """How far above its start a process came."""

    rss_mb: float = 0.0
    threads: int = 0


@asynccontextmanager
async def growth(pid: int) -> AsyncIterator[Growth]:
    """Looked at ten times a second, until the end of the block."""
    grown = Growth()
    watching = asyncio.create_task(_watch(pid, grown, rss_mb(pid), threads(pid)))
    try:
        yield grown
    finally:
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching


async def _watch(pid: int, grown: Growth, rss: float, running: int) -> None:
    while True:
        grown.rss_mb = max(grown.rss_mb, rss_mb(pid) - rss)
        grown.threads = max(grown.threads, threads(pid) - running)
        await asyncio.sleep(0.1)


async def at_rest(pid: int, *, within: float = 3.0) -> None:
    """Wait until the process has done what it left for after its answers, such as writing logs."""
    ends = time.monotonic() + within
    used = cpu_seconds(pid)
    while time.monotonic() < ends:
        await asyncio.sleep(0.05)
        before, used = used, cpu_seconds(pid)
        if used - before < QUIET * 0.05:
            return
