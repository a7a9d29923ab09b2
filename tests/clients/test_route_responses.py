"""Route mode of OpenAI Responses through OpenAI's own SDK: items of tools of each kind, summaries, errors, Codex."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from tests.asking import Json
from tests.proxy import MASTER_KEY, Proxy
from tests.served import LANES
from tests.upstream import REASONING, Upstream

CODEX: Json = json.loads((Path(__file__).parents[1] / "formats" / "codex_first_turn.json").read_text())
ASKED: Any = [{"role": "user", "content": "Look it up."}]
TOOL: Any = {
    "type": "function",
    "name": "lookup",
    "description": "Looks something up.",
    "strict": False,
    "parameters": {"type": "object", "properties": {"query": {"type": "string"}, "n": {"type": "integer"}}},
}
PATCH_TOOL: Any = {
    "type": "custom",
    "name": "apply_patch",
    "description": "Changes files.",
    "format": {"type": "grammar", "syntax": "lark", "definition": "start: /(.|\\n)+/"},
}
PATCH = '*** Begin Patch\n*** Add File: "hello.txt"\n+Hello, 漢字.\\n\n*** End Patch\n'
AGENTS: Any = {
    "type": "namespace",
    "name": "agents",
    "description": "Tools for sub-agents.",
    "tools": [{**TOOL, "name": "spawn"}],
}
PIXEL = "data:image/png;base64,iVBORw0KGgo="

both = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


@pytest.fixture(params=LANES)
def proxy(request: pytest.FixtureRequest, on_lane: Callable[[str], Proxy]) -> Proxy:
    return on_lane(request.param)


def connected(proxy: Proxy, **headers: str) -> openai.OpenAI:
    """A client that does not ask twice."""
    return openai.OpenAI(
        base_url=f"{proxy.url}/v1",
        api_key=MASTER_KEY,
        max_retries=0,
        http_client=openai.DefaultHttpxClient(trust_env=False),
        default_headers=headers,
    )


@pytest.fixture
def sdk(proxy: Proxy, models: Upstream, conversation: str) -> Iterator[openai.OpenAI]:
    with connected(proxy, **{"x-bench-conversation": conversation}) as client:
        yield client


def told(sdk: openai.OpenAI, model: str, *, stream: bool, **more: Any) -> Any:
    asked: Any = {"model": model, "input": ASKED, **more}
    if not stream:
        return sdk.responses.create(**asked)
    with sdk.responses.stream(**asked) as events:
        return events.get_final_response()


def bench_of(response: Any) -> Json:
    data: Json = response.to_dict()["bench"]
    return data


def items(response: Any) -> list[Json]:
    """The output as a client that keeps its history as JSON sends it back."""
    output: list[Json] = json.loads(response.to_json())["output"]
    return [{name: value for name, value in item.items() if name != "parsed_arguments"} for item in output]


def kinds(response: Any) -> list[str]:
    return [item.type for item in response.output]


# Tools


@both
@pytest.mark.parametrize(("model", "count"), [("bench/agents", 1), ("bench/route-calls", 2)])
def test_calls_come_whole_and_their_results_are_answered(
    sdk: openai.OpenAI, models: Upstream, model: str, count: int, stream: bool
) -> None:
    called = told(sdk, model, stream=stream, tools=[TOOL])
    bench = bench_of(called)
    assert called.status == "completed"
    assert kinds(called) == ["function_call"] * count
    assert [call.name for call in called.output] == ["lookup"] * count
    assert [json.loads(call.arguments) for call in called.output] == [
        {"query": bench["alias"], "n": n} for n in range(count)
    ]

    results = [{"type": "function_call_output", "call_id": c.call_id, "output": "found"} for c in called.output]
    answer = told(sdk, model, stream=stream, tools=[TOOL], input=[*ASKED, *items(called), *results])
    after = bench_of(answer)
    assert (answer.output_text, kinds(answer)) == (f"I am {bench['alias']}.", ["message"])
    assert (after["turn"], after["conversation"], after["alias"]) == (2, bench["conversation"], bench["alias"])
    _, said, *given = models.calls()[-1].body["messages"]
    assert [call["id"] for call in said["tool_calls"]] == [result["tool_call_id"] for result in given]
    assert [result["content"] for result in given] == ["found"] * count


@both
def test_a_custom_tool_gets_its_text_and_its_result_is_answered(
    sdk: openai.OpenAI, models: Upstream, stream: bool
) -> None:
    models.say("tools-call-a", PATCH)
    called = told(sdk, "bench/route-tools-call-a", stream=stream, tools=[PATCH_TOOL])
    (call,) = called.output
    assert (call.type, call.name, call.input) == ("custom_tool_call", "apply_patch", PATCH)
    (tool,) = models.calls()[0].body["tools"]
    assert (tool["type"], tool["function"]["name"]) == ("function", "apply_patch")
    assert "start: /(.|\\n)+/" in tool["function"]["description"]

    models.say("tools-call-a", "Done.")
    result = {"type": "custom_tool_call_output", "call_id": call.call_id, "output": "Patched."}
    history = [*ASKED, *items(called), result]
    answer = told(sdk, "bench/route-tools-call-a", stream=stream, tools=[PATCH_TOOL], input=history)
    assert answer.output_text == "Done."
    _, said, given = models.calls()[-1].body["messages"]
    (made,) = said["tool_calls"]
    assert json.loads(made["function"]["arguments"]) == {"input": PATCH}
    assert (given["tool_call_id"], given["content"]) == (made["id"], "Patched.")


@both
def test_a_tool_in_a_namespace_is_called_in_it_and_its_result_is_answered(
    sdk: openai.OpenAI, models: Upstream, stream: bool
) -> None:
    called = told(sdk, "bench/route-tools-call-b", stream=stream, tools=[AGENTS])
    (call,) = called.output
    assert (call.type, call.name, call.to_dict()["namespace"]) == ("function_call", "spawn", "agents")
    (tool,) = models.calls()[0].body["tools"]
    assert tool["function"]["name"] == "agents__spawn"

    result = {"type": "function_call_output", "call_id": call.call_id, "output": "Started."}
    history = [*ASKED, *items(called), result]
    answer = told(sdk, "bench/route-tools-call-b", stream=stream, tools=[AGENTS], input=history)
    assert answer.output_text == "I am tools-call-b."
    assert models.calls()[-1].body["messages"][1]["tool_calls"][0]["function"]["name"] == "agents__spawn"


@both
def test_an_image_in_a_tools_result_reaches_a_member_that_sees(
    sdk: openai.OpenAI, models: Upstream, stream: bool
) -> None:
    call = {"type": "function_call", "call_id": "call_1", "name": "lookup", "arguments": "{}"}
    shown = [{"type": "input_text", "text": "See."}, {"type": "input_image", "image_url": PIXEL}]
    result = {"type": "function_call_output", "call_id": "call_1", "output": shown}
    answer = told(sdk, "bench/route-seeing", stream=stream, tools=[TOOL], input=[*ASKED, call, result])
    assert answer.output_text == "I am ok-h."
    *_, given, seen = models.calls()[0].body["messages"]
    assert given["role"] == "tool"
    assert seen["content"][-1] == {"type": "image_url", "image_url": {"url": PIXEL}}


# What is thought


@both
@pytest.mark.parametrize("summary", ["auto", None])
def test_what_is_thought_is_shown_to_who_asks_for_a_summary(
    sdk: openai.OpenAI, models: Upstream, summary: str | None, stream: bool
) -> None:
    more: Json = {"reasoning": {"summary": summary}} if summary else {}
    response = told(sdk, "bench/route-thoughts", stream=stream, **more)
    assert kinds(response) == (["reasoning"] if summary else []) + ["message"]
    assert response.output_text == "I am think-a."
    if summary:
        assert [part.text for part in response.output[0].summary] == [REASONING]
        told(sdk, "bench/route-thoughts", stream=stream, input=[*ASKED, *items(response), *ASKED], **more)
        said = models.calls()[-1].body["messages"][1]
        assert (said["role"], REASONING in json.dumps(said)) == ("assistant", False)


# Who answers, and what is told of it


@both
def test_a_member_that_fails_is_replaced_unseen(sdk: openai.OpenAI, models: Upstream, stream: bool) -> None:
    failing = "fail500-route-responses-streamed" if stream else "fail500-route-responses"
    response = told(sdk, f"bench/route-{failing}", stream=stream, tools=[TOOL])
    assert response.output_text == "I am ok-spare."
    assert [one["alias"] for one in bench_of(response)["failed_over"]] == [failing]
    assert [call.model for call in models.calls()] == [failing, "ok-spare"]


@both
def test_the_reply_says_who_answered_and_a_verdict_finds_it(
    sdk: openai.OpenAI, http: httpx.Client, models: Upstream, stream: bool
) -> None:
    response = told(sdk, "bench/duo:route", stream=stream)
    bench = bench_of(response)
    assert response.model == "bench/duo:route"
    assert (bench["reply"], bench["alias"], bench["turn"], bench["sticky_by"]) == ("route", "ok-routed-a", 1, "header")
    judged = http.post("/bench/verdict", json={"call": bench["call"], "useful": True})
    assert judged.status_code == 200, judged.text


def test_headers_say_who_answers(sdk: openai.OpenAI) -> None:
    whole = sdk.responses.with_raw_response.create(model="bench/routed", input=ASKED)
    bench = bench_of(whole.parse())
    with sdk.responses.create(model="bench/routed", input=ASKED, stream=True) as events:
        streamed = events.response.headers
    for headers in (whole.headers, streamed):
        assert headers["x-bench-conversation"] == bench["conversation"]
        assert headers["x-bench-model"] == bench["alias"] == "ok-routed-a"
        assert headers["x-bench-call"] == bench["call"]


@both
def test_usage_is_the_members_and_tells_what_the_cache_gave(sdk: openai.OpenAI, stream: bool) -> None:
    usage = told(sdk, "bench/route-cached-thought-route", stream=stream).usage
    assert (usage.input_tokens, usage.input_tokens_details.cached_tokens) == (10, 4)
    assert (usage.output_tokens, usage.output_tokens_details.reasoning_tokens) == (5, 3)


def test_an_answer_that_was_cut_is_incomplete(sdk: openai.OpenAI) -> None:
    response = told(sdk, "bench/cut-short:route", stream=False)
    assert (response.status, response.incomplete_details.reason) == ("incomplete", "max_output_tokens")
    with sdk.responses.create(model="bench/cut-short:route", input=ASKED, stream=True) as events:
        assert list(events)[-1].type == "response.incomplete"


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


@both
def test_nobody_answering_is_raised_and_names_each(sdk: openai.OpenAI, stream: bool) -> None:
    with pytest.raises(openai.InternalServerError) as raised:
        told(sdk, "bench/route-all-fail", stream=stream)
    assert raised.value.status_code == 502
    assert "fail500-a" in str(raised.value)
    assert "html-b" in str(raised.value)


@pytest.mark.parametrize(
    "more", [{"previous_response_id": "resp_1"}, {"conversation": "conv_1"}, {"background": True}], ids=str
)
def test_what_points_to_something_stored_is_a_bad_request(sdk: openai.OpenAI, models: Upstream, more: Json) -> None:
    with pytest.raises(openai.BadRequestError, match="stored"):
        told(sdk, "bench/agents", stream=False, **more)
    assert models.calls() == []


def test_an_answer_that_breaks_off_is_raised(sdk: openai.OpenAI) -> None:
    heard: list[Any] = []
    with (
        sdk.responses.create(model="bench/route-breaks-off", input=ASKED, stream=True) as events,
        pytest.raises(openai.APIError, match="midfail-a broke off"),
    ):
        heard.extend(events)
    assert "".join(event.delta for event in heard if event.type == "response.output_text.delta") == "I am "


def test_a_caller_who_hangs_up_ends_the_members_call(sdk: openai.OpenAI, models: Upstream) -> None:
    models.release("step-a")
    with sdk.responses.create(model="bench/route-steps", input=ASKED, stream=True) as events:
        assert next(event.delta for event in events if event.type == "response.output_text.delta") == "I "
    assert models.wait_for(lambda calls: calls[0].hung_up)


# Codex


def test_codex_first_turn_is_answered_and_stays_with_its_session(
    proxy: Proxy, models: Upstream, conversation: str
) -> None:
    asked: Json = {**CODEX, "model": "bench/route-calls", "prompt_cache_key": conversation}
    with connected(proxy) as client:
        called = final(client, asked)
        bench = bench_of(called)
        assert kinds(called) == ["function_call", "function_call"]
        assert (bench["sticky_by"], bench["left_out"]) == ("client session", ["web_search"])
        told_names = [tool["function"]["name"] for tool in models.calls()[0].body["tools"]]
        assert told_names[:2] == [call.name for call in called.output]
        assert "multi_agent_v1__spawn_agent" in told_names

        results = [{"type": "function_call_output", "call_id": c.call_id, "output": "Done."} for c in called.output]
        answer = final(client, {**asked, "input": [*asked["input"], *items(called), *results]})
    assert answer.output_text == "I am tools2-a."
    assert bench_of(answer)["turn"] == 2


def final(client: openai.OpenAI, asked: Json) -> Any:
    """The response of a stream that was asked for with all that a body holds, also what the SDK does not know."""
    said: Any = {name: asked[name] for name in ("model", "input", "tools")}
    rest = {name: value for name, value in asked.items() if name not in said and name != "stream"}
    with client.responses.create(**said, extra_body=rest, stream=True) as events:
        *_, last = events
    assert last.type == "response.completed"
    return last.response
