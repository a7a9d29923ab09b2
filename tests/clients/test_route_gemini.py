"""Route mode through Google's own SDK: function calling by hand and by itself, thoughts, usage, errors."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from google import genai
from google.genai import errors, types

from tests.asking import Json
from tests.proxy import MASTER_KEY, Proxy
from tests.served import LANES
from tests.upstream import REASONING, Upstream

# The SDK's session extends aiohttp's, which aiohttp discourages.
pytestmark = pytest.mark.filterwarnings("ignore:Inheritance class AiohttpClientSession:DeprecationWarning")

PIXEL = b"\x89PNG\r\n\x1a\n\xff\xef\xbe"
SCHEMA = {"type": "object", "properties": {"query": {"type": "string"}, "n": {"type": "integer"}}}
ASKED = types.Content(role="user", parts=[types.Part(text="Look it up.")])

both = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


@pytest.fixture(params=LANES)
def proxy(request: pytest.FixtureRequest, on_lane: Callable[[str], Proxy]) -> Proxy:
    return on_lane(request.param)


@pytest.fixture
def sdk(proxy: Proxy, models: Upstream, conversation: str) -> Iterator[genai.Client]:
    """A client that does not ask twice."""
    options = types.HttpOptions(
        base_url=proxy.url,
        timeout=60_000,
        headers={"x-bench-conversation": conversation},
        client_args={"trust_env": False},
        retry_options=types.HttpRetryOptions(attempts=1),
    )
    with genai.Client(api_key=MASTER_KEY, http_options=options) as client:
        yield client


def config(**more: Any) -> types.GenerateContentConfig:
    """With which the SDK calls no function by itself."""
    return types.GenerateContentConfig(
        automatic_function_calling=types.AutomaticFunctionCallingConfig(disable=True), **more
    )


def tools(name: str = "lookup") -> list[types.Tool]:
    declared = types.FunctionDeclaration(name=name, description="Looks it up.", parameters_json_schema=SCHEMA)
    return [types.Tool(function_declarations=[declared])]


def told(
    sdk: genai.Client, model: str, *, stream: bool, contents: Any = ASKED, **more: Any
) -> list[types.GenerateContentResponse]:
    """All chunks of a turn; whole, it is one."""
    if stream:
        return list(sdk.models.generate_content_stream(model=model, contents=contents, config=config(**more)))
    return [sdk.models.generate_content(model=model, contents=contents, config=config(**more))]


def parts_of(chunks: list[types.GenerateContentResponse]) -> list[types.Part]:
    contents = [candidate.content for chunk in chunks for candidate in chunk.candidates or ()]
    return [part for content in contents for part in (content.parts if content else None) or ()]


def text_of(chunks: list[types.GenerateContentResponse]) -> str:
    return "".join(part.text or "" for part in parts_of(chunks) if not part.thought)


def thoughts_of(chunks: list[types.GenerateContentResponse]) -> str:
    return "".join(part.text or "" for part in parts_of(chunks) if part.thought)


def calls_of(chunks: list[types.GenerateContentResponse]) -> list[types.FunctionCall]:
    return [part.function_call for part in parts_of(chunks) if part.function_call]


def with_results(chunks: list[types.GenerateContentResponse], *, ids: bool, result: str = "found") -> list[Any]:
    """The conversation with what the model said and what its calls gave back; `ids`: whether results name theirs."""
    results = [
        types.FunctionResponse(id=call.id if ids else None, name=call.name, response={"result": result})
        for call in calls_of(chunks)
    ]
    return [
        ASKED,
        types.Content(role="model", parts=parts_of(chunks)),
        types.Content(role="user", parts=[types.Part(function_response=one) for one in results]),
    ]


def ending(chunks: list[types.GenerateContentResponse]) -> str | None:
    (candidate,) = chunks[-1].candidates or []
    return candidate.finish_reason and candidate.finish_reason.value


# Functions


@both
@pytest.mark.parametrize("ids", [True, False], ids=["ids", "names"])
@pytest.mark.parametrize(("model", "count"), [("bench/agents", 1), ("bench/route-calls", 2)])
def test_calls_come_whole_and_their_results_are_answered(
    sdk: genai.Client, models: Upstream, model: str, count: int, ids: bool, stream: bool
) -> None:
    called = told(sdk, model, stream=stream, tools=tools())
    member = models.calls()[0].model
    assert ending(called) == "STOP"
    assert [call.name for call in calls_of(called)] == ["lookup"] * count
    assert [call.args for call in calls_of(called)] == [{"query": member, "n": n} for n in range(count)]

    answer = told(sdk, model, stream=stream, tools=tools(), contents=with_results(called, ids=ids))
    assert (text_of(answer), ending(answer)) == (f"I am {member}.", "STOP")
    assert [call.model for call in models.calls()] == [member, member]
    _, said, *results = models.calls()[-1].body["messages"]
    assert [call["id"] for call in said["tool_calls"]] == [result["tool_call_id"] for result in results]
    assert [json.loads(result["content"]) for result in results] == [{"result": "found"}] * count


def test_the_sdk_calls_python_functions_by_itself(sdk: genai.Client, models: Upstream) -> None:
    asked: list[Json] = []

    def lookup(query: str, n: int) -> str:
        """Looks something up."""
        asked.append({"query": query, "n": n})
        return "found"

    response = sdk.models.generate_content(
        model="bench/route-calls", contents="Look.", config=types.GenerateContentConfig(tools=[lookup])
    )
    assert response.text == "I am tools2-a."
    assert asked == [{"query": "tools2-a", "n": 0}, {"query": "tools2-a", "n": 1}]
    (function,) = models.calls()[0].body["tools"]
    assert set(function["function"]["parameters"]["properties"]) == {"query", "n"}


def test_a_chat_of_the_sdks_goes_on_with_its_history(sdk: genai.Client, models: Upstream) -> None:
    chat = sdk.chats.create(model="bench/agents", config=config(tools=tools()))
    (call,) = chat.send_message("Look it up.").function_calls or []
    given = types.FunctionResponse(id=call.id, name=call.name, response={"result": "found"})
    member = models.calls()[0].model
    assert chat.send_message(types.Part(function_response=given)).text == f"I am {member}."


@both
def test_a_name_that_only_google_takes_comes_back_as_it_was(sdk: genai.Client, models: Upstream, stream: bool) -> None:
    called = told(sdk, "bench/agents", stream=stream, tools=tools("files.look:up"))
    assert [call.name for call in calls_of(called)] == ["files.look:up"]
    (function,) = models.calls()[0].body["tools"]
    assert function["function"]["name"].startswith("files_look_up_")
    answer = told(
        sdk, "bench/agents", stream=stream, tools=tools("files.look:up"), contents=with_results(called, ids=True)
    )
    assert text_of(answer) == f"I am {models.calls()[0].model}."
    assert models.calls()[-1].body["messages"][1]["tool_calls"][0]["function"] == {
        "name": function["function"]["name"],
        "arguments": json.dumps(calls_of(called)[0].args, separators=(",", ":")),
    }


def test_a_forced_function_is_forced(sdk: genai.Client, models: Upstream) -> None:
    choice = types.FunctionCallingConfig(mode=types.FunctionCallingConfigMode.ANY, allowed_function_names=["lookup"])
    told(
        sdk, "bench/agents", stream=False, tools=[*tools("other"), *tools()],
        tool_config=types.ToolConfig(function_calling_config=choice),
    )  # fmt: skip
    body = models.calls()[0].body
    assert [tool["function"]["name"] for tool in body["tools"]] == ["lookup"]
    assert body["tool_choice"] == {"type": "function", "function": {"name": "lookup"}}


@both
def test_an_image_in_a_functions_result_reaches_a_member_that_sees(
    sdk: genai.Client, models: Upstream, stream: bool
) -> None:
    picture = types.FunctionResponsePart(
        inline_data=types.FunctionResponseBlob(mime_type="image/png", data=PIXEL, display_name="it.png")
    )
    result = types.FunctionResponse(name="lookup", response={"result": "See."}, parts=[picture])
    contents = [
        ASKED,
        types.Content(role="model", parts=[types.Part(function_call=types.FunctionCall(name="lookup", args={}))]),
        types.Content(role="user", parts=[types.Part(function_response=result)]),
    ]
    assert text_of(told(sdk, "bench/route-seeing", stream=stream, tools=tools(), contents=contents)) == "I am ok-h."
    *_, given, seen = models.calls()[0].body["messages"]
    assert given["role"] == "tool"
    assert json.loads(given["content"]) == {"result": "See."}
    assert seen["content"][-1]["image_url"]["url"] == "data:image/png;base64,iVBORw0KGgr/774="


# Thoughts


@both
@pytest.mark.parametrize("wanted", [True, False, None])
def test_thoughts_are_shown_to_who_asks_for_them(
    sdk: genai.Client, models: Upstream, wanted: bool | None, stream: bool
) -> None:
    more = {} if wanted is None else {"thinking_config": types.ThinkingConfig(include_thoughts=wanted)}
    chunks = told(sdk, "bench/route-thoughts", stream=stream, **more)
    assert (thoughts_of(chunks), text_of(chunks)) == (REASONING if wanted else "", "I am think-a.")
    again = [ASKED, types.Content(role="model", parts=parts_of(chunks)), ASKED]
    told(sdk, "bench/route-thoughts", stream=stream, contents=again, **more)
    assert models.calls()[-1].body["messages"][1] == {"role": "assistant", "content": "I am think-a."}


# Who answers, and what is told of it


@both
def test_a_member_that_fails_is_replaced_unseen(sdk: genai.Client, models: Upstream, stream: bool) -> None:
    failing = "fail500-route-gemini-streamed" if stream else "fail500-route-gemini"
    assert text_of(told(sdk, f"bench/route-{failing}", stream=stream, tools=tools())) == "I am ok-spare."
    assert [call.model for call in models.calls()] == [failing, "ok-spare"]


def test_the_reply_says_who_answered_and_a_verdict_finds_it(
    sdk: genai.Client, http: httpx.Client, models: Upstream
) -> None:
    response = sdk.models.generate_content(
        model="bench/duo:route", contents="Who?", config=config(should_return_http_response=True)
    )
    raw = response.sdk_http_response
    assert raw is not None
    assert raw.body is not None
    assert raw.headers is not None
    said = json.loads(raw.body)
    bench = said["bench"]
    assert said["modelVersion"] == "bench/duo:route"
    assert (bench["reply"], bench["alias"], bench["turn"], bench["sticky_by"]) == ("route", "ok-routed-a", 1, "header")
    assert raw.headers["x-bench-conversation"] == bench["conversation"]
    assert (raw.headers["x-bench-call"], raw.headers["x-bench-model"]) == (bench["call"], "ok-routed-a")
    judged = http.post("/bench/verdict", json={"call": bench["call"], "useful": True})
    assert judged.status_code == 200, judged.text


def test_headers_of_a_stream_name_the_conversation_and_the_member(sdk: genai.Client) -> None:
    chunks = told(sdk, "bench/routed", stream=True)
    raw = chunks[0].sdk_http_response
    assert raw is not None
    assert raw.headers is not None
    assert raw.headers["x-bench-model"] == "ok-routed-a"
    assert raw.headers["x-bench-conversation"].startswith("r")


@both
def test_usage_is_the_members_and_tells_what_the_cache_gave(sdk: genai.Client, stream: bool) -> None:
    usage = told(sdk, "bench/route-cached-thought-route", stream=stream)[-1].usage_metadata
    assert usage is not None
    assert (usage.prompt_token_count, usage.cached_content_token_count) == (10, 4)
    assert (usage.candidates_token_count, usage.thoughts_token_count, usage.total_token_count) == (2, 3, 15)


@both
def test_an_answer_that_was_cut_says_so(sdk: genai.Client, stream: bool) -> None:
    assert ending(told(sdk, "bench/cut-short:route", stream=stream)) == "MAX_TOKENS"


ADDRESSES = ["bench/duo:route", "bench%2Fduo:route", "bench%2Fduo%3Aroute"]
PROMPT = {"contents": [{"parts": [{"text": "Who are you?"}]}]}


@pytest.mark.parametrize("address", ADDRESSES)
@pytest.mark.parametrize("base", ["/v1beta/models", "/v1/models", "/models"])
def test_the_mode_may_stand_in_the_address_encoded_or_not(
    http: httpx.Client, models: Upstream, base: str, address: str
) -> None:
    whole = http.post(f"{base}/{address}:generateContent", json=PROMPT)
    assert whole.status_code == 200, whole.text
    assert whole.json()["bench"]["reply"] == "route"
    streamed = http.post(f"{base}/{address}:streamGenerateContent", json=PROMPT)
    assert streamed.json()[-1]["bench"]["reply"] == "route"
    assert {call.model for call in models.calls()} == {"ok-routed-a"}


@pytest.mark.parametrize("model", ["bench/agents", "bench/duo:route"])
def test_tokens_are_counted_and_no_model_is_asked(sdk: genai.Client, models: Upstream, model: str) -> None:
    assert (sdk.models.count_tokens(model=model, contents="hello " * 50).total_tokens or 0) > 50
    assert models.calls() == []


# Errors


@both
def test_all_rate_limited_is_raised_with_the_shortest_wait(sdk: genai.Client, stream: bool) -> None:
    with pytest.raises(errors.ClientError) as raised:
        told(sdk, "bench/route-limited", stream=stream)
    assert (raised.value.code, raised.value.status) == (429, "RESOURCE_EXHAUSTED")
    assert raised.value.response.headers["retry-after"] == "7"
    assert raised.value.details["error"]["details"][0]["retryDelay"] == "7s"


@both
def test_too_long_a_prompt_is_raised_in_googles_words(sdk: genai.Client, stream: bool) -> None:
    with pytest.raises(errors.ClientError) as raised:
        told(sdk, "bench/route-too-long", stream=stream)
    assert (raised.value.code, raised.value.status) == (400, "INVALID_ARGUMENT")
    message = raised.value.message or ""
    assert message.startswith("The input token count (")
    assert message.endswith("exceeds the maximum number of tokens allowed (4096).")


@both
def test_nobody_answering_is_raised_and_names_each(sdk: genai.Client, stream: bool) -> None:
    with pytest.raises(errors.ServerError) as raised:
        told(sdk, "bench/route-all-fail", stream=stream)
    assert (raised.value.code, raised.value.status) == (502, "UNAVAILABLE")
    assert "fail500-a" in str(raised.value)
    assert "html-b" in str(raised.value)


def test_an_answer_that_breaks_off_is_raised(sdk: genai.Client) -> None:
    heard: list[types.GenerateContentResponse] = []
    chunks = sdk.models.generate_content_stream(model="bench/route-breaks-off", contents="Who?", config=config())
    with pytest.raises(errors.APIError, match="midfail-a broke off"):
        heard.extend(chunks)
    assert text_of(heard) == "I am "


def test_a_caller_who_hangs_up_ends_the_members_call(sdk: genai.Client, models: Upstream) -> None:
    models.release("step-a")
    chunks: Any = sdk.models.generate_content_stream(model="bench/route-steps", contents="Who?", config=config())
    assert text_of([next(chunks)]) == "I "
    chunks.close()
    assert models.wait_for(lambda calls: calls[0].hung_up)
