"""Cooling over Redis, and LiteLLM's own cooldown of deployments, as the router of this version does them."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest
from litellm import Router
from litellm.types.router import RouterRateLimitError

from bench_proxy.cooling import FIRST, LONGEST_STATED, Cooled, Cooling
from bench_proxy.errors import UpstreamError
from bench_proxy.formats.request import ChatRequest
from bench_proxy.host.cache import PREFIX, HostCooling, cooldowns
from bench_proxy.host.errors import translate
from bench_proxy.host.upstream import RouterLane
from bench_proxy.upstream import Call
from tests.redis_server import free_port, redis_server
from tests.upstream import Upstream

ALIASES = ("gpt", "claude")


@pytest.fixture
def model_server(upstream: Upstream) -> Upstream:
    upstream.clear()
    return upstream


def router(model_server: Upstream, **settings: Any) -> Router:
    params = {"api_base": model_server.api_base, "api_key": "sk-upstream"}
    models = [("lone", "fail401-a"), ("pair", "fail401-b"), ("pair", "ok-a"), ("gpt", "ok-b"), ("claude", "ok-c")]
    listed = [{"model_name": a, "litellm_params": {"model": f"openai/{m}", **params}} for a, m in models]
    return Router(model_list=listed, num_retries=3, **settings)


# LiteLLM's own cooldown


async def fail(lane: RouterLane, alias: str) -> UpstreamError:
    with pytest.raises(UpstreamError) as failed:
        await lane.complete(Call(alias, ChatRequest([{"role": "user", "content": "Who?"}], {}), 10))
    return failed.value


async def test_a_deployment_that_litellm_cools_is_refused_in_plain_words(model_server: Upstream) -> None:
    cooled = router(model_server, cooldown_time=9)
    lane = RouterLane(lambda: cooled)
    assert (await fail(lane, "lone")).kind == "authentication"
    await asyncio.sleep(0.2)
    refused = await fail(lane, "lone")
    assert (refused.kind, refused.status, refused.retry_after) == ("cooling", 429, 9)
    assert refused.message == (
        "not asked: LiteLLM lets this model rest for 9 s (its cooldown), because all its deployments failed"
    )
    assert len(model_server.calls("fail401-a")) == 1


async def test_its_cooldown_is_read_and_a_group_cools_when_all_its_deployments_do(model_server: Upstream) -> None:
    cooled = router(model_server, cooldown_time=9)
    shared = HostCooling(lambda: cooled)
    assert await shared.hosts(["lone", "pair"], 100.0) == {}
    await fail(RouterLane(lambda: cooled), "lone")
    for deployment in cooled.get_model_list(model_name="pair") or []:
        if deployment["litellm_params"]["model"] == "openai/fail401-b":
            one = deployment["model_info"]["id"]
    await asyncio.sleep(0.2)
    cooled.cooldown_cache.add_deployment_to_cooldown(one, ValueError("no"), 401, 9)
    assert set(await cooldowns(cooled)) == {one, *cooled.get_model_ids(model_name="lone")}
    until = await shared.hosts(["lone", "pair", "gone"], 100.0)
    assert set(until) == {"lone"}
    assert 107 < until["lone"] <= 109


async def test_its_cooldown_ends(model_server: Upstream) -> None:
    cooled = router(model_server, cooldown_time=0.5)
    await fail(RouterLane(lambda: cooled), "lone")
    await asyncio.sleep(0.8)
    assert await HostCooling(lambda: cooled).hosts(["lone"], 100.0) == {}


def test_a_router_that_refuses_for_another_reason_is_a_rate_limit() -> None:
    """A limit of requests a minute that the operator set, say: not all deployments are in the list of cooled ones."""
    refused = translate(RouterRateLimitError("gpt", 5.0, False, ["one"], ["one", "two"]))
    assert (refused.kind, refused.status, refused.retry_after) == ("rate_limit", 429, 5)


async def test_without_a_router_nothing_is_shared_and_nothing_cools() -> None:
    shared = HostCooling(lambda: None)
    assert await shared.exchange({"gpt": Cooled(1, 0, 30)}, ALIASES, 0) is None
    assert await shared.hosts(ALIASES, 0) == {}


# Redis


@pytest.fixture(scope="module")
def redis_port() -> Iterator[int]:
    with redis_server() as port:
        if port is None:
            pytest.skip("there is no redis-server here")
        yield port


@pytest.fixture
async def one(model_server: Upstream, redis_port: int) -> Router:
    first = router(model_server, redis_host="127.0.0.1", redis_port=redis_port)
    await first.cache.redis_cache.init_async_client().flushall()
    return first


@pytest.fixture
def two(model_server: Upstream, redis_port: int) -> Router:
    return router(model_server, redis_host="127.0.0.1", redis_port=redis_port)


async def test_two_processes_share_cooling_over_redis(one: Router, two: Router) -> None:
    first, second = Cooling(lambda: 1000.0), Cooling(lambda: 5000.0)  # clocks that have nothing in common
    first.failed("gpt", "timeout")
    first.failed("claude", "rate_limit", retry_after=120)
    await first.exchange(HostCooling(lambda: one), ALIASES)
    await second.exchange(HostCooling(lambda: two), ALIASES)
    assert second.left() == {"gpt": pytest.approx(FIRST, abs=1), "claude": pytest.approx(120, abs=1)}
    second.worked("gpt")
    await second.exchange(HostCooling(lambda: two), ALIASES)
    await first.exchange(HostCooling(lambda: one), ALIASES)
    assert first.left().keys() == {"claude"}


async def test_a_row_of_failures_goes_on_in_another_process(one: Router, two: Router) -> None:
    first, second = Cooling(lambda: 1000.0), Cooling(lambda: 5000.0)
    first.failed("gpt", "timeout")
    await first.exchange(HostCooling(lambda: one), ALIASES)
    await second.exchange(HostCooling(lambda: two), ALIASES)
    await asyncio.sleep(0.01)
    second.failed("gpt", "timeout", seconds=-1)  # it began after that
    assert second.left()["gpt"] == pytest.approx(2 * FIRST, abs=1)


@pytest.mark.parametrize(
    "value",
    [
        "text", 7, [], {}, {"failures": 1}, {"failures": -1, "at_ms": 0, "until_ms": 1},
        {"failures": "x", "at_ms": 0, "until_ms": 1}, {"failures": 1, "at_ms": 0, "until_ms": 10**400},
        {"failures": 10**9, "at_ms": 0, "until_ms": 1}, {"failures": 1, "at_ms": None, "until_ms": None},
    ],
)  # fmt: skip
async def test_odd_values_in_redis_cool_nothing(one: Router, value: object) -> None:
    client = one.cache.redis_cache.init_async_client()
    await client.set(PREFIX + "gpt", json.dumps(value))
    process = Cooling(lambda: 1000.0)
    await process.exchange(HostCooling(lambda: one), ALIASES)
    assert process.left() == {}


async def test_a_clock_that_is_wrong_elsewhere_cools_for_an_hour_at_most(one: Router) -> None:
    client = one.cache.redis_cache.init_async_client()
    await client.set(PREFIX + "gpt", json.dumps({"failures": 1, "at_ms": 0, "until_ms": 2**52}))
    process = Cooling(lambda: 1000.0)
    await process.exchange(HostCooling(lambda: one), ALIASES)
    assert process.left() == {"gpt": pytest.approx(LONGEST_STATED, abs=1)}


async def test_what_is_kept_goes_by_itself(one: Router) -> None:
    process = Cooling(lambda: 1000.0)
    process.failed("gpt", "timeout")
    await process.exchange(HostCooling(lambda: one), ALIASES)
    assert 3600 < await one.cache.redis_cache.init_async_client().ttl(PREFIX + "gpt") <= 3600 + FIRST + 1


async def test_without_redis_each_process_keeps_its_own(
    model_server: Upstream, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("redis.retry.sleep", lambda _seconds: None)  # a router that starts asks Redis again and again
    unreachable = router(model_server, redis_host="127.0.0.1", redis_port=free_port())
    shared, process = HostCooling(lambda: unreachable), Cooling(lambda: 1000.0)
    for _ in range(3):
        process.failed("gpt", "timeout")
        await process.exchange(shared, ALIASES)
    assert process.left().keys() == {"gpt"}
    assert len([r for r in caplog.records if "cooling is not shared" in r.message]) == 1
