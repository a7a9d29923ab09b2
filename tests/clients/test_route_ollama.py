"""Route mode through Ollama's own library, and plain HTTP where it hides something: tools, thinking, errors."""

import base64
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import ollama
import pytest

from tests.asking import Json
from tests.proxy import MASTER_KEY, Proxy
from tests.served import LANES
from tests.upstream import REASONING, UNICODE, Upstream

USER: Json = {"role": "user", "content": "Look it up."}
PIXEL = base64.b64encode(b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x01").decode()

both = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


def lookup(query: str, n: int) -> str:
    """Look something up.

    Args:
      query: what
      n: which
    """
    return f"{query} {n}"


@pytest.fixture(params=LANES)
def proxy(request: pytest.FixtureRequest, on_lane: Callable[[str], Proxy]) -> Proxy:
    return on_lane(request.param)


@pytest.fixture
def sdk(proxy: Proxy, models: Upstream, conversation: str) -> Iterator[ollama.Client]:
    headers = {"Authorization": f"Bearer {MASTER_KEY}", "X-Bench-Conversation": conversation}
    with ollama.Client(host=proxy.url, headers=headers, trust_env=False, timeout=60) as client:
        yield client


def told(sdk: ollama.Client, model: str, *, stream: bool, **more: Any) -> list[ollama.ChatResponse]:
    """All lines of a turn; whole, it is one."""
    asked: Any = {"model": model, "messages": [USER], **more}
    return list(sdk.chat(**asked, stream=True)) if stream else [sdk.chat(**asked)]


def text_of(lines: list[ollama.ChatResponse]) -> str:
    return "".join(line.message.content or "" for line in lines)


def thinking_of(lines: list[ollama.ChatResponse]) -> str:
    return "".join(line.message.thinking or "" for line in lines)


def calls_of(lines: list[ollama.ChatResponse]) -> list[ollama.Message.ToolCall]:
    return [call for line in lines for call in line.message.tool_calls or ()]


def raw(http: httpx.Client, model: str, **more: Any) -> httpx.Response:
    """A whole reply with what the library leaves out."""
    return http.post("/api/chat", json={"model": model, "messages": [USER], "stream": False, **more})


# Tools


@both
@pytest.mark.parametrize(("model", "count"), [("bench/agents", 1), ("bench/route-calls:latest", 2)])
def test_calls_come_whole_and_their_results_are_answered(
    sdk: ollama.Client, models: Upstream, model: str, count: int, stream: bool
) -> None:
    called = told(sdk, model, stream=stream, tools=[lookup])
    member = models.calls()[0].model
    assert (called[-1].done, called[-1].done_reason) == (True, "stop")
    assert [call.function.name for call in calls_of(called)] == ["lookup"] * count
    assert [call.function.arguments for call in calls_of(called)] == [{"query": member, "n": n} for n in range(count)]

    results = [
        {"role": "tool", "tool_name": call.function.name, "content": lookup(**call.function.arguments)}
        for call in calls_of(called)
    ]
    said = {"role": "assistant", "content": text_of(called), "tool_calls": calls_of(called)}
    answer = told(sdk, model, stream=stream, tools=[lookup], messages=[USER, said, *results])
    assert text_of(answer) == f"I am {member}."
    assert [call.model for call in models.calls()] == [member, member]
    _, made, *given = models.calls()[-1].body["messages"]
    assert [call["id"] for call in made["tool_calls"]] == [result["tool_call_id"] for result in given]
    assert [result["content"] for result in given] == [f"{member} {n}" for n in range(count)]


@both
def test_an_image_in_a_tools_result_reaches_a_member_that_sees(
    sdk: ollama.Client, models: Upstream, stream: bool
) -> None:
    made = {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "lookup", "arguments": {}}}]}
    result = {"role": "tool", "tool_name": "lookup", "content": "See.", "images": [PIXEL]}
    lines = told(sdk, "bench/route-seeing", stream=stream, tools=[lookup], messages=[USER, made, result])
    assert text_of(lines) == "I am ok-h."
    *_, given, seen = models.calls()[0].body["messages"]
    assert (given["role"], given["content"]) == ("tool", "See.")
    assert seen["content"][-1] == {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}}


def test_an_image_that_no_member_sees_is_refused(sdk: ollama.Client, models: Upstream) -> None:
    with pytest.raises(ollama.ResponseError, match="see") as raised:
        told(sdk, "bench/routed", stream=False, messages=[{**USER, "images": [PIXEL]}])
    assert raised.value.status_code == 400
    assert models.calls() == []


def test_show_lists_tools_and_sight_where_a_member_has_them(sdk: ollama.Client) -> None:
    assert sdk.show("bench/agents").capabilities == ["completion", "tools"]
    assert sdk.show("bench/duo:route").capabilities == ["completion", "tools"]
    assert sdk.show("bench/route-seeing").capabilities == ["completion", "vision", "tools"]
    assert sdk.show("bench/duo").capabilities == ["completion"]


# Thinking


