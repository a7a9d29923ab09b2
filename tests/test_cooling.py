"""When a model cools, for how long, who knows of it, and what it changes."""

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench_proxy.catalog import Catalog, HostFacts
from bench_proxy.config import Config
from bench_proxy.cooling import (
    FAILURES,
    FIRST,
    LONGEST,
    LONGEST_STATED,
    RATE_LIMITED,
    REMEMBERED,
    Cooled,
    Cooling,
    NotShared,
    after,
    stated_wait,
)
from bench_proxy.errors import KINDS
from bench_proxy.formats.request import Brief
from bench_proxy.panel.seating import Numbering, plan
from tests.proxy import Proxy
from tests.redis_server import redis_server
from tests.upstream import Upstream

Json = dict[str, Any]

# The rules


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def cooling(clock: Clock) -> Cooling:
    return Cooling(clock)


@pytest.mark.parametrize("kind", sorted(FAILURES))
def test_a_failure_of_the_model_cools_for_thirty_seconds(cooling: Cooling, clock: Clock, kind: str) -> None:
    cooling.failed("gpt", kind)
    assert cooling.left() == {"gpt": FIRST}
    clock.now += FIRST
    assert cooling.left() == {}


@pytest.mark.parametrize("kind", sorted(KINDS - FAILURES - {"rate_limit"}))
def test_what_is_not_the_models_failure_does_not_cool(cooling: Cooling, kind: str) -> None:
    cooling.failed("gpt", kind)
    assert cooling.left() == {}


def test_each_failure_in_a_row_doubles_the_time_up_to_fifteen_minutes(cooling: Cooling, clock: Clock) -> None:
    waits = []
    for _ in range(8):
        cooling.failed("gpt", "timeout", seconds=0.5)
        waits.append(cooling.left()["gpt"])
        clock.now += waits[-1] + 1
    assert waits == [30, 60, 120, 240, 480, LONGEST, LONGEST, LONGEST]


def test_calls_that_fail_side_by_side_are_one_failure(cooling: Cooling, clock: Clock) -> None:
    for _ in range(20):
        cooling.failed("gpt", "server_error", seconds=5)
        clock.now += 0.1
    assert cooling.left()["gpt"] <= FIRST


def test_an_answer_ends_it_and_the_row(cooling: Cooling, clock: Clock) -> None:
    cooling.failed("gpt", "timeout")
    cooling.failed("gpt", "timeout")
    cooling.worked("gpt")
    assert cooling.left() == {}
    cooling.failed("gpt", "timeout")
    assert cooling.left() == {"gpt": FIRST}


@pytest.mark.parametrize(
    ("stated", "wait"),
    [(None, RATE_LIMITED), (5.0, 5.0), (0.0, RATE_LIMITED), (-3.0, RATE_LIMITED), (10_000.0, LONGEST_STATED)],
)
def test_a_rate_limit_cools_as_long_as_it_says_up_to_an_hour(
    cooling: Cooling, stated: float | None, wait: float
) -> None:
    cooling.failed("gpt", "rate_limit", retry_after=stated)
    assert cooling.left() == {"gpt": wait}


def test_a_rate_limit_is_no_failure_in_a_row_and_shortens_nothing(cooling: Cooling, clock: Clock) -> None:
    cooling.failed("gpt", "rate_limit", retry_after=300)
    cooling.failed("gpt", "rate_limit", retry_after=1)
    assert cooling.left() == {"gpt": 300}
    cooling.failed("gpt", "timeout")
    assert cooling.left() == {"gpt": 300}
    clock.now += 301
    cooling.failed("gpt", "timeout")
    assert cooling.left() == {"gpt": 60}


@given(
    st.lists(
        st.tuples(
            st.sampled_from(sorted(KINDS)), st.floats(0, 1e6), st.none() | st.floats(allow_nan=False), st.floats(0, 1e4)
        )
    )
)
def test_any_history_cools_for_an_hour_at_most(history: list[tuple[str, float, float | None, float]]) -> None:
    now, cooled = 0.0, None
    for kind, seconds, retry_after, pause in history:
        now += pause
        cooled = after(cooled, kind, now=now, began=now - seconds, retry_after=retry_after) or cooled
        assert cooled is None or cooled.at <= cooled.until <= cooled.at + LONGEST_STATED


