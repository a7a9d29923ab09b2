"""Route mode through Anthropic's own SDK: an agent's turns with tools, thinking, usage, errors of its own classes."""

from collections.abc import Callable, Iterator
from typing import Any

import anthropic
import httpx
import pytest
from anthropic import Anthropic

from tests.asking import Json
from tests.claude_code import FIRST_REQUEST
from tests.proxy import MASTER_KEY, Proxy
from tests.served import LANES
from tests.upstream import REASONING, Upstream

ASKED: Any = [{"role": "user", "content": "Look it up."}]
TOOL: Any = {
    "name": "lookup",
    "description": "Looks something up.",
    "input_schema": {"type": "object", "properties": {"query": {"type": "string"}, "n": {"type": "integer"}}},
}
PIXEL = "iVBORw0KGgo="
PNG: Any = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}}

both = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


@pytest.fixture(params=LANES)
def proxy(request: pytest.FixtureRequest, on_lane: Callable[[str], Proxy]) -> Proxy:
    return on_lane(request.param)


def connected(proxy: Proxy, **headers: str) -> Anthropic:
    """A client that does not ask twice."""
    transport = anthropic.DefaultHttpxClient(trust_env=False)
    return Anthropic(
        base_url=proxy.url, api_key=MASTER_KEY, max_retries=0, http_client=transport, default_headers=headers
    )


@pytest.fixture
def sdk(proxy: Proxy, models: Upstream, conversation: str) -> Iterator[Anthropic]:
    with connected(proxy, **{"x-bench-conversation": conversation}) as client:
        yield client


def asking(model: str, **more: Any) -> Any:
    return {"model": model, "max_tokens": 4000, "messages": ASKED, **more}


def told(sdk: Anthropic, model: str, *, stream: bool, **more: Any) -> tuple[Any, Json]:
    """The message and the `bench` object of an answered turn."""
    if not stream:
        message = sdk.messages.create(**asking(model, **more))
        return message, bench_of(message)
    with sdk.messages.stream(**asking(model, **more)) as events:
        (data,) = [bench_of(event) for event in events if event.type == "message_delta"]
        return events.get_final_message(), data


def bench_of(reply: Any) -> Json:
    """What only this gateway sends, and the SDK keeps as an extra field."""
    data: Json = reply.model_extra["bench"]
    return data


def calls_of(message: Any) -> list[Any]:
    return [block for block in message.content if block.type == "tool_use"]


def text_of(message: Any) -> str:
    return "".join(block.text for block in message.content if block.type == "text")


def with_results(message: Any, result: Any = "found", **more: Any) -> list[Any]:
    """The conversation with what the model said and what its calls gave back."""
    results = [{"type": "tool_result", "tool_use_id": call.id, "content": result, **more} for call in calls_of(message)]
    return [*ASKED, {"role": "assistant", "content": message.content}, {"role": "user", "content": results}]


# Tools


@both
@pytest.mark.parametrize(("model", "count"), [("bench/agents", 1), ("bench/route-calls", 2)])
def test_calls_come_whole_and_their_results_are_answered(
    sdk: Anthropic, models: Upstream, model: str, count: int, stream: bool
) -> None:
    called, bench = told(sdk, model, stream=stream, tools=[TOOL])
    assert called.stop_reason == "tool_use"
    calls = calls_of(called)
    assert [call.name for call in calls] == ["lookup"] * count
    assert [call.input for call in calls] == [{"query": bench["alias"], "n": n} for n in range(count)]

    answer, after = told(sdk, model, stream=stream, tools=[TOOL], messages=with_results(called))
    assert (text_of(answer), answer.stop_reason) == (f"I am {bench['alias']}.", "end_turn")
    assert (after["turn"], after["conversation"], after["alias"]) == (2, bench["conversation"], bench["alias"])
    _, said, *results = models.calls()[-1].body["messages"]
    assert [call["id"] for call in said["tool_calls"]] == [result["tool_call_id"] for result in results]
    assert [result["content"] for result in results] == ["found"] * count


def test_the_sdks_own_loop_runs_the_tools(sdk: Anthropic, models: Upstream) -> None:
    asked: list[Json] = []

    @anthropic.beta_tool
    def lookup(query: str, n: int) -> str:
        """Looks something up."""
        asked.append({"query": query, "n": n})
        return "found"

    last = sdk.beta.messages.tool_runner(**asking("bench/route-calls", tools=[lookup])).until_done()
    assert text_of(last) == "I am tools2-a."
    assert asked == [{"query": "tools2-a", "n": 0}, {"query": "tools2-a", "n": 1}]
    # The runner tries to continue a stored conversation, is told that there is none, and sends all of it.
    assert [len(call.body["messages"]) for call in models.calls()] == [1, 4]


