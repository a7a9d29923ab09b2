"""What is left after a kill, a stop and a changed configuration."""

import asyncio
import random
import re
import signal
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.asking import CHAT, Json, ask, async_events, events, eventually, panel, question, refusal, statuses
from tests.proxy import Proxy
from tests.upstream import Upstream

pytestmark = pytest.mark.proxy

CALL = re.compile(r"p\d{8}-\d{6}-[a-z2-7]{16}\.(?:member|explorer|guest)\d+")
MODELS = {name: name for name in ("ok-a", "ok-b", "slow50-c", "slow100-d", "gate-a", "gate-b")}
BENCH: Json = {
    "collections": {
        "mixed": {"members": ["ok-a", "slow50-c", "slow100-d"], "explorers": 1},
        "gated": {"members": ["ok-a", "gate-a"], "explorers": 0},
        "overdue": {"members": ["ok-a", "gate-b"], "explorers": 0},
        "pair": {"members": ["ok-a", "ok-b"], "explorers": 0},
    },
    "models": {name: {"family": name, "explore": name == "ok-b"} for name in MODELS},
    "timing": {"seat_timeout": 20},
}


@pytest.fixture(scope="module")
def survivor(upstream: Upstream) -> Iterator[Proxy]:
    """A proxy that the tests below kill, stop and reload, each leaving it running."""
    with Proxy(upstream.api_base, MODELS, bench=BENCH) as served:
        yield served


def shown(caller: httpx.Client, panel_id: str) -> Json:
    response = caller.get(f"/bench/panels/{panel_id}")
    assert response.status_code == 200, (panel_id, response.text)
    found: Json = response.json()
    return found


class Witness:
    """What callers have seen of a proxy: calls with their answers, and verdicts that were acknowledged."""

    def __init__(self) -> None:
        self.calls: dict[str, str] = {}
        self.verdicts: dict[str, bool] = {}
        self.panels = 0

    async def ask(self, caller: httpx.AsyncClient) -> None:
        """Read a streamed panel, piece by piece, and judge seats while it still runs."""
        async with caller.stream("POST", CHAT, json=question("bench/mixed", stream=True)) as response:
            async for event in async_events(response):
                for choice in event.get("choices", ()) if isinstance(event, dict) else ():
                    text = choice["delta"].get("content") or ""
                    if text.startswith("## ") and (call := CALL.search(text)):
                        self.calls[call[0]] = text
                        if random.random() < 0.5:  # noqa: S311
                            await self.judge(caller, call[0])
        self.panels += 1

    async def judge(self, caller: httpx.AsyncClient, call: str) -> None:
        useful = random.random() < 0.5  # noqa: S311
        reply = await caller.post("/bench/verdict", json={"call": call, "useful": useful})
        assert reply.json()["recorded"] is True, reply.text
        self.verdicts[call] = useful


async def until_killed(served: Proxy, enough: int) -> Witness:
    """Many callers at once until so many panels are complete; then the proxy is killed under them."""
    witness = Witness()
    async with served.async_client() as caller:

        async def client() -> None:
            while True:
                await witness.ask(caller)

        clients = [asyncio.create_task(client()) for _ in range(24)]
        while witness.panels < enough:
            await asyncio.sleep(0.05)
            assert not any(task.done() for task in clients)
        served.kill()
        ended = await asyncio.gather(*clients, return_exceptions=True)
        assert all(isinstance(error, httpx.TransportError) for error in ended), ended
    return witness


def test_after_kill_9_under_load_every_call_seen_and_every_verdict_acknowledged_is_there(
    survivor: Proxy, upstream: Upstream
) -> None:
    upstream.clear()
    witness = asyncio.run(until_killed(survivor, 40))
    assert survivor.exit_code == -signal.SIGKILL
    assert len(witness.calls) > 4 * 40
    assert len(witness.verdicts) > 40
    survivor.start()
    with survivor.client() as caller:
        recorded: dict[str, Json] = {}
        for panel_id in {call.partition(".")[0] for call in witness.calls}:
            recorded |= {seat["call"]: seat for seat in shown(caller, panel_id)["seats"]}
        for call, section in witness.calls.items():
            seat = recorded[call]
            assert seat["status"] == "ok"
            assert seat["answer"] in section
            assert f": {seat['alias']}\n" in section
        for call, useful in witness.verdicts.items():
            assert recorded[call]["verdict"]["useful"] is useful
        # The sums are what the rows add up to, also of panels that nobody saw the end of.
        lines = caller.get("/bench/record").json()["models"]
        rows = list(every_seat(caller))
        for alias in ("ok-a", "ok-b", "slow50-c", "slow100-d"):
            of_alias = [seat for seat in rows if seat["alias"] == alias]
            sums = {
                name: sum(line[name] for line in lines if line["alias"] == alias) for name in lines[0] if name in COUNTS
            }
            assert sums == {
                "answered": len(of_alias),
                "useful": sum(seat.get("verdict", {}).get("useful") is True for seat in of_alias),
                "not_useful": sum(seat.get("verdict", {}).get("useful") is False for seat in of_alias),
            }
        panel(caller, "bench/mixed")