@pytest.mark.parametrize(
    ("message", "wait"),
    [
        ("Rate limit reached for gpt-4o. Please try again in 7.66s. Visit", 7.66),
        ("Please try again in 20ms.", 0.02),
        ("Please try again in 1m12.5s.", 72.5),
        ("Please try again in 6m0s.", 360),
        ("Please try again in 1h2m3s.", 3600),
        ("Please retry after 26 seconds.", 26),
        ("Please retry in 41.5s.", 41.5),
        ('{"@type": "RetryInfo", "retryDelay": "41s"}', 41),
        ("Retry after 2 minutes", 120),
        ("Please retry after 500 milliseconds", 0.5),
        ("Please try again in 1 hour 5 minutes.", 3600),
        ("Please try again in 1 minute 5 seconds.", 65),
        ("try again in 99999999 days", LONGEST_STATED),
        ("try again later", None),
        ("try again in a minute", None),
        ("", None),
    ],
)
def test_a_wait_that_an_error_states_in_words_is_read(message: str, wait: float | None) -> None:
    assert stated_wait(message) == wait


@given(st.text())
def test_any_words_state_a_wait_up_to_an_hour_or_none(message: str) -> None:
    wait = stated_wait(f"try again in {message}")
    assert wait is None or 0 < wait <= LONGEST_STATED


# Sharing


class Shared:
    """A `SharedCooling` in memory, over the clock that the processes share; None for one that is down."""

    def __init__(self) -> None:
        self.cooled: dict[str, Cooled] | None = {}
        self.host: dict[str, float] = {}
        self.meanwhile: Callable[[], None] = lambda: None

    async def exchange(
        self, changed: Mapping[str, Cooled | None], aliases: Collection[str], now: float
    ) -> Mapping[str, Cooled] | None:
        self.meanwhile()
        if self.cooled is None:
            return None
        for alias, cooled in changed.items():
            if cooled is None:
                self.cooled.pop(alias, None)
            else:
                self.cooled[alias] = cooled
        return {alias: self.cooled[alias] for alias in aliases if alias in self.cooled}

    async def hosts(self, aliases: Collection[str], now: float) -> Mapping[str, float]:
        return {alias: until for alias, until in self.host.items() if alias in aliases}


async def test_processes_share_what_cools_and_what_works_again(clock: Clock) -> None:
    shared, one, two = Shared(), Cooling(clock), Cooling(clock)
    one.failed("gpt", "timeout")
    for process in (one, two):
        await process.exchange(shared, ["gpt"])
    assert two.left() == {"gpt": FIRST}
    two.worked("gpt")
    for process in (two, one):
        await process.exchange(shared, ["gpt"])
    assert one.left() == {}


async def test_failures_of_all_processes_make_one_row(clock: Clock) -> None:
    shared, one, two = Shared(), Cooling(clock), Cooling(clock)
    for process in (one, two, one):
        await process.exchange(shared, ["gpt"])
        clock.now += 1
        process.failed("gpt", "timeout", seconds=0.1)
        await process.exchange(shared, ["gpt"])
    assert one.left() == {"gpt": pytest.approx(120)}


async def test_what_is_noted_during_an_exchange_stays(clock: Clock) -> None:
    shared, process = Shared(), Cooling(clock)
    shared.meanwhile = lambda: process.failed("gpt", "timeout")
    await process.exchange(shared, ["gpt"])
    assert process.left() == {"gpt": FIRST}


async def test_where_nothing_is_shared_each_process_has_its_own(clock: Clock) -> None:
    shared, process = Shared(), Cooling(clock)
    shared.cooled = None
    process.failed("gpt", "timeout")
    await process.exchange(shared, ["gpt"])
    assert process.left() == {"gpt": FIRST}


class Failing(Shared):
    """Cannot be reached while `down`."""

    down = False

    async def exchange(
        self, changed: Mapping[str, Cooled | None], aliases: Collection[str], now: float
    ) -> Mapping[str, Cooled] | None:
        if self.down:
            raise NotShared
        return await super().exchange(changed, aliases, now)


async def test_what_could_not_be_shared_is_shared_later(clock: Clock) -> None:
    shared, one, two = Failing(), Cooling(clock), Cooling(clock)
    two.failed("claude", "timeout")
    await two.exchange(shared, ["gpt", "claude"])
    await one.exchange(shared, ["gpt", "claude"])
    shared.down = True
    one.failed("gpt", "timeout")
    one.worked("claude")
    await one.exchange(shared, ["gpt", "claude"])
    shared.down = False
    for process in (one, two):
        await process.exchange(shared, ["gpt", "claude"])
        assert process.left() == {"gpt": FIRST}


