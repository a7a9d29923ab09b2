"""LiteLLM's router picks each call's deployment; the only one of a model is not asked for all the time."""

import asyncio
import warnings
from collections.abc import Sequence
from typing import Any

import litellm
import pytest
from litellm import Router
from litellm.integrations.custom_logger import CustomLogger

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # as pydantic sees LiteLLM's types
    from litellm.types.router import CustomRoutingStrategyBase

    from bench_proxy.errors import UpstreamError
    from bench_proxy.formats.request import ChatRequest
    from bench_proxy.host import picking
    from bench_proxy.host.lean import LeanLane
    from bench_proxy.host.picking import LETS_ALL, Picking
    from bench_proxy.host.reporting import Reporting
    from bench_proxy.host.upstream import RouterLane
    from bench_proxy.upstream import Call
from tests.upstream import Upstream as Scripted


class Watched(Router):
    """A router that counts how often it was asked."""

    def __init__(self, *models: str, api_base: str = "http://127.0.0.1:1", **settings: Any) -> None:
        entries = [
            {
                "model_name": name,
                "litellm_params": {"model": f"hosted_vllm/{said}", "api_base": api_base, "api_key": "none"},
            }
            for name, _, said in (model.partition("=") for model in models)
        ]
        super().__init__(model_list=entries, **settings)
        self.asked: list[str] = []
        self.answers = asyncio.Event()
        self.answers.set()

    async def async_get_available_deployment(self, *args: Any, **given: Any) -> Any:
        self.asked.append(given["model"])
        await self.answers.wait()
        return await super().async_get_available_deployment(*args, **given)


@pytest.fixture(autouse=True)
def on_a_slow_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(picking, "PICKED_SECONDS", 60.0)


async def picked(picks: Picking, router: Router, alias: str, times: int = 3, tags: Sequence[str] = ()) -> set[str]:
    return {(await picks.deployment(router, alias, tags))["litellm_params"]["model"] for _ in range(times)}


async def test_the_only_deployment_is_asked_for_once() -> None:
    router, picks = Watched("a=x", "b=y"), Picking()
    assert await picked(picks, router, "a") == {"hosted_vllm/x"}
    assert await picked(picks, router, "b") == {"hosted_vllm/y"}
    assert router.asked == ["a", "b"]


async def test_it_is_asked_for_again_after_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    router, picks = Watched("a=x"), Picking()
    await picked(picks, router, "a")
    now = picking.time.monotonic()
    monkeypatch.setattr(picking.time, "monotonic", lambda: now + picking.PICKED_SECONDS + 0.01)
    await picked(picks, router, "a")
    assert len(router.asked) == 2


async def test_it_is_asked_for_again_once_it_has_failed_or_something_is_another() -> None:
    router, picks = Watched("a=x", "b=y", model_group_alias={"c": "a"}), Picking()
    for change in (lambda: picks.failed(router.model_list[0]), picks.changed):
        for alias in "abc":
            await picked(picks, router, alias)
        change()
    assert router.asked == ["a", "b", "c", "a", "c"]


@pytest.mark.parametrize("change", ["failed", "changed"])
async def test_a_pick_that_was_under_way_when_something_changed_is_not_kept(change: str) -> None:
    router, picks = Watched("a=x"), Picking()
    router.answers.clear()
    under_way = asyncio.create_task(picked(picks, router, "a", times=1))
    await asyncio.sleep(0)
    assert router.asked == ["a"]
    picks.changed() if change == "changed" else picks.failed(router.model_list[0])
    router.answers.set()
    await under_way
    await picked(picks, router, "a")
    assert len(router.asked) == 2


async def test_among_several_each_call_has_its_own_pick() -> None:
    router, picks = Watched("a=x", "a=y"), Picking()
    assert await picked(picks, router, "a", times=60) == {"hosted_vllm/x", "hosted_vllm/y"}
    assert len(router.asked) == 60


async def test_where_tags_decide_each_call_is_picked_for() -> None:
    router, picks = Watched("a=x", enable_tag_filtering=True), Picking()
    for deployment in router.model_list:
        deployment["litellm_params"]["tags"] = ["default"]
    await picked(picks, router, "a", tags=["bench-call:1"])
    assert len(router.asked) == 3


async def test_where_plugins_or_another_strategy_decide_each_call_is_picked_for() -> None:
    class Plugin:
        async def on_routing(self, *_: Any) -> None: ...

    router = Watched("a=x")
    router.routing_plugins = [Plugin()]  # type: ignore[list-item]
    assert picking.chosen_by_call(router)
    router.routing_plugins = []
    assert not picking.chosen_by_call(router)
    router.set_custom_routing_strategy(CustomRoutingStrategyBase())
    assert picking.chosen_by_call(router)


async def test_where_a_callback_chooses_each_call_is_picked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    class Choosing(CustomLogger):
        async def async_filter_deployments(self, model: str, healthy_deployments: list[Any], *_: Any, **__: Any) -> Any:
            return healthy_deployments

    class Watching(CustomLogger):
        pass

    router, picks = Watched("a=x"), Picking()
    monkeypatch.setattr(litellm, "callbacks", [Watching()])
    await picked(picks, router, "a")
    assert len(router.asked) == 1
    picks.changed()
    monkeypatch.setattr(litellm, "callbacks", [Watching(), Choosing()])
    await picked(picks, router, "a")
    assert len(router.asked) == 4


async def test_the_filters_that_are_passed_over_leave_all_there_are() -> None:
    deployments = [{"model_info": {"id": "1"}}, {"model_info": {"id": "2"}}]
    for leaves_all in LETS_ALL:
        left = await leaves_all(None, model="a", healthy_deployments=deployments, messages=None)  # type: ignore[arg-type]
        assert left == deployments


async def test_a_lane_whose_models_have_changed_picks_anew(models: Scripted) -> None:
    router = Watched("good=ok-a", api_base=models.api_base)
    forced: dict[str, str] = {}
    lane = LeanLane(lambda: router, RouterLane(lambda: router), Reporting(), lambda: forced)
    question = ChatRequest(messages=[{"role": "user", "content": "hello"}], settings={})
    try:
        for _ in range(2):
            await lane.complete(Call("good", question, timeout=10))
        assert router.asked == ["good"]
        another = Watched("good=ok-b", api_base=models.api_base)
        router.set_model_list(another.model_list)
        for _ in range(2):
            assert "ok-b" in (await lane.complete(Call("good", question, timeout=10))).text
    finally:
        await lane.close()
    assert router.asked == ["good", "good"]


async def test_a_call_that_failed_is_followed_by_a_pick(models: Scripted) -> None:
    router = Watched("good=ok-a", "bad=fail500-a", api_base=models.api_base)
    forced: dict[str, str] = {}
    lane = LeanLane(lambda: router, RouterLane(lambda: router), Reporting(), lambda: forced)
    question = ChatRequest(messages=[{"role": "user", "content": "hello"}], settings={})
    try:
        for _ in range(3):
            await lane.complete(Call("good", question, timeout=10))
            with pytest.raises(UpstreamError):
                await lane.complete(Call("bad", question, timeout=10))
    finally:
        await lane.close()
    assert router.asked == ["good", "bad", "bad", "bad"]