COUNTS = {"answered", "useful", "not_useful"}


def every_seat(caller: httpx.Client) -> Iterator[Json]:
    """All seats on the record, page by page."""
    cursor: str | None = None
    while True:
        where: dict[str, Any] = {"limit": 200} | ({"cursor": cursor} if cursor else {})
        page = caller.get("/bench/panels", params=where).json()
        for listed in page["panels"]:
            yield from listed["seats"]
        if (cursor := page["next"]) is None:
            return


async def stopped_while_running(served: Proxy, upstream: Upstream) -> tuple[list[Json], Json]:
    """Send SIGTERM while panels run, then let their models answer: what callers got, and a panel with a late seat."""
    async with served.async_client() as caller:

        async def whole() -> Json:
            response = await caller.post(CHAT, json=question("bench/gated"))
            assert response.status_code == 200
            found: Json = response.json()["bench"]
            return found

        async def streamed() -> Json:
            async with caller.stream("POST", CHAT, json=question("bench/gated", stream=True)) as response:
                read = [event async for event in async_events(response)]
            assert read[-1] == "[DONE]"
            last = read[-2]
            assert isinstance(last, dict)
            found: Json = last["bench"]
            return found

        late = (await caller.post(CHAT, json=question("bench/overdue", bench={"deadline": 0.2}))).json()["bench"]
        asking = [asyncio.create_task(one()) for one in (whole, streamed) for _ in range(5)]
        wanted = len(asking)
        await asyncio.to_thread(
            upstream.wait_for, lambda calls: [call.model for call in calls].count("gate-a") == wanted, 30
        )
        assert served.process is not None
        served.process.send_signal(signal.SIGTERM)
        await closed(served)
        upstream.release("gate-a", wanted)
        upstream.release("gate-b")
        return list(await asyncio.gather(*asking)), late


async def closed(served: Proxy) -> None:
    """Wait until the proxy takes no more connections."""
    while True:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", served.port)
        except OSError:
            return
        writer.close()
        await asyncio.sleep(0.02)


def test_after_sigterm_running_panels_finish_and_are_recorded(survivor: Proxy, upstream: Upstream) -> None:
    upstream.clear()
    replies, late = asyncio.run(stopped_while_running(survivor, upstream))
    assert survivor.stop() == 0
    for data in replies:
        assert statuses(data) == {"ok-a": "ok", "gate-a": "ok"}
    assert statuses(late) == {"ok-a": "ok", "gate-b": "late"}
    assert "Traceback" not in survivor.log().rpartition("Shutting down")[2]
    survivor.start()
    with survivor.client() as caller:
        for data in replies:
            found = shown(caller, data["panel"])
            assert (found["over"], found["partial"]) == (True, False)
            assert [seat["answer"] for seat in found["seats"]] == ["I am ok-a.", "I am gate-a."]
        assert statuses(shown(caller, late["panel"])) == {"ok-a": "ok", "gate-b": "ok"}


SLOW = """
import asyncio
import os
from litellm.integrations.custom_logger import CustomLogger

class Slow(CustomLogger):
    async def async_log_success_event(self, kwargs, response_obj, start_time, end_time):
        await asyncio.sleep(float(os.environ.get("SLOW_SECONDS", "1")))
        with open("told", "a") as told:
            told.write(kwargs["model"] + "\\n")

slow = Slow()
"""


@pytest.mark.parametrize("ends", [(signal.SIGTERM,), (signal.SIGTERM, signal.SIGTERM), (signal.SIGINT,)])
def test_a_stop_waits_until_litellm_is_told_of_each_call_and_the_ledger_is_closed(
    upstream: Upstream, ends: tuple[signal.Signals, ...]
) -> None:
    callbacks = ["bench_proxy.gateway", "slowly.slow"]
    with Proxy(upstream.api_base, MODELS, bench=BENCH, callbacks=callbacks, files={"slowly.py": SLOW}) as stopped:
        with stopped.client() as caller:
            assert caller.get("/bench/models").json()["models"][0]["lane"] == "lean"
            for _ in range(2):
                assert ask(caller, "bench/pair").status_code == 200
        assert stopped.process is not None
        for number in ends:
            stopped.process.send_signal(number)
            time.sleep(0.2)
        assert stopped.stop() == 0
        assert sorted((stopped.directory / "told").read_text().split()) == ["ok-a", "ok-a", "ok-b", "ok-b"]
        # What SQLite has not moved from its journal into the file would stand beside it.
        assert [file.name for file in stopped.directory.glob("*.db*")] == ["bench.db"]