@both
def test_an_image_in_a_tools_result_reaches_a_member_that_sees(sdk: Anthropic, models: Upstream, stream: bool) -> None:
    call = {"type": "tool_use", "id": "toolu_1", "name": "lookup", "input": {"query": "it"}}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": [{"type": "text", "text": "See."}, PNG]}
    messages = [*ASKED, {"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
    message, _ = told(sdk, "bench/route-seeing", stream=stream, tools=[TOOL], messages=messages)
    assert text_of(message) == "I am ok-h."
    *_, result_told, shown = models.calls()[0].body["messages"]
    assert (result_told["role"], result_told["content"]) == ("tool", "See.")
    assert shown["role"] == "user"
    assert shown["content"][-1] == {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}}


def test_an_image_that_no_member_sees_is_a_bad_request(sdk: Anthropic, models: Upstream) -> None:
    with pytest.raises(anthropic.BadRequestError, match="see"):
        told(sdk, "bench/routed", stream=False, messages=[{"role": "user", "content": [PNG]}])
    assert models.calls() == []


def test_a_failed_call_is_told_as_one(sdk: Anthropic, models: Upstream) -> None:
    called, _ = told(sdk, "bench/agents", stream=False, tools=[TOOL])
    told(sdk, "bench/agents", stream=False, tools=[TOOL], messages=with_results(called, "no such file", is_error=True))
    assert models.calls()[-1].body["messages"][-1]["content"] == "The tool call failed.\nno such file"


# Thinking


@both
@pytest.mark.parametrize(
    ("thinking", "shown"),
    [
        ({"type": "enabled", "budget_tokens": 1024}, True),
        ({"type": "adaptive"}, True),
        ({"type": "adaptive", "display": "omitted"}, False),
        ({"type": "disabled"}, False),
        (None, False),
    ],
)
def test_thinking_is_shown_to_who_asks_for_it(
    sdk: Anthropic, models: Upstream, thinking: Json | None, shown: bool, stream: bool
) -> None:
    more = {"thinking": thinking} if thinking else {}
    message, _ = told(sdk, "bench/route-thoughts", stream=stream, **more)
    assert [block.type for block in message.content] == (["thinking"] if shown else []) + ["text"]
    assert text_of(message) == "I am think-a."
    if shown:
        assert message.content[0].thinking == REASONING
        assert message.content[0].signature
        again = [*ASKED, {"role": "assistant", "content": message.content}, *ASKED]
        told(sdk, "bench/route-thoughts", stream=stream, messages=again, **more)
        assert models.calls()[-1].body["messages"][1] == {"role": "assistant", "content": "I am think-a."}


# Who answers, and what is told of it


@both
def test_a_member_that_fails_is_replaced_unseen(sdk: Anthropic, models: Upstream, stream: bool) -> None:
    failing = "fail500-route-messages-streamed" if stream else "fail500-route-messages"
    message, bench = told(sdk, f"bench/route-{failing}", stream=stream, tools=[TOOL])
    assert text_of(message) == "I am ok-spare."
    assert [one["alias"] for one in bench["failed_over"]] == [failing]
    assert [call.model for call in models.calls()] == [failing, "ok-spare"]


@both
def test_the_reply_says_who_answered_and_a_verdict_finds_it(
    sdk: Anthropic, http: httpx.Client, models: Upstream, stream: bool
) -> None:
    message, bench = told(sdk, "bench/duo:route", stream=stream)
    assert message.model == "bench/duo:route"
    assert (bench["reply"], bench["alias"], bench["turn"], bench["sticky_by"]) == ("route", "ok-routed-a", 1, "header")
    judged = http.post("/bench/verdict", json={"call": bench["call"], "useful": True})
    assert judged.status_code == 200, judged.text


def test_headers_say_who_answers(sdk: Anthropic) -> None:
    whole = sdk.messages.with_raw_response.create(**asking("bench/routed"))
    bench = bench_of(whole.parse())
    with sdk.messages.stream(**asking("bench/routed")) as events:
        streamed = events.response.headers
    for headers in (whole.headers, streamed):
        assert headers["x-bench-conversation"] == bench["conversation"]
        assert headers["x-bench-model"] == bench["alias"] == "ok-routed-a"
        assert headers["x-bench-call"] == bench["call"]


@both
def test_usage_is_the_members_and_tells_what_the_cache_gave(sdk: Anthropic, stream: bool) -> None:
    message, _ = told(sdk, "bench/route-cached-thought-route", stream=stream)
    usage = message.usage
    assert (usage.input_tokens, usage.cache_read_input_tokens, usage.output_tokens) == (6, 4, 5)


@both
def test_an_answer_that_was_cut_says_so(sdk: Anthropic, stream: bool) -> None:
    message, _ = told(sdk, "bench/cut-short:route", stream=stream)
    assert message.stop_reason == "max_tokens"


# Errors


@both
def test_all_rate_limited_is_raised_as_a_rate_limit_with_the_shortest_wait(sdk: Anthropic, stream: bool) -> None:
    with pytest.raises(anthropic.RateLimitError) as raised:
        told(sdk, "bench/route-limited", stream=stream)
    assert raised.value.response.headers["retry-after"] == "7"


@both
def test_too_long_a_prompt_is_raised_in_anthropics_words(sdk: Anthropic, stream: bool) -> None:
    with pytest.raises(anthropic.BadRequestError) as raised:
        told(sdk, "bench/route-too-long", stream=stream)
    body: Any = raised.value.body
    assert body["error"]["type"] == "invalid_request_error"
    assert body["error"]["message"].startswith("prompt is too long: ")
    assert body["error"]["message"].endswith(" tokens > 4096 maximum")


@both
def test_nobody_answering_is_raised_and_names_each(sdk: Anthropic, stream: bool) -> None:
    with pytest.raises(anthropic.InternalServerError) as raised:
        told(sdk, "bench/route-all-fail", stream=stream)
    assert raised.value.status_code == 502
    assert "fail500-a" in str(raised.value)
    assert "html-b" in str(raised.value)


def test_an_answer_that_breaks_off_is_raised(sdk: Anthropic) -> None:
    heard: list[str] = []
    with (
        sdk.messages.stream(**asking("bench/route-breaks-off")) as events,
        pytest.raises(anthropic.APIStatusError, match="midfail-a broke off"),
    ):
        heard.extend(events.text_stream)
    assert "".join(heard) == "I am "


def test_a_caller_who_hangs_up_ends_the_members_call(sdk: Anthropic, models: Upstream) -> None:
    models.release("step-a")
    with sdk.messages.stream(**asking("bench/route-steps")) as events:
        assert next(iter(events.text_stream)) == "I "
    assert models.wait_for(lambda calls: calls[0].hung_up)


# Claude Code


def first_turn(model: str) -> Json:
    asked = {name: value for name, value in FIRST_REQUEST.items() if name != "stream"}
    return {**asked, "model": model, "betas": ["context-management-2025-06-27"]}


def test_claude_codes_first_turn_is_answered_and_stays_with_its_session(proxy: Proxy, models: Upstream) -> None:
    turn: Any = first_turn("bench/route-calls")
    with connected(proxy) as client:
        with client.beta.messages.stream(**turn) as events:
            (bench,) = [bench_of(event) for event in events if event.type == "message_delta"]
            called = events.get_final_message()
        assert called.stop_reason == "tool_use"
        assert [call.name for call in calls_of(called)] == ["Read", "ToolSearch"]
        assert bench["sticky_by"] == "client session"

        (asked,) = models.calls()
        assert [message["role"] for message in asked.body["messages"]] == ["system", "user", "user"]
        assert [tool["function"]["name"] for tool in asked.body["tools"]] == ["Read", "ToolSearch", "Placeholder"]
        assert (asked.body["max_tokens"], asked.body["reasoning_effort"]) == (32_000, "high")
        assert {"metadata", "thinking", "context_management", "output_config"}.isdisjoint(asked.body)

        read, searched = calls_of(called)
        found = [{"type": "tool_reference", "tool_name": "Placeholder"}]
        results = [
            {"type": "tool_result", "tool_use_id": read.id, "content": "text"},
            {"type": "tool_result", "tool_use_id": searched.id, "content": found},
        ]
        said = {"role": "assistant", "content": called.content}
        turn["messages"] = [*turn["messages"], said, {"role": "user", "content": results}]
        with client.beta.messages.stream(**turn) as events:
            assert text_of(events.get_final_message()) == "I am tools2-a."
    assert models.calls()[-1].body["messages"][-1]["content"] == "Found the tool Placeholder."


@pytest.mark.parametrize("model", ["bench/agents", "bench/duo:route"])
def test_tokens_are_counted_with_the_tools_and_no_model_is_asked(sdk: Anthropic, models: Upstream, model: str) -> None:
    bare = sdk.messages.count_tokens(model=model, messages=ASKED).input_tokens
    with_tools = sdk.messages.count_tokens(model=model, messages=ASKED, tools=[TOOL]).input_tokens
    assert 0 < bare < with_tools
    assert models.calls() == []
