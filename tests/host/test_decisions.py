"""A decision model is asked in both dialects of LiteLLM's decisions API, and whatever it does, a panel goes on."""

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from litellm import Router

from bench_proxy.bench import Decision
from bench_proxy.host.decisions import LONGEST_QUESTION, Decisions
from tests.proxy import Proxy
from tests.upstream import Upstream

OPTIONS = {"general": "anything", "review": "to find faults", "code": "to write code"}
DIALECTS = {"openai": "/v1/decisions", "hosted_vllm": "/v1/systemone", "fireworks_ai": "/v1/systemone"}
"""Providers, and where LiteLLM asks them for a decision."""

BROKEN = ("fail500-a", "fail401-a", "rate-a", "html-a", "garbage-a", "cut-a", "context-a")
SLOW = ("hang-a", "stall-a", "gate-a")


@pytest.fixture
def model_server(upstream: Upstream) -> Upstream:
    upstream.clear()
    return upstream


@pytest.fixture
def router(model_server: Upstream) -> Router:
    names = ("sure97-a", "sure40-a", *BROKEN, *SLOW)
    params = {"api_base": model_server.api_base, "api_key": "sk-upstream"}
    listed = [
        {"model_name": f"{provider}:{name}", "litellm_params": {"model": f"{provider}/{name}", **params}}
        for provider in DIALECTS
        for name in names
    ]
    return Router(model_list=listed, num_retries=3, fallbacks=[{"openai:fail500-a": ["openai:sure97-a"]}])


@pytest.mark.parametrize("provider", DIALECTS)
async def test_both_dialects_are_spoken(provider: str, router: Router, model_server: Upstream) -> None:
    model_server.say("sure97-a", "review")
    decided = await Decisions(lambda: router).decide(f"{provider}:sure97-a", "Find the bug.", OPTIONS)
    assert decided == Decision("review", 0.97)
    [call] = model_server.calls()
    assert call.path == DIALECTS[provider]
    assert (call.body.get("input") or call.body.get("state")) == "Find the bug."


async def test_openai_gets_each_option_with_its_description(router: Router, model_server: Upstream) -> None:
    await Decisions(lambda: router).decide("openai:sure97-a", "Find the bug.", OPTIONS)
    [question] = model_server.calls()[0].body["questions"]
    assert question["choices"] == [{"value": v, "description": d} for v, d in OPTIONS.items()]


async def test_the_others_get_each_option_with_its_description(router: Router, model_server: Upstream) -> None:
    await Decisions(lambda: router).decide("hosted_vllm:sure97-a", "Find the bug.", OPTIONS)
    assert model_server.calls()[0].body["questions"]["shape"]["criteria"] == OPTIONS


async def test_how_sure_it_is_comes_with_the_choice(router: Router) -> None:
    decided = await Decisions(lambda: router).decide("openai:sure40-a", "Find the bug.", OPTIONS)
    assert decided == Decision("general", 0.4)


async def test_a_long_question_is_cut(router: Router, model_server: Upstream) -> None:
    await Decisions(lambda: router).decide("openai:sure97-a", "ä" * 50_000, OPTIONS)
    assert model_server.calls()[0].body["input"] == "ä" * LONGEST_QUESTION


async def test_an_empty_question_is_not_asked(router: Router, model_server: Upstream) -> None:
    assert await Decisions(lambda: router).decide("openai:sure97-a", " \n", OPTIONS) is None
    assert model_server.calls() == []


@pytest.mark.parametrize("provider", ["openai", "hosted_vllm"])
@pytest.mark.parametrize("name", BROKEN)
async def test_a_failure_is_no_decision_and_nobody_is_asked_again(
    provider: str, name: str, router: Router, model_server: Upstream
) -> None:
    assert await Decisions(lambda: router).decide(f"{provider}:{name}", "Find the bug.", OPTIONS) is None
    assert [call.model for call in model_server.calls()] == [name]


@pytest.mark.parametrize("provider", ["openai", "hosted_vllm"])
async def test_an_option_that_was_not_offered_is_no_decision(
    provider: str, router: Router, model_server: Upstream
) -> None:
    model_server.say("sure97-a", "poetry")
    assert await Decisions(lambda: router).decide(f"{provider}:sure97-a", "Find the bug.", OPTIONS) is None