def test_a_stop_that_requests_hold_up_for_too_long_ends_as_well(upstream: Upstream) -> None:
    callbacks, files = ["bench_proxy.gateway", "slowly.slow"], {"slowly.py": SLOW}
    env = {"GRACEFUL_SHUTDOWN_TIMEOUT": "1", "SLOW_SECONDS": "4"}
    upstream.clear()
    with Proxy(upstream.api_base, MODELS, bench=BENCH, callbacks=callbacks, files=files, env=env) as stopped:
        with stopped.client() as caller, ThreadPoolExecutor(1) as beside:
            assert ask(caller, "bench/pair").status_code == 200
            held = beside.submit(ask, caller, "bench/gated")
            upstream.wait_for(lambda calls: "gate-a" in [call.model for call in calls], 30)
            assert stopped.stop() == 0
            assert held.exception() is not None or held.result().status_code == 503
        assert sorted((stopped.directory / "told").read_text().split()) == ["ok-a", "ok-a", "ok-b"]
        assert [file.name for file in stopped.directory.glob("*.db*")] == ["bench.db"]
        assert "requests that still run 1 seconds after the stop are cancelled: 1" in stopped.log()
        assert "did not end well" not in stopped.log()
    upstream.release("gate-a")


def test_a_panel_that_litellm_itself_was_asked_for_is_stopped_with_its_request(upstream: Upstream) -> None:
    """LiteLLM knows the collection as a model: its caller's leaving does not end the panel."""
    models = {**MODELS, "council": {"litellm_params": {"model": "bench/gated"}}}
    env = {"GRACEFUL_SHUTDOWN_TIMEOUT": "1"}
    upstream.clear()
    with Proxy(upstream.api_base, models, bench=BENCH, env=env) as stopped:
        with stopped.client() as caller, ThreadPoolExecutor(1) as beside:
            held = beside.submit(ask, caller, "council")
            upstream.wait_for(lambda calls: "gate-a" in [call.model for call in calls], 30)
            assert stopped.stop(timeout=30) == 0
            assert held.exception() is not None or held.result().status_code >= 500
        assert [file.name for file in stopped.directory.glob("*.db*")] == ["bench.db"]
    upstream.release("gate-a")


def test_a_client_that_does_not_read_holds_up_no_stop(upstream: Upstream) -> None:
    with Proxy(upstream.api_base, MODELS, bench=BENCH, env={"GRACEFUL_SHUTDOWN_TIMEOUT": "1"}) as stopped:
        with socket.socket() as deaf:
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            deaf.connect(("127.0.0.1", stopped.port))
            deaf.sendall(b"GET /openapi.json HTTP/1.1\r\nhost: a\r\n\r\n" * 20)  # megabytes each
            time.sleep(2)  # until the server has something that it cannot send
            assert stopped.stop(timeout=30) == 0
        assert [file.name for file in stopped.directory.glob("*.db*")] == ["bench.db"]


def test_a_shadow_that_is_stopped_is_not_its_members_failure(upstream: Upstream) -> None:
    bench = {**BENCH, "route": {"shadow": 1, "explore_share": 0}}
    upstream.clear()
    with Proxy(upstream.api_base, MODELS, bench=bench) as stopped:
        with stopped.client() as caller:
            assert ask(caller, "bench/gated:route").json()["bench"]["alias"] == "ok-a"
            upstream.wait_for(lambda calls: "gate-a" in [call.model for call in calls], 30)
        assert stopped.stop() == 0
        stopped.start()
        with stopped.client() as caller:
            lines = caller.get("/bench/record").json()["models"]
            assert {line["alias"]: line["failed"] for line in lines} == {"ok-a": 0}
    upstream.release("gate-a")


def test_a_proxy_whose_ledger_cannot_be_opened_is_stopped_without_a_wait(upstream: Upstream) -> None:
    bench = {**BENCH, "ledger": {"url": "sqlite:////dev/null/bench.db"}}
    with Proxy(upstream.api_base, MODELS, bench=bench) as stopped:
        # LiteLLM would end what is left after half a minute.
        assert stopped.stop(timeout=20) == 0


# A changed configuration.


def collections(caller: httpx.Client) -> set[str]:
    return {entry["name"] for entry in caller.get("/bench/collections").json()["collections"]}


def reloaded(served: Proxy) -> int:
    return served.log().count("configuration reloaded")


@pytest.fixture
def original(survivor: Proxy) -> Iterator[Json]:
    """The configuration, which is put back at the end."""
    before = yaml.safe_load(yaml.safe_dump(survivor.config["bench"]))
    yield before
    seen = reloaded(survivor)
    survivor.config["bench"] = before
    if survivor.config_path.is_symlink():
        survivor.config_path.unlink()
    survivor.write_config()
    hang_up(survivor)
    assert eventually(lambda: reloaded(survivor) > seen)