async def test_litellms_own_cooldown_is_cooling_too(clock: Clock) -> None:
    shared, process = Shared(), Cooling(clock)
    shared.host = {"gpt": clock.now + 5, "other": clock.now + 50}
    process.failed("other", "timeout")
    await process.exchange(shared, ["gpt", "other"])
    assert process.left() == {"gpt": 5, "other": 50}
    clock.now += 5
    assert process.left() == {"other": 45}


async def test_a_row_is_forgotten_an_hour_after_its_end(clock: Clock) -> None:
    shared, process = Shared(), Cooling(clock)
    process.failed("gpt", "timeout")
    clock.now += FIRST + REMEMBERED + 1
    await process.exchange(shared, [])
    process.failed("gpt", "timeout")
    assert process.left() == {"gpt": FIRST}


# Seating


def test_a_cooling_model_does_not_explore_and_a_cooling_member_or_guest_sits() -> None:
    catalog = Catalog([HostFacts(alias, alias) for alias in "agxy"], {})
    config = Config.model_validate({"collections": {"core": {"members": ["a"], "explorers": 2}}})
    brief = Brief("bench/core", "core", "all", guests=("g",))
    planned = plan(
        Numbering("p1", most=5), brief, config, catalog, images=False, allowed=["g"], cooling={"a": 3, "g": 3, "x": 3}
    )
    assert [seat.alias for seat in planned.seats] == ["a", "g"]
    assert planned.skipped == ()
    assert [m.alias for m in planned.candidates] == ["y"]


# Through a real proxy

MODELS: dict[str, Any] = {
    name: name
    for name in (
        "ok-a", "ok-explorer", "fail500-explorer", "fail500-member", "fail503-a", "rate30-a", "fail429-a", "context-a",
        "fail400-a", "fail422-a", "fail401-a", "fail403-a", "fail404-a", "hang-a", "cut-a", "html-a",
        "once-fail500-a", "once-fail500-b", "fail401-lone", "fail404-own",
    )
}  # fmt: skip


def collection(*members: str, explorers: int = 0, **more: Any) -> Json:
    return {"members": list(members), "explorers": explorers, "shape": "general", **more}


BENCH: Json = {
    "collections": {
        "explored": collection("ok-a", explorers=1),
        "failing": collection("ok-a", "fail500-member"),
        "many": collection("fail503-a", "rate30-a", "fail429-a", "fail403-a", "hang-a", "cut-a", "html-a", "ok-a"),
        "blameless": collection("ok-a", "context-a", "fail400-a", "fail422-a"),
        "recovering": collection("ok-a", "once-fail500-a"),
        "shared": collection("ok-a", "once-fail500-b"),
        "lone": collection("fail401-lone"),
        "own": collection("fail404-own", "ok-a"),
    },
    "models": {name: {"family": name, "explore": "explorer" in name} for name in MODELS},
    "limits": {"max_calls": 8},
    "timing": {"seat_timeout": 2, "explorer_grace": 2},
}


@pytest.fixture(scope="module")
def redis_port() -> Iterator[int | None]:
    with redis_server() as port:
        yield port


def proxy_over(upstream: Upstream, redis_port: int | None) -> Proxy:
    shared = {"redis_host": "127.0.0.1", "redis_port": redis_port} if redis_port else {}
    return Proxy(upstream.api_base, MODELS, bench=BENCH, router_settings={"cooldown_time": 4, **shared})


@pytest.fixture(scope="module")
def cooling_proxy(upstream: Upstream, redis_port: int | None) -> Iterator[Proxy]:
    with proxy_over(upstream, redis_port) as running:
        yield running


@pytest.fixture
def caller(cooling_proxy: Proxy, upstream: Upstream) -> Iterator[httpx.Client]:
    upstream.clear()
    with cooling_proxy.client() as client:
        yield client


def ask(caller: httpx.Client, model: str, **more: Any) -> httpx.Response:
    body = {"model": model, "messages": [{"role": "user", "content": "Who are you?"}], **more}
    return caller.post("/v1/chat/completions", json=body)


def panel(caller: httpx.Client, model: str) -> dict[str, Json]:
    """The seats by alias."""
    response = ask(caller, model)
    assert response.status_code == 200, response.text
    return {seat["alias"]: seat for seat in response.json()["bench"]["seats"]}


