"""`python -m benchmarks`: gateways side by side, window by window, and a report in `benchmarks/results/`."""

import argparse
import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import quantiles

import uvloop

from benchmarks import kept, load, process, report, workloads
from benchmarks.gateways import Gateway, free_port, litellm, reference
from benchmarks.load import Outcome
from benchmarks.report import Sample
from benchmarks.workloads import Case

RESULTS = Path(__file__).parent / "results"
IDLE_SECONDS = 10.0
WARM_STREAMS = 8
"""Of a case whose streams are held open: few, so that the memory of the many is not there before them."""


@dataclass(slots=True)
class Run:
    """What one run has measured so far."""

    cases: Sequence[Case]
    windows: int
    """Times as many windows as the table of cases says."""
    disk: Path
    memory: Path
    upstream: int
    samples: list[Sample] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    async def round(self, nth: int) -> None:
        names = [g for g in workloads.GATEWAYS if any(g in case.gateways for case in self.cases)]
        with ExitStack() as stack:
            gateways = {}
            for name in _turned(names, nth):
                gateways[name] = stack.enter_context(self._gateway(name, nth))
                seconds = await gateways[name].start(workloads.plain()(name)[0])
                self._add("start", "", name, nth, 0, {"start_s": seconds})
            await self._idle(gateways, nth)
            for case in self.cases:
                await self._case(case, gateways, nth)

    def _gateway(self, name: str, nth: int) -> Gateway:
        own = f"{nth}-{workloads.GATEWAYS.index(name)}"
        ledger = (self.memory if name == workloads.IN_MEMORY else self.disk) / own
        if (answers := workloads.KEPT.get(name)) is not None:
            ledger = self._kept(answers)
        if name == workloads.REFERENCE:
            return Gateway(name, self.disk / own, reference(self.upstream, workloads.collections()))
        callback = "benchmarks.unrecorded.gateway" if name == workloads.UNRECORDED else "bench_proxy.gateway"
        started = litellm(self.upstream, workloads.MODELS, workloads.block(name, ledger), callback)
        return Gateway(name, self.disk / own, started)

    def _kept(self, answers: int) -> Path:
        """Where a ledger is that holds so many; made once, since each round goes on with it."""
        folder = self.disk / f"kept-{answers}"
        if not folder.exists():
            _say(f"filling a ledger with {answers:,} answers")
            folder.mkdir()
            kept.fill(f"sqlite:///{folder / 'bench.db'}", answers, talks=answers // 10)
        return folder

    async def _idle(self, gateways: dict[str, Gateway], nth: int) -> None:
        for gateway in gateways.values():
            await process.at_rest(gateway.pid)
        used = {name: gateway.cpu_seconds() for name, gateway in gateways.items()}
        await asyncio.sleep(IDLE_SECONDS)
        for name, gateway in gateways.items():
            percent = (gateway.cpu_seconds() - used[name]) / IDLE_SECONDS * 100
            self._add("start", "", name, nth, 0, {"rss_mb": gateway.rss_mb(), "idle_percent": percent})

    async def _case(self, case: Case, gateways: dict[str, Gateway], nth: int) -> None:
        _say(f"round {nth + 1}: {case.workload}, {case.title}")
        at_once = min(case.at_once, WARM_STREAMS) if case.held else case.at_once
        warm = replace(case, at_once=at_once, turns=at_once if case.held else max(at_once, case.turns // 4))
        # Not recorded: code that runs for the first time.
        await asyncio.gather(*(self._window(warm, gateways[name]) for name in case.gateways))
        for number in range(1 if case.held else case.windows * self.windows):
            for name in _turned(case.gateways, nth + number):
                self._add(case.workload, case.title, name, nth, number, await self._window(case, gateways[name]))

    async def _window(self, case: Case, gateway: Gateway) -> dict[str, float]:
        turn = case.turn(gateway.name)
        await process.at_rest(gateway.pid)
        used = gateway.cpu_seconds()
        async with AsyncExitStack() as stack:
            grown = await stack.enter_async_context(process.growth(gateway.pid)) if case.held else None
            outcome = await load.run(
                gateway.url, gateway.key, turn, turns=case.turns, at_once=case.at_once, spread=case.spread
            )
        await process.at_rest(gateway.pid)
        used = gateway.cpu_seconds() - used
        self.faults += [f"{case.workload}, {case.title}, {gateway.name}: {fault}" for fault in outcome.faults]
        if not outcome.total:
            return {}
        return _values(outcome, used, gateway) | (_held(outcome, grown) if grown is not None else {})

    def _add(self, workload: str, case: str, gateway: str, nth: int, number: int, values: dict[str, float]) -> None:
        self.samples.append(Sample(workload, case, gateway, nth, number, values))


def _values(outcome: Outcome, used: float, gateway: Gateway) -> dict[str, float]:
    turns = len(outcome.total)
    return {
        "turns": turns,
        "cpu_ms": used / turns * 1e3,
        "per_second": turns / outcome.seconds,
        "rss_mb": gateway.rss_mb(),
        **_percentiles("", outcome.total),
        **_percentiles("first_", outcome.first),
        **_percentiles("over_", outcome.over),
        **_percentiles("after_", outcome.after),
        **_percentiles("beside_", outcome.beside),
    }


def _held(outcome: Outcome, grown: process.Growth) -> dict[str, float]:
    open_at_once = load.most_at_once(outcome.spans)
    return {"open": open_at_once, "stream_kb": grown.rss_mb / open_at_once * 1e3, "threads": grown.threads}


def _percentiles(name: str, seconds: Sequence[float]) -> dict[str, float]:
    if not seconds:
        return {}
    cuts = quantiles(seconds, n=100, method="inclusive") if len(seconds) > 1 else list(seconds) * 99
    return {f"{name}p{n}_ms": cuts[n - 1] * 1e3 for n in (50, 95, 99)}


def _turned(names: Sequence[str], number: int) -> list[str]:
    """Another order each time, so that nobody is always first, or always next to the same one."""
    at = number // 2 % len(names)
    turned = [*names[at:], *names[:at]]
    return turned[::-1] if number % 2 else turned


@contextmanager
def _upstream() -> Iterator[int]:
    port = free_port()
    server = subprocess.Popen([sys.executable, "-m", "benchmarks.upstream", "--port", str(port)])
    try:
        yield port
    finally:
        server.terminate()
        server.wait()


def _say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} load {os.getloadavg()[0]:.1f}  {text}", file=sys.stderr, flush=True)


async def run(cases: Sequence[Case], rounds: int, windows: int) -> bool:
    """Measure; print the report and keep it, with the samples, in `RESULTS`. Returns whether all answers were right."""
    if (task := asyncio.current_task()) is not None:  # so that the proxies are stopped, too
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    began, loads = time.strftime("%Y-%m-%d %H:%M"), [os.getloadavg()[0]]
    with (
        tempfile.TemporaryDirectory(prefix="bench-proxy-") as disk,
        tempfile.TemporaryDirectory(prefix="bench-proxy-", dir=workloads.SHARED_MEMORY) as memory,
        _upstream() as upstream,
    ):
        measured = Run(cases, windows, Path(disk), Path(memory), upstream)
        for nth in range(rounds):
            await measured.round(nth)
            loads.append(os.getloadavg()[0])
    when = f"{began} to {time.strftime('%H:%M')}; load of the machine {min(loads):.1f} to {max(loads):.1f}"
    text = report.render(measured.samples, measured.faults, [when, *report.conditions(rounds)])
    RESULTS.mkdir(exist_ok=True)
    file = RESULTS / time.strftime("%Y-%m-%d-%H%M%S")
    file.with_suffix(".json").write_text(json.dumps([asdict(s) for s in measured.samples]), encoding="utf-8")
    file.with_suffix(".md").write_text(text, encoding="utf-8")
    print(text)
    return not measured.faults


def main() -> None:
    cases = workloads.cases()
    known = list(dict.fromkeys(case.workload for case in cases))
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="What bench-proxy costs.")
    parser.add_argument(
        "--full",
        action="store_true",
        help="all workloads, 5 rounds and three times the windows: over an hour, not minutes",
    )
    parser.add_argument("--rounds", type=int, help="how often every proxy is started anew (3, with --full 5)")
    parser.add_argument("--only", nargs="+", choices=known, help="workloads")
    given = parser.parse_args()
    usual = [case.workload for case in cases if given.full or not case.full]
    cases = [case for case in cases if case.workload in (given.only or usual)]
    rounds = given.rounds or (5 if given.full else 3)
    if not uvloop.run(run(cases, rounds, windows=3 if given.full else 1)):
        sys.exit("some answers were wrong")


if __name__ == "__main__":
    main()