def hang_up(served: Proxy) -> None:
    """The signal that asks for a look at the configuration now."""
    assert served.process is not None
    served.process.send_signal(signal.SIGHUP)


def changed_file(served: Proxy) -> None:
    served.write_config()


def swapped_symlink(served: Proxy) -> None:
    """As Kubernetes changes a ConfigMap: the file is a link, and what it leads through is replaced in one step."""
    text = yaml.safe_dump(served.config, sort_keys=False)
    for number, content in enumerate((served.config_path.read_text(encoding="utf-8"), text)):
        folder = served.directory / f"..data_{number}"
        folder.mkdir(exist_ok=True)
        (folder / "litellm_config.yaml").write_text(content, encoding="utf-8")
    point(served.directory / "..data", Path("..data_0"))
    point(served.config_path, Path("..data") / "litellm_config.yaml")
    # The new link is another file with the same content, which is also taken up.
    before = reloaded(served)
    assert eventually(lambda: reloaded(served) > before)
    point(served.directory / "..data", Path("..data_1"))


def point(link: Path, target: Path) -> None:
    fresh = link.with_name(f"{link.name}.fresh")
    fresh.symlink_to(target)
    fresh.replace(link)


def asked_to_look(served: Proxy) -> None:
    served.write_config()
    hang_up(served)


@pytest.mark.parametrize("change", [changed_file, swapped_symlink, asked_to_look], ids=lambda change: change.__name__)
def test_a_changed_configuration_holds_for_the_next_request(
    survivor: Proxy, upstream: Upstream, original: Json, change: Callable[[Proxy], None]
) -> None:
    with survivor.client() as caller:
        refusal(ask(caller, "bench/added"), 404)
        survivor.config["bench"]["collections"]["added"] = {"members": ["ok-b"], "explorers": 0}
        survivor.config["bench"]["collections"].pop("pair")
        change(survivor)
        assert eventually(lambda: "added" in collections(caller))
        assert statuses(panel(caller, "bench/added")["bench"]) == {"ok-b": "ok"}
        refusal(ask(caller, "bench/pair"), 404)
        assert "bench/added" in [entry["id"] for entry in caller.get("/v1/models").json()["data"]]


def test_a_panel_that_runs_is_not_changed_by_a_reload(survivor: Proxy, upstream: Upstream, original: Json) -> None:
    upstream.clear()
    with (
        survivor.client() as caller,
        caller.stream("POST", CHAT, json=question("bench/gated", stream=True)) as response,
        survivor.client() as other,
    ):
        reading = events(response)
        opening = [next(reading), next(reading)]
        survivor.config["bench"]["collections"].pop("gated")
        asked_to_look(survivor)
        assert eventually(lambda: "gated" not in collections(other))
        upstream.release("gate-a")
        rest = list(reading)
    assert len(opening) == 2
    last = rest[-2]
    assert isinstance(last, dict)
    assert statuses(last["bench"]) == {"ok-a": "ok", "gate-a": "ok"}


@pytest.mark.parametrize(
    ("broken", "told"),
    [
        ("bench: {collections: {added: {members: [ok-z]}}}", 'LiteLLM has no model "ok-z"'),
        ("bench: {collections: [", "is not valid YAML"),
        ("bench: 5", "must be a mapping"),
    ],
)
def test_a_bad_file_is_logged_and_the_old_configuration_stays(
    survivor: Proxy, upstream: Upstream, original: Json, broken: str, told: str
) -> None:
    with survivor.client() as caller:
        before = collections(caller)
        seen = survivor.log().count(told)
        rest = yaml.safe_dump({name: value for name, value in survivor.config.items() if name != "bench"})
        survivor.config_path.write_text(f"{rest}{broken}\n", encoding="utf-8")
        hang_up(survivor)
        assert eventually(lambda: survivor.log().count(told) > seen)
        assert collections(caller) == before
        ready = caller.get("/bench/health/ready")
        assert (ready.status_code, ready.json()["status"]) == (200, "ok")
        assert "is not used" in ready.json()["configuration"]
        panel(caller, "bench/pair")


def test_a_file_that_is_gone_for_a_while_changes_nothing(survivor: Proxy, upstream: Upstream, original: Json) -> None:
    with survivor.client() as caller:
        aside = survivor.config_path.rename(survivor.directory / "aside.yaml")
        hang_up(survivor)
        assert eventually(lambda: "cannot be read" in survivor.log())
        panel(caller, "bench/pair")
        aside.rename(survivor.config_path)


def test_the_ledger_is_readable_by_its_owner_alone(survivor: Proxy) -> None:
    assert (survivor.directory / "bench.db").stat().st_mode & 0o077 == 0