def cools(caller: httpx.Client) -> dict[str, float]:
    """Alias -> seconds that it goes on cooling."""
    listed = caller.get("/bench/models").json()["models"]
    return {m["alias"]: m["cooling_until"] - time.time() for m in listed if m["cooling_until"] is not None}


def eventually(check: Callable[[], object], seconds: float = 10) -> None:
    ends = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < ends, "it did not happen"
        time.sleep(0.1)


def test_an_explorer_that_failed_is_not_chosen_again(caller: httpx.Client, upstream: Upstream) -> None:
    for _ in range(8):
        panel(caller, "bench/explored")
    assert len(upstream.calls("fail500-explorer")) == 1
    assert len(upstream.calls("ok-explorer")) >= 7
    assert 20 < cools(caller)["fail500-explorer"] <= 30


def test_a_cooling_member_is_asked_once_a_panel_and_cools_longer_each_time(
    caller: httpx.Client, upstream: Upstream
) -> None:
    waits = []
    for _ in range(3):
        seat = panel(caller, "bench/failing")["fail500-member"]
        assert (seat["status"], seat["error"]["type"]) == ("error", "server_error")
        waits.append(round(cools(caller)["fail500-member"], -1))
    assert len(upstream.calls("fail500-member")) == 3
    assert waits == [30, 60, 120]


def test_each_kind_of_failure_cools_and_a_rate_limit_as_long_as_it_says(caller: httpx.Client) -> None:
    panel(caller, "bench/many")
    eventually(lambda: "hang-a" in cools(caller))  # its time ends with the panel's
    left = cools(caller)
    for alias in ("fail503-a", "fail403-a", "hang-a", "cut-a", "html-a", "rate30-a"):
        assert 20 < left[alias] <= 30, alias
    assert 50 < left["fail429-a"] <= 60
    assert "ok-a" not in left


def test_prompts_that_are_too_long_and_callers_mistakes_do_not_cool(caller: httpx.Client) -> None:
    seats = panel(caller, "bench/blameless")
    assert {seat["status"] for seat in seats.values()} == {"ok", "error"}
    assert not cools(caller).keys() & seats.keys()


def test_an_answer_ends_it(caller: httpx.Client) -> None:
    assert panel(caller, "bench/recovering")["once-fail500-a"]["status"] == "error"
    assert "once-fail500-a" in cools(caller)
    assert panel(caller, "bench/recovering")["once-fail500-a"]["status"] == "ok"
    assert "once-fail500-a" not in cools(caller)


def test_a_seat_that_litellm_refuses_to_ask_says_so_and_when_it_will(caller: httpx.Client, upstream: Upstream) -> None:
    first = ask(caller, "bench/lone")
    assert first.status_code == 502
    refused = ask(caller, "bench/lone")
    assert refused.status_code == 429
    assert 1 <= int(refused.headers["retry-after"]) <= 4
    error = refused.json()["bench"]["seats"][0]["error"]
    assert (error["status"], error["type"]) == (429, "cooling")
    assert error["message"].startswith("not asked: LiteLLM lets this model rest for 4 s")
    assert len(upstream.calls("fail401-lone")) == 1
    # It was not asked, so that this is no second failure.
    assert cools(caller)["fail401-lone"] <= 30


def test_litellms_own_cooldown_is_shown(caller: httpx.Client) -> None:
    assert "fail404-own" not in cools(caller)
    assert ask(caller, "fail404-own").status_code == 404  # LiteLLM's own request, of which we hear nothing
    eventually(lambda: "fail404-own" in cools(caller))
    assert cools(caller)["fail404-own"] <= 4
    eventually(lambda: "fail404-own" not in cools(caller))


def test_processes_that_share_redis_share_what_cools(
    caller: httpx.Client, upstream: Upstream, redis_port: int | None
) -> None:
    if redis_port is None:
        pytest.skip("there is no redis-server here")
    with proxy_over(upstream, redis_port) as other, other.client() as client:
        panel(caller, "bench/shared")
        eventually(lambda: "once-fail500-b" in cools(client))
        assert cools(client)["once-fail500-b"] == pytest.approx(cools(caller)["once-fail500-b"], abs=2)
        panel(client, "bench/shared")
        assert "once-fail500-b" not in cools(client)
        eventually(lambda: "once-fail500-b" not in cools(caller))
