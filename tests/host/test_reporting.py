"""LiteLLM's callbacks hear of each call on the lean lane once, and nobody waits for them."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import litellm
import pytest
from litellm import ModelResponse, Router
from litellm.integrations.custom_logger import CustomLogger

from bench_proxy.formats.request import ChatRequest
from bench_proxy.host import reporting as module
from bench_proxy.host.lean import LeanLane
from bench_proxy.host.reporting import Finished, Reporting
from bench_proxy.host.upstream import RouterLane
from bench_proxy.upstream import Call
from tests.upstream import Upstream as Scripted


class Slow(CustomLogger):
    """Takes its time over each call until the gate opens, and keeps by model which it began and which it ended."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()
        self.began: list[str] = []
        self.ended: list[str] = []
        self.most_at_once = 0

    async def async_log_success_event(self, kwargs: Any, response_obj: Any, start_time: Any, end_time: Any) -> None:
        said = kwargs["messages"][0]["content"]
        self.began.append(said)
        self.most_at_once = max(self.most_at_once, len(self.began) - len(self.ended))
        if "refused" in said:
            self.ended.append(said)
            raise RuntimeError("the callback is broken")
        await self.gate.wait()
        self.ended.append(said)


@pytest.fixture
async def slow(monkeypatch: pytest.MonkeyPatch) -> Slow:
    callback = Slow()
    monkeypatch.setattr(litellm, "callbacks", [callback])
    monkeypatch.setattr(litellm, "_async_success_callback", [callback])
    return callback


def finished(said: str) -> Finished:
    message = {"role": "assistant", "content": "Hello"}
    choices = [{"index": 0, "finish_reason": "stop", "message": message}]
    return Finished(
        alias="it",
        deployment={"model_info": {"id": "1"}, "litellm_params": {"model": "openai/m"}},
        provider="openai",
        model="m",
        messages=[{"role": "user", "content": said}],
        params={},
        metadata={},
        began=time.time(),
        ended=time.time(),
        response=ModelResponse(model="m", choices=choices),
    )


async def until(condition: Callable[[], object]) -> None:
    while not condition():  # noqa: ASYNC110  LiteLLM tells callbacks in its own time
        await asyncio.sleep(0.01)


async def test_several_calls_are_reported_at_once_but_not_any_number(
    slow: Slow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "TOLD_AT_ONCE", 3)
    reporting = Reporting()
    for number in range(8):
        reporting.ended(finished(str(number)))
    await until(lambda: len(slow.began) == 3)
    slow.gate.set()
    await reporting.close()
    assert slow.most_at_once == 3
    assert slow.began == sorted(slow.ended) == [str(number) for number in range(8)]


async def test_a_callback_that_hangs_or_breaks_takes_nobody_s_place_for_ever(
    slow: Slow, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "TOLD_AT_ONCE", 2)
    monkeypatch.setattr(module, "TOLD_WITHIN", 0.05)
    reporting = Reporting()
    for said in ("hangs", "refused", "hangs too", "refused too", "hangs as well"):
        reporting.ended(finished(said))
    await reporting.close()
    assert slow.began == ["hangs", "refused", "hangs too", "refused too", "hangs as well"]
    assert caplog.text.count("LiteLLM could not be told of a call to it") == 3


async def test_what_ends_while_the_last_report_ends_is_reported_too(
    slow: Slow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "TOLD_AT_ONCE", 1)
    slow.gate.set()
    reporting = Reporting()
    for number in range(40):
        reporting.ended(finished(str(number)))
        for _ in range(number % 20):
            await asyncio.sleep(0)
    await until(lambda: len(slow.ended) == 40)
    assert slow.ended == [str(number) for number in range(40)]


async def test_others_get_their_turn_between_the_reports_of_a_backlog(
    slow: Slow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "TOLD_AT_ONCE", 1)
    slow.gate.set()
    reporting = Reporting()
    for number in range(10):
        reporting.ended(finished(str(number)))
    ended_by_turn = [0]
    while ended_by_turn[-1] < 10:
        await asyncio.sleep(0)
        ended_by_turn.append(len(slow.ended))
    assert set(ended_by_turn) == set(range(11))


async def test_closing_waits_for_what_ends_meanwhile(slow: Slow) -> None:
    reporting = Reporting()
    reporting.ended(finished("before"))
    closing = asyncio.create_task(reporting.close())
    await until(lambda: slow.began)
    reporting.ended(finished("meanwhile"))
    slow.gate.set()
    await closing
    assert sorted(slow.ended) == ["before", "meanwhile"]


async def test_closing_does_not_wait_for_ever_and_says_how_many_were_not_reported(
    slow: Slow, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "TOLD_AT_ONCE", 2)
    monkeypatch.setattr(module, "CLOSED_WITHIN", 0.05)
    reporting = Reporting()
    for number in range(5):
        reporting.ended(finished(str(number)))
    await reporting.close()
    assert slow.ended == []
    assert "LiteLLM was not told of 5 calls" in caplog.text


async def test_closing_tells_what_those_who_were_cancelled_left(slow: Slow, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TOLD_AT_ONCE", 1)
    reporting = Reporting()
    for said in ("cut off", "left", "left too"):
        reporting.ended(finished(said))
    await until(lambda: slow.began)
    for task in asyncio.all_tasks():  # as an event loop that ends does
        if task.get_name() == "bench-reporting":
            task.cancel()
    slow.gate.set()
    await reporting.close()
    assert slow.ended == ["left", "left too"]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_answers_do_not_wait_for_a_callback_however_many_it_has_before_it(
    upstream: Scripted, slow: Slow, monkeypatch: pytest.MonkeyPatch, stream: bool
) -> None:
    monkeypatch.setattr(module, "TOLD_AT_ONCE", 2)
    monkeypatch.setattr(module, "MOST_WAITING", 2)
    params = {"model": "openai/ok-a", "api_base": upstream.api_base, "api_key": "n"}
    router = Router(model_list=[{"model_name": "it", "litellm_params": params}])
    reporting = Reporting()
    lean = LeanLane(lambda: router, RouterLane(lambda: router), reporting, dict)
    assert lean.why_router("it") == ""
    said = [str(number) for number in range(10)]
    for one in said:
        call = Call("it", ChatRequest([{"role": "user", "content": one}], {}), 60)
        if stream:
            async with lean.stream(call) as events:
                text = "".join([event.text async for event in events])
        else:
            text = (await lean.complete(call)).text
        assert text == "I am ok-a."
        assert slow.ended == []
    # As many as wait and as are being told; the others were called, and are told of, by LiteLLM's router.
    await until(lambda: len(slow.began) == 8)
    slow.gate.set()
    await reporting.close()
    await until(lambda: len(slow.ended) >= 10)
    await lean.close()
    assert sorted(slow.ended) == said
