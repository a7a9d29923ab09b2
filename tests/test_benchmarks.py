"""The parts of the benchmarks: model servers, the bare fan-out, what is counted, and what is made of it."""

import asyncio
import json
import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import anthropic
import pytest
from aiohttp import web
from anthropic.types import TextBlock

from benchmarks import gateways, load, process, reference, report, upstream, workloads
from benchmarks.load import Ask
from benchmarks.report import Sample
from benchmarks.unrecorded import Unrecorded
from benchmarks.workloads import BARE, MOUNTED, REFERENCE, UNRECORDED
from tests.asking import eventually
from tests.doubles import Models, Table

KEY = "sk-test"
MEMBERS = {"three": ["m1", "m2", "m3"], "one": ["m1-n3"]}


@pytest.fixture
async def models() -> AsyncIterator[str]:
    """Where a model server answers."""
    async with await asyncio.get_running_loop().create_server(upstream.Connection, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


@pytest.fixture
async def fan_out(models: str) -> AsyncIterator[str]:
    """Where a bare fan-out to its models answers."""
    runner = web.AppRunner(reference.build(models, MEMBERS))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


def asking(model: str, *names: str, stream: bool = False) -> Ask:
    return Ask(json.dumps({"model": model, "messages": [], "stream": stream}).encode(), names, stream, exact=False)


@pytest.mark.parametrize("name", ["m1", "m1-n2", "m1-n20"])
async def test_a_model_says_in_anthropics_format_what_it_says_in_chat_completions(models: str, name: str) -> None:
    for stream in (False, True):
        heard = await load.run(models, KEY, [asking(name, name, stream=stream)], turns=1, at_once=1)
        assert not heard.faults
        assert len(heard.total) == 1
    said = upstream.said(name)
    asked: Any = {"model": name, "max_tokens": 9, "messages": [{"role": "user", "content": "Why?"}]}
    async with anthropic.AsyncAnthropic(base_url=models, api_key=KEY) as client:
        whole = await client.messages.create(**asked)
        async with client.messages.stream(**asked) as streaming:
            pieces = [piece async for piece in streaming.text_stream]
            streamed = await streaming.get_final_message()
    assert len(pieces) == len(upstream.pieces(name))
    assert said.fullmatch("".join(pieces))
    for message in (whole, streamed):
        block = message.content[0]
        assert isinstance(block, TextBlock)
        assert said.fullmatch(block.text)
        assert message.stop_reason == "end_turn"
        assert message.usage.output_tokens == len(pieces)


@pytest.mark.parametrize(
    "asked",
    [
        asking("m1", "m1"),
        asking("bench/three", "m1", "m2", "m3"),
        asking("bench/one:route", "m1-n3", stream=True),
    ],
    ids=["a model", "a panel", "a streamed turn"],
)
async def test_the_bare_fan_out_passes_on_what_its_models_say(fan_out: str, asked: Ask) -> None:
    outcome = await load.run(fan_out, KEY, [asked], turns=3, at_once=2)
    assert not outcome.faults
    assert len(outcome.total) == len(outcome.spans) == 3


def test_an_answer_is_open_from_its_first_byte_to_its_last() -> None:
    assert load.most_at_once([]) == 0
    assert load.most_at_once([(0, 2), (1, 3), (2, 4)]) == 2
    assert load.most_at_once([(0, 9), (1, 9), (2, 3)]) == 3


async def test_growth_is_the_most_that_there_was_above_the_start() -> None:
    ended = threading.Event()
    async with process.growth(os.getpid()) as grown:
        workers = [threading.Thread(target=ended.wait, daemon=True) for _ in range(3)]
        for worker in workers:
            worker.start()
        held = b"x" * 50_000_000
        assert await asyncio.to_thread(eventually, lambda: grown.rss_mb > 40 and grown.threads >= 3)
        assert held
        ended.set()
        for worker in workers:
            worker.join()


async def test_a_ledger_that_is_told_nothing_keeps_nothing_of_a_panel(tmp_path: Path) -> None:
    ledger = await Unrecorded.open(f"sqlite:///{tmp_path / 'bench.db'}", lambda: "full")
    table = Table(Models(), members=["gpt", "claude"], ledger=ledger)  # type: ignore[arg-type]
    _, ended = await table.ask()
    assert [answer.status for answer in ended.answers] == ["ok", "ok"]
    await ledger.close()
    with closing(sqlite3.connect(tmp_path / "bench.db")) as database:
        assert database.execute("SELECT id FROM panels UNION SELECT call FROM seats").fetchall() == []


def test_every_model_is_on_the_lane_that_is_measured(tmp_path: Path) -> None:
    block = workloads.block(MOUNTED, tmp_path)
    file = tmp_path / "litellm_config.yaml"
    file.write_text(json.dumps(gateways.configuration(1, workloads.MODELS, block, "bench_proxy.gateway")))
    command = [sys.executable, "-m", "bench_proxy", "check-config", "--lanes", "--config", str(file)]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert set(said.splitlines()) >= {f"  {name}: lean lane" for name in workloads.MODELS}


def window(case: str, gateway: str, cpu_ms: float, *, nth: int = 0, number: int = 0) -> Sample:
    return Sample("turns", case, gateway, nth, number, {"cpu_ms": cpu_ms})


def test_a_further_chunk_costs_what_a_long_stream_costs_above_a_short_one_of_its_round() -> None:
    few = [window(workloads.FEW, BARE, ms, number=n) for n, ms in enumerate((9.0, 10.0, 30.0))]
    many = [window(workloads.MANY, BARE, 508.0, number=n) for n in (0, 1)]
    alone = window(workloads.MANY, BARE, 508.0, nth=1)
    lost = Sample("turns", workloads.MANY, MOUNTED, 0, 0, {})
    found = report.further([*few, *many, alone, lost])
    assert [(s.case, s.gateway, s.round, s.number) for s in found] == [
        ("a chunk of a turn", BARE, 0, 0),
        ("a chunk of a turn", BARE, 0, 1),
    ]
    assert all(s.values == {"cpu_us": pytest.approx(1000)} for s in found)


def test_what_is_told_apart_by_a_further_one_is_measured() -> None:
    measured = {(case.workload, case.title) for case in workloads.cases()}
    for further in workloads.further():
        assert {(further.workload, further.much), (further.workload, further.little)} <= measured


@pytest.mark.parametrize(
    ("workload", "base"), [("held", REFERENCE), ("image", REFERENCE), ("crowd", REFERENCE), ("ledger", UNRECORDED)]
)
def test_ratios_are_against_the_first_gateway_of_the_case(workload: str, base: str) -> None:
    case = next(case for case in workloads.cases() if case.workload == workload)
    values: Mapping[str, dict[str, float]] = {
        g: {"cpu_ms": 6.0, "stream_kb": 6.0, "p50_ms": 6.0} for g in case.gateways
    }
    values[base].update(cpu_ms=4.0, stream_kb=4.0, p50_ms=4.0)
    samples = [Sample(workload, case.title, gateway, 0, 0, values[gateway]) for gateway in case.gateways]
    rows = [line for line in report.render(samples, [], []).splitlines() if line.startswith(f"| {case.title} |")]
    assert "**" not in rows[0]
    assert f"| {base} |" in rows[0]
    assert all("**1.500**" in row for row in rows[1:])
