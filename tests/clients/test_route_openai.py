"""Route mode of chat completions and legacy completions through OpenAI's own SDK."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import openai
import pytest
from openai.lib.streaming.chat import ContentDoneEvent
from pydantic import BaseModel

from tests.asking import Json
from tests.proxy import MASTER_KEY, Proxy
from tests.served import LANES
from tests.upstream import REASONING, Upstream

ASKED: Any = [{"role": "user", "content": "Look it up."}]
SCHEMA = {"type": "object", "properties": {"query": {"type": "string"}, "n": {"type": "integer"}}}
TOOL: Any = {"type": "function", "function": {"name": "lookup", "description": "Looks up.", "parameters": SCHEMA}}
PIXEL = "data:image/png;base64,iVBORw0KGgo="

both = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


class Answer(BaseModel):
    title: str


@pytest.fixture(params=LANES)
def proxy(request: pytest.FixtureRequest, on_lane: Callable[[str], Proxy]) -> Proxy:
    return on_lane(request.param)


@pytest.fixture
def sdk(proxy: Proxy, models: Upstream, conversation: str) -> Iterator[openai.OpenAI]:
    """A client that does not ask twice."""
    with openai.OpenAI(
        base_url=f"{proxy.url}/v1",
        api_key=MASTER_KEY,
        max_retries=0,
        http_client=openai.DefaultHttpxClient(trust_env=False),
        default_headers={"x-bench-conversation": conversation},
    ) as client:
        yield client


def told(sdk: openai.OpenAI, model: str, *, stream: bool, **more: Any) -> Any:
    """The completion, which the SDK puts together where it was streamed."""
    asked: Any = {"model": model, "messages": ASKED, **more}
    if not stream:
        return sdk.chat.completions.create(**asked)
    with sdk.chat.completions.stream(**asked, stream_options={"include_usage": True}) as events:
        return events.get_final_completion()


def message_of(completion: Any) -> Any:
    (choice,) = completion.choices
    return choice.message


# Tools


@both
@pytest.mark.parametrize(("model", "count"), [("bench/agents", 1), ("bench/route-calls", 2)])
def test_calls_come_whole_and_their_results_are_answered(
    sdk: openai.OpenAI, models: Upstream, model: str, count: int, stream: bool
) -> None:
    called = told(sdk, model, stream=stream, tools=[TOOL])
    member = models.calls()[0].model
    assert called.choices[0].finish_reason == "tool_calls"
    calls = message_of(called).tool_calls
    assert [call.function.name for call in calls] == ["lookup"] * count
    assert [json.loads(call.function.arguments) for call in calls] == [{"query": member, "n": n} for n in range(count)]

    results = [{"role": "tool", "tool_call_id": call.id, "content": "found"} for call in calls]
    said = json.loads(message_of(called).to_json())
    answer = told(sdk, model, stream=stream, tools=[TOOL], messages=[*ASKED, said, *results])
    assert (message_of(answer).content, answer.choices[0].finish_reason) == (f"I am {member}.", "stop")
    assert [call.model for call in models.calls()] == [member, member]
    _, made, *given = models.calls()[-1].body["messages"]
    assert [call["id"] for call in made["tool_calls"]] == [result["tool_call_id"] for result in given]


@both
def test_an_image_in_a_tools_result_reaches_a_member_that_sees(
    sdk: openai.OpenAI, models: Upstream, stream: bool
) -> None:
    call = {"id": "call_1", "type": "function", "function": {"name": "lookup", "arguments": "{}"}}
    shown = [{"type": "text", "text": "See."}, {"type": "image_url", "image_url": {"url": PIXEL}}]
    result = {"role": "tool", "tool_call_id": "call_1", "content": shown}
    messages = [*ASKED, {"role": "assistant", "content": None, "tool_calls": [call]}, result]
    answer = told(sdk, "bench/route-seeing", stream=stream, tools=[TOOL], messages=messages)
    assert message_of(answer).content == "I am ok-h."
    *_, given, seen = models.calls()[0].body["messages"]
    assert given["role"] == "tool"
    assert seen["content"][-1] == {"type": "image_url", "image_url": {"url": PIXEL}}


def test_an_answer_is_parsed_by_the_schema_that_was_asked_for(sdk: openai.OpenAI, models: Upstream) -> None:
    models.say("ok-routed-a", '{"title": "Hello"}')
    completion = sdk.chat.completions.parse(model="bench/routed", messages=ASKED, response_format=Answer)
    assert message_of(completion).parsed == Answer(title="Hello")
    with sdk.chat.completions.stream(model="bench/routed", messages=ASKED, response_format=Answer) as events:
        parsed = [event.parsed for event in events if isinstance(event, ContentDoneEvent)]
    assert parsed == [Answer(title="Hello")]


# Thoughts, who answers, usage


@both
def test_what_is_thought_comes_beside_the_answer(sdk: openai.OpenAI, models: Upstream, stream: bool) -> None:
    message = message_of(told(sdk, "bench/route-thoughts", stream=stream))
    assert (message.content, message.model_extra["reasoning_content"]) == ("I am think-a.", REASONING)


@both
def test_a_member_that_fails_is_replaced_unseen(sdk: openai.OpenAI, models: Upstream, stream: bool) -> None:
    failing = "fail500-route-chat-streamed" if stream else "fail500-route-chat"
    assert message_of(told(sdk, f"bench/route-{failing}", stream=stream, tools=[TOOL])).content == "I am ok-spare."
    assert [call.model for call in models.calls()] == [failing, "ok-spare"]


def test_bench_and_headers_say_who_answered(sdk: openai.OpenAI) -> None:
    whole = sdk.chat.completions.with_raw_response.create(model="bench/duo:route", messages=ASKED)
    bench: Json = whole.parse().to_dict()["bench"]  # type: ignore[assignment]
    assert (bench["reply"], bench["alias"], bench["turn"], bench["sticky_by"]) == ("route", "ok-routed-a", 1, "header")
    with sdk.chat.completions.create(model="bench/duo:route", messages=ASKED, stream=True) as chunks:
        headers = chunks.response.headers
        *_, last = chunks
    after: Json = last.to_dict()["bench"]  # type: ignore[assignment]
    assert (after["turn"], after["call"]) == (2, bench["call"])
    for told_of in (whole.headers, headers):
        assert told_of["x-bench-conversation"] == bench["conversation"]
        assert (told_of["x-bench-call"], told_of["x-bench-model"]) == (bench["call"], "ok-routed-a")


@both
def test_usage_is_the_members_and_tells_what_the_cache_gave(sdk: openai.OpenAI, stream: bool) -> None:
    usage = told(sdk, "bench/route-cached-thought-route", stream=stream).usage
    assert (usage.prompt_tokens, usage.prompt_tokens_details.cached_tokens) == (10, 4)
    assert (usage.completion_tokens, usage.completion_tokens_details.reasoning_tokens) == (5, 3)


# Errors


@both
def test_all_rate_limited_is_raised_as_a_rate_limit_with_the_shortest_wait(sdk: openai.OpenAI, stream: bool) -> None:
    with pytest.raises(openai.RateLimitError) as raised:
        told(sdk, "bench/route-limited", stream=stream)
    assert raised.value.response.headers["retry-after"] == "7"


@both
def test_too_long_a_prompt_is_raised_with_openais_code(sdk: openai.OpenAI, stream: bool) -> None:
    with pytest.raises(openai.BadRequestError, match="maximum context length is 4096 tokens") as raised:
        told(sdk, "bench/route-too-long", stream=stream)
    assert raised.value.code == "context_length_exceeded"


def test_an_answer_that_breaks_off_is_raised(sdk: openai.OpenAI) -> None:
    heard: list[Any] = []
    with (
        sdk.chat.completions.create(model="bench/route-breaks-off", messages=ASKED, stream=True) as chunks,
        pytest.raises(openai.APIError, match="midfail-a broke off"),
    ):
        heard.extend(chunks)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in heard) == "I am "


def test_a_caller_who_hangs_up_ends_the_members_call(sdk: openai.OpenAI, models: Upstream) -> None:
    models.release("step-a")
    with sdk.chat.completions.create(model="bench/route-steps", messages=ASKED, stream=True) as chunks:
        assert next(text for chunk in chunks if (text := chunk.choices[0].delta.content)) == "I "
    assert models.wait_for(lambda calls: calls[0].hung_up)


# Legacy completions


@both
def test_a_prompt_is_answered_by_one_member_which_is_replaced_when_it_fails(
    sdk: openai.OpenAI, models: Upstream, stream: bool
) -> None:
    failing = "fail500-route-completions-streamed" if stream else "fail500-route-completions"
    asked: Any = {"model": f"bench/route-{failing}", "prompt": "Who are you?"}
    completions = list(sdk.completions.create(**asked, stream=True)) if stream else [sdk.completions.create(**asked)]
    assert "".join(choice.text for one in completions for choice in one.choices) == "I am ok-spare."
    assert completions[-1].choices[0].finish_reason == "stop"
    assert completions[-1].to_dict()["bench"]["alias"] == "ok-spare"
    assert [call.model for call in models.calls()] == [failing, "ok-spare"]


def test_a_prompt_whose_answer_breaks_off_or_is_too_long_raises(sdk: openai.OpenAI) -> None:
    with pytest.raises(openai.APIError, match="midfail-a broke off"):
        list(sdk.completions.create(model="bench/route-breaks-off", prompt="Who?", stream=True))
    with pytest.raises(openai.BadRequestError) as raised:
        sdk.completions.create(model="bench/route-too-long", prompt="Who?")
    assert raised.value.code == "context_length_exceeded"
