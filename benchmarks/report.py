"""Samples to Markdown: medians, and ratios between gateways that were measured side by side."""

import platform
import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Literal

from benchmarks import workloads

RESAMPLES = 2000


@dataclass(frozen=True, slots=True)
class Sample:
    """One window of one gateway. Windows with the same round and number were measured one right after another."""

    workload: str
    case: str
    gateway: str
    round: int
    number: int
    values: dict[str, float]


How = Literal["spread", "ratio", "more", "means"]
"""Of a column: the values themselves; the ratios of the pairs; their differences; the ratio of the means."""


@dataclass(frozen=True, slots=True)
class Column:
    """`of` is a value of the samples."""

    title: str
    of: str
    how: How = "spread"


CPU = (Column("CPU ms", "cpu_ms"), Column("CPU ratio", "cpu_ms", "ratio"))
COLUMNS = {
    "start": (
        Column("first answer s", "start_s"),
        Column("ratio", "start_s", "ratio"),
        Column("idle RSS MB", "rss_mb"),
        Column("RSS ratio", "rss_mb", "ratio"),
        Column("idle CPU %", "idle_percent"),
    ),
    "passthrough": (
        *CPU,
        Column("more CPU ms", "cpu_ms", "more"),
        Column("ratio of the means", "cpu_ms", "means"),
        Column("p50 ratio", "p50_ms", "ratio"),
        Column("RSS MB after", "rss_mb"),
    ),
    "panel": (
        *CPU,
        Column("panels/s", "per_second"),
        Column("panels/s ratio", "per_second", "ratio"),
        Column("p50 ms", "p50_ms"),
        Column("p50 ratio", "p50_ms", "ratio"),
    ),
    "held": (
        Column("open at once", "open"),
        Column("RSS kB a stream", "stream_kb"),
        Column("RSS ratio", "stream_kb", "ratio"),
        Column("threads added", "threads"),
        Column("first byte p50 ms", "first_p50_ms"),
    ),
    "image": (*CPU, Column("p50 ms", "p50_ms"), Column("p50 ratio", "p50_ms", "ratio")),
    "crowd": (
        Column("complete", "turns"),
        Column("p50 ms", "p50_ms"),
        Column("p50 ratio", "p50_ms", "ratio"),
        Column("p99 ms", "p99_ms"),
        Column("p99 ratio", "p99_ms", "ratio"),
    ),
    "panel-end": (
        Column("above its models p50 ms", "over_p50_ms"),
        Column("p99", "over_p99_ms"),
        Column("after its last model p50 ms", "after_p50_ms"),
        Column("p99", "after_p99_ms"),
        Column("beside its slowest seat p50 ms", "beside_p50_ms"),
        Column("p99", "beside_p99_ms"),
    ),
    "streams": (
        Column("complete", "turns"),
        Column("first byte p50 ms", "first_p50_ms"),
        Column("p95", "first_p95_ms"),
        Column("whole p50 ms", "p50_ms"),
        Column("p99", "p99_ms"),
        *CPU,
    ),
    "turns": (
        *CPU,
        Column("first byte p50 ms", "first_p50_ms"),
        Column("first byte ratio", "first_p50_ms", "ratio"),
        Column("whole p50 ms", "p50_ms"),
        Column("whole ratio", "p50_ms", "ratio"),
    ),
    "further": (Column("CPU µs", "cpu_us"), Column("CPU ratio", "cpu_us", "ratio")),
    "ledger": (*CPU, Column("p50 ms", "p50_ms"), Column("p50 ratio", "p50_ms", "ratio")),
    "growth": (*CPU, Column("p50 ms", "p50_ms"), Column("p50 ratio", "p50_ms", "ratio")),
}
TITLES = {
    "start": "Start: until the first answer, and at rest",
    "passthrough": "Passthrough: a request that is not for `bench/`",
    "panel": "Panel: models that answer at once, 16 in flight, against a client's own fan-out",
    "held": "Held: streams of route mode, all open at once, against a bare relay",
    "image": "Image: a large one to every seat, against a bare fan-out",
    "crowd": "Crowd: many panels at once, against a bare fan-out",
    "panel-end": "Panel end: how long a panel takes after its models, 16 in flight",
    "streams": "Streams: all opened in the same instant",
    "turns": "Turns: route mode, streamed, 8 in flight",
    "further": "Further: what one more costs",
    "ledger": "Ledger: what keeping the record costs",
    "growth": "Growth: with what is kept, with collections, with turns",
}