@pytest.mark.parametrize("provider", ["openai", "hosted_vllm"])
@pytest.mark.parametrize("name", SLOW)
async def test_a_slow_model_is_no_decision_and_its_call_is_closed(
    provider: str, name: str, router: Router, model_server: Upstream
) -> None:
    assert await Decisions(lambda: router, limit=1).decide(f"{provider}:{name}", "Find the bug.", OPTIONS) is None
    await asyncio.to_thread(model_server.wait_for, lambda calls: calls and all(call.hung_up for call in calls))


async def test_whoever_stops_waiting_closes_the_call(router: Router, model_server: Upstream) -> None:
    deciding = asyncio.create_task(Decisions(lambda: router).decide("openai:gate-a", "Find the bug.", OPTIONS))
    await asyncio.to_thread(model_server.wait_for, lambda calls: calls)
    deciding.cancel()
    await asyncio.wait([deciding])
    assert deciding.cancelled()
    await asyncio.to_thread(model_server.wait_for, lambda calls: all(call.hung_up for call in calls))


async def test_a_model_that_is_not_there_is_no_decision(router: Router) -> None:
    assert await Decisions(lambda: router).decide("nothing", "Find the bug.", OPTIONS) is None
    assert await Decisions(lambda: None).decide("openai:sure97-a", "Find the bug.", OPTIONS) is None


DECIDER = "gate-sure97-decider"


@pytest.fixture(scope="module")
def deciding_proxy(upstream: Upstream) -> Iterator[Proxy]:
    roles = {"ok-a": "general", "ok-explorer-a": "code", "ok-explorer-b": "light", "gate-b": "general"}
    bench = {
        "collections": {"core": {"members": ["ok-a"]}, "held": {"members": ["gate-b"]}},
        "models": {name: {"role": role, "family": name, "explore": "explorer" in name} for name, role in roles.items()},
        "decision_model": DECIDER,
        "timing": {"seat_timeout": 15, "explorer_grace": 5},
    }
    models: dict[str, Any] = {name: name for name in roles} | {DECIDER: DECIDER}
    with Proxy(upstream.api_base, models, bench=bench, router_settings={"disable_cooldowns": True}) as running:
        yield running


def ask(proxy: Proxy, collection: str) -> dict[str, Any]:
    with proxy.client() as http:
        body = {"model": f"bench/{collection}", "messages": [{"role": "user", "content": "Find the bug."}]}
        response = http.post("/v1/chat/completions", json=body)
        assert response.status_code == 200, response.text
        data: dict[str, Any] = response.json()["bench"]
        return data


def seated(data: dict[str, Any]) -> dict[str, str]:
    return {seat["alias"]: seat["seat"] for seat in data["seats"]}


@pytest.mark.parametrize(("shape", "explorer"), [("review", "ok-explorer-a"), ("quick", "ok-explorer-b")])
def test_the_proxy_seats_explorers_by_the_decision(
    shape: str, explorer: str, deciding_proxy: Proxy, model_server: Upstream
) -> None:
    model_server.say(DECIDER, shape)
    with ThreadPoolExecutor() as threads:
        asked = threads.submit(ask, deciding_proxy, "held")
        # The member is at work before the decision is made, and the explorer follows the decision.
        model_server.wait_for(lambda calls: {call.model for call in calls} == {"gate-b", DECIDER})
        model_server.release(DECIDER)
        model_server.wait_for(lambda calls: explorer in {call.model for call in calls})
        model_server.release("gate-b")
        data = asked.result()
    assert (data["shape"], data["shape_by"]) == (shape, f"decision model {DECIDER} 0.97")
    assert seated(data) == {"gate-b": "member", explorer: "explorer"}


def test_the_proxy_does_not_wait_for_a_decision_when_the_members_are_done(
    deciding_proxy: Proxy, model_server: Upstream
) -> None:
    data = ask(deciding_proxy, "core")
    assert (data["shape"], data["shape_by"]) == ("general", "default")
    assert seated(data) == {"ok-a": "member"}
    model_server.wait_for(lambda calls: all(call.hung_up for call in calls if call.model == DECIDER))