@both
@pytest.mark.parametrize("think", [True, "high", None, False])
def test_thinking_is_shown_unless_it_is_switched_off(
    sdk: ollama.Client, models: Upstream, think: bool | str | None, stream: bool
) -> None:
    lines = told(sdk, "bench/route-thoughts", stream=stream, **({} if think is None else {"think": think}))
    assert (thinking_of(lines), text_of(lines)) == ("" if think is False else REASONING, "I am think-a.")
    said = {"role": "assistant", "content": text_of(lines), "thinking": thinking_of(lines)}
    told(sdk, "bench/route-thoughts", stream=stream, messages=[USER, said, USER])
    assert models.calls()[-1].body["messages"][1] == {"role": "assistant", "content": "I am think-a."}


@both
def test_a_prompt_is_answered_with_its_thinking(sdk: ollama.Client, stream: bool) -> None:
    asked: Any = {"model": "bench/route-thoughts", "prompt": "Who are you?"}
    lines = list(sdk.generate(**asked, stream=True)) if stream else [sdk.generate(**asked)]
    assert "".join(line.response or "" for line in lines) == "I am think-a."
    assert "".join(line.thinking or "" for line in lines) == REASONING
    assert lines[-1].done


# Who answers, and what is told of it


@both
def test_a_member_that_fails_is_replaced_unseen(sdk: ollama.Client, models: Upstream, stream: bool) -> None:
    failing = "fail500-route-ollama-streamed" if stream else "fail500-route-ollama"
    assert text_of(told(sdk, f"bench/route-{failing}", stream=stream, tools=[lookup])) == "I am ok-spare."
    assert [call.model for call in models.calls()] == [failing, "ok-spare"]


def test_the_reply_says_who_answered_and_a_verdict_finds_it(
    http: httpx.Client, models: Upstream, conversation: str
) -> None:
    response = raw(http, "bench/duo:route", bench={"conversation": conversation})
    assert response.status_code == 200, response.text
    assert response.json()["model"] == "bench/duo:route"
    bench = response.json()["bench"]
    assert (bench["reply"], bench["alias"], bench["turn"]) == ("route", "ok-routed-a", 1)
    told_of = {name: response.headers[f"x-bench-{name}"] for name in ("conversation", "call", "model")}
    assert told_of == {"conversation": bench["conversation"], "call": bench["call"], "model": "ok-routed-a"}
    judged = http.post("/bench/verdict", json={"call": bench["call"], "useful": True})
    assert judged.status_code == 200, judged.text


@both
def test_usage_is_the_members(sdk: ollama.Client, stream: bool) -> None:
    last = told(sdk, "bench/route-cached-thought-route", stream=stream)[-1]
    assert (last.prompt_eval_count, last.eval_count) == (10, 5)


def test_the_speed_of_a_whole_answer_counts_all_of_its_time(sdk: ollama.Client) -> None:
    """Nobody saw when it began."""
    (line,) = told(sdk, "bench/routed", stream=False)
    assert (line.eval_duration, line.prompt_eval_duration) == (line.total_duration, 0)


@both
def test_text_in_any_script_comes_back_whole(sdk: ollama.Client, stream: bool) -> None:
    assert text_of(told(sdk, "bench/unicode:route", stream=stream)) == UNICODE


@both
def test_an_answer_that_was_cut_says_so(sdk: ollama.Client, stream: bool) -> None:
    assert told(sdk, "bench/cut-short:route", stream=stream)[-1].done_reason == "length"


# Errors


@both
def test_all_rate_limited_is_raised(sdk: ollama.Client, stream: bool) -> None:
    with pytest.raises(ollama.ResponseError) as raised:
        told(sdk, "bench/route-limited", stream=stream)
    assert raised.value.status_code == 429


def test_a_rate_limit_says_how_long_to_wait(http: httpx.Client, models: Upstream) -> None:
    response = raw(http, "bench/route-limited")
    assert (response.status_code, response.headers["retry-after"]) == (429, "7")


@both
def test_too_long_a_prompt_is_raised_with_the_window(sdk: ollama.Client, stream: bool) -> None:
    with pytest.raises(ollama.ResponseError, match="maximum context length is 4096 tokens") as raised:
        told(sdk, "bench/route-too-long", stream=stream)
    assert raised.value.status_code == 400


@both
def test_nobody_answering_is_raised_and_names_each(sdk: ollama.Client, stream: bool) -> None:
    with pytest.raises(ollama.ResponseError) as raised:
        told(sdk, "bench/route-all-fail", stream=stream)
    assert raised.value.status_code == 502
    assert "fail500-a" in raised.value.error
    assert "html-b" in raised.value.error


def test_an_answer_that_breaks_off_is_raised(sdk: ollama.Client) -> None:
    heard: list[ollama.ChatResponse] = []
    with pytest.raises(ollama.ResponseError, match="midfail-a broke off"):
        heard.extend(sdk.chat(model="bench/route-breaks-off", messages=[USER], stream=True))
    assert text_of(heard) == "I am "


def test_a_caller_who_hangs_up_ends_the_members_call(sdk: ollama.Client, models: Upstream) -> None:
    models.release("step-a")
    lines: Any = sdk.chat(model="bench/route-steps", messages=[USER], stream=True)
    assert text_of([next(lines)]) == "I "
    lines.close()
    assert models.wait_for(lambda calls: calls[0].hung_up)
