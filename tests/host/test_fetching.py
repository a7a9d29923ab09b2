"""LiteLLM downloads images for some providers; not those that a bench request names."""

import asyncio
from collections.abc import Iterator
from typing import Any

import litellm
import pytest
from litellm import Router

from bench_proxy.errors import UpstreamError
from bench_proxy.formats.request import ChatRequest
from bench_proxy.host.fetching import guard, nothing_fetched
from bench_proxy.host.upstream import RouterLane
from bench_proxy.upstream import Call
from tests.upstream import Upstream


@pytest.fixture
def model_server(upstream: Upstream) -> Upstream:
    upstream.clear()
    return upstream


@pytest.fixture
def router(model_server: Upstream) -> Iterator[Router]:
    """LiteLLM's own check of addresses is off: it would refuse the loopback, and so hide what is tested."""
    params = {"api_base": model_server.url, "api_key": "x"}
    models = {"gemini": "gemini/gemini-2.5-pro", "claude": "anthropic/claude-sonnet-4-5", "ollama": "ollama/llava"}
    listed = [{"model_name": a, "litellm_params": {"model": m, **params}} for a, m in models.items()]
    listed.append(
        {"model_name": "plain", "litellm_params": {"model": "openai/ok-a", **params, "api_base": model_server.api_base}}
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(litellm, "user_url_validation", False)
        yield Router(model_list=listed, disable_cooldowns=True, num_retries=0)


def messages(url: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}]


def downloads(model_server: Upstream) -> list[str]:
    return [call.path for call in model_server.calls() if call.path.endswith(".png")]


@pytest.mark.parametrize("alias", ["gemini", "claude"])
@pytest.mark.parametrize("stream", [False, True])
async def test_an_image_by_address_is_not_fetched_for_a_seat(
    router: Router, model_server: Upstream, alias: str, stream: bool
) -> None:
    lane = RouterLane(lambda: router)
    call = Call(alias, ChatRequest(messages(f"{model_server.url}/{alias}-{stream}.png"), {}), 10)
    with pytest.raises(UpstreamError, match="send it as base64") as refused:
        await (lane.stream(call).__aenter__() if stream else lane.complete(call))
    assert (refused.value.kind, refused.value.status) == ("bad_request", 400)
    assert downloads(model_server) == []
    assert model_server.url not in refused.value.message


async def test_a_server_that_takes_addresses_gets_it(router: Router, model_server: Upstream) -> None:
    url = f"{model_server.url}/mine.png"
    await RouterLane(lambda: router).complete(Call("plain", ChatRequest(messages(url), {}), 10))
    assert model_server.calls("ok-a")[0].body["messages"] == messages(url)
    assert downloads(model_server) == []


async def test_litellms_own_requests_are_served_as_ever(router: Router, model_server: Upstream) -> None:
    guard()
    with pytest.raises(litellm.ImageFetchError):  # the server has no such image
        await router.acompletion(model="gemini", messages=messages(f"{model_server.url}/theirs.png"))
    assert set(downloads(model_server)) == {"/theirs.png"}


async def test_what_runs_beside_a_seat_is_not_held_back() -> None:
    from bench_proxy.host.fetching import _ours

    async def beside() -> bool:
        await asyncio.sleep(0)
        return _ours.get()

    other = asyncio.create_task(beside())
    with nothing_fetched():
        assert _ours.get()
        assert not await other
    assert not _ours.get()