def render(samples: Sequence[Sample], faults: Sequence[str], conditions: Sequence[str]) -> str:
    samples = [*samples, *further(samples)]
    measured = dict.fromkeys(s.workload for s in samples)
    tables = [f"## {TITLES[w]}\n\n{_table(w, [s for s in samples if s.workload == w])}" for w in measured]
    wrong = [f"**{len(faults)} wrong answers**; a gateway with wrong answers has no speed.", *faults[:20]]
    head = [f"- {line}" for line in conditions]
    return "\n\n".join(["# Benchmarks", "\n".join(head), *(["\n".join(wrong)] if faults else []), *tables]) + "\n"


def further(samples: Sequence[Sample]) -> list[Sample]:
    """Each window with much of something, less the median of its gateway's windows with little of it in that round."""
    found = []
    for what in workloads.further():
        of_workload = [s for s in samples if s.workload == what.workload and "cpu_ms" in s.values]
        little = [s for s in of_workload if s.case == what.little]
        for much in (s for s in of_workload if s.case == what.much):
            below = [s.values["cpu_ms"] for s in little if (s.gateway, s.round) == (much.gateway, much.round)]
            if below:
                used = (much.values["cpu_ms"] - statistics.median(below)) / what.more * 1e3
                found.append(replace(much, workload="further", case=what.title, values={"cpu_us": used}))
    return found


def _table(workload: str, samples: Sequence[Sample]) -> str:
    columns = COLUMNS[workload]
    lines = [_row(["case", "gateway", *(c.title for c in columns)]), _row(["---", "---", *("---:" for _ in columns)])]
    for case in dict.fromkeys(s.case for s in samples):
        of_gateway: dict[str, list[Sample]] = {}
        for sample in samples:
            if sample.case == case:
                of_gateway.setdefault(sample.gateway, []).append(sample)
        # The first window of a case asks its gateways in its own order.
        base = next(iter(of_gateway.values()))
        lines += [_row([case, g, *(_cell(c, of, base) for c in columns)]) for g, of in of_gateway.items()]
    return "\n".join(lines)


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(column: Column, samples: Sequence[Sample], base: Sequence[Sample]) -> str:
    values, below = (_values(column.of, of) for of in (samples, base))
    if not values:
        return ""
    if column.how == "spread":
        return _spread(list(values.values()))
    if samples is base:
        return ""
    pairs = [(value, below[at]) for at, value in values.items() if at in below]
    if column.how == "means":
        return f"{sum(v for v, _ in pairs) / sum(b for _, b in pairs):.3f}"
    found = [v - b if column.how == "more" else v / b for v, b in pairs]
    low, high = interval(found)
    middle = f"**{statistics.median(found):.3f}**"
    return f"{middle} [{low:.3f}, {high:.3f}]" if len(found) > 1 else middle


def _values(of: str, samples: Sequence[Sample]) -> dict[tuple[int, int], float]:
    return {(s.round, s.number): s.values[of] for s in samples if of in s.values}


def _spread(values: Sequence[float]) -> str:
    """Median, and the smallest and the largest of the windows."""
    middle = _number(statistics.median(values))
    ends = f"{_number(min(values))} to {_number(max(values))}"
    return middle if min(values) == max(values) else f"{middle} ({ends})"


def _number(value: float) -> str:
    """Three digits that count."""
    return f"{value:.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.3g}"


def interval(values: Sequence[float]) -> tuple[float, float]:
    """A 95 % interval of the median, by drawing from the values again and again."""
    rng = random.Random(1)
    drawn = sorted(statistics.median(rng.choices(values, k=len(values))) for _ in range(RESAMPLES))
    return drawn[RESAMPLES // 40], drawn[-RESAMPLES // 40]


def conditions(rounds: int) -> list[str]:
    packages = ", ".join(f"{name} {version(name)}" for name in ("litellm", "uvicorn", "uvloop", "aiohttp", "pydantic"))
    return [
        f"{_processor()}, {platform.system()} {platform.release()}",
        f"Python {platform.python_version()}, bench-proxy {version('bench-proxy')}, {packages}",
        f"{rounds} rounds; every proxy is one process, started anew for each round",
        "absolute figures: median of the windows (smallest to largest)",
        "ratios: median of the pairs [95 % interval by bootstrap]; a pair are two windows, one right after the other",
    ]


def _processor() -> str:
    info = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    models = [line.partition(": ")[2] for line in info.splitlines() if line.startswith("model name")]
    return f"{len(models)} cores of {models[0]}" if models else platform.machine()
