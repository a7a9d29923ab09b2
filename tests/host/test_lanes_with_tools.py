"""Both lanes say the same of what a model calls and thinks, and of the tokens that this took."""

import asyncio
import json
from typing import Any

import litellm
import pytest
from litellm import Router
from litellm.integrations.custom_logger import CustomLogger

from bench_proxy.errors import UpstreamError
from bench_proxy.formats.request import ChatRequest
from bench_proxy.host.lean import LeanLane
from bench_proxy.host.reporting import Reporting
from bench_proxy.host.upstream import RouterLane
from bench_proxy.upstream import Call, CallPiece, Event, Reply, Text, Thought
from tests.host.odd import Odd, heard, sse, told
from tests.upstream import REASONING
from tests.upstream import Upstream as Scripted

pytestmark = pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")  # of OpenAI's SDK, at odd answers

LANES = ("router", "auto")
TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {"name": name, "description": name, "parameters": {"type": "object", "properties": {}}},
    }
    for name in ("read", "write")
]
ASKED = ChatRequest([{"role": "user", "content": "Do it."}], {"tools": TOOLS})


def delta(said: dict[str, Any], finish: str | None = None) -> str:
    choice = {"index": 0, "delta": said, "finish_reason": finish}
    return json.dumps({"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]})


def called(arguments: object, **more: Any) -> dict[str, Any]:
    name = more.pop("name", None)
    return {**more, "function": {"arguments": arguments, **({"name": name} if name else {})}}


def streaming(*deltas: str) -> Odd:
    return Odd(sse(*deltas), "text/event-stream")


def whole(message: dict[str, Any], finish: str = "tool_calls", **more: Any) -> Odd:
    choice = {"index": 0, "finish_reason": finish, "message": {"role": "assistant", **message}}
    answer = {"id": "x", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], **more}
    return Odd(json.dumps(answer).encode())


def read(event: Event) -> Any:
    """Arguments as text, which LiteLLM makes of objects, and nothing of what is not there."""
    if isinstance(event, Reply):
        return "end"
    if not isinstance(event, CallPiece):
        return event
    sent = event.arguments
    return CallPiece(event.index or 0, event.id, event.name, json.dumps(sent) if isinstance(sent, dict) else sent or "")


def deployment(upstream: Scripted, model: str, **more: Any) -> list[dict[str, Any]]:
    params = {"model": f"openai/{model}", "api_base": upstream.api_base, "api_key": "n"}
    return [{"model_name": "it", "litellm_params": params, **more}]


async def by(lane: str, upstream: Scripted, model: str, *, stream: bool, request: ChatRequest = ASKED) -> list[Event]:
    router = Router(model_list=deployment(upstream, model), disable_cooldowns=True)
    lean = LeanLane(lambda: router, RouterLane(lambda: router), Reporting(), lambda: {"it": lane})
    try:
        return await heard(lean, Call("it", request, 20), stream=stream)
    finally:
        await lean.close()


FINISH = delta({}, "tool_calls")
STREAMS: dict[str, tuple[list[str], list[Event]]] = {
    "parallel calls, interleaved": (
        [
            delta({"tool_calls": [called("", index=0, id="a", type="function", name="read")]}),
            delta({"tool_calls": [called("", index=1, id="b", type="function", name="write")]}),
            delta({"tool_calls": [called('{"x"', index=0), called('{"y"', index=1)]}),
            delta({"tool_calls": [called(":1}", index=1)]}),
            delta({"tool_calls": [called(":2}", index=0)]}),
            FINISH,
        ],
        [
            CallPiece(0, "a", "read", ""),
            CallPiece(1, "b", "write", ""),
            CallPiece(0, None, None, '{"x"'),
            CallPiece(1, None, None, '{"y"'),
            CallPiece(1, None, None, ":1}"),
            CallPiece(0, None, None, ":2}"),
        ],
    ),
    "a thought, a text and a call in one piece": (
        [
            delta(
                {
                    "tool_calls": [called("{}", index=0, id="a", type="function", name="read")],
                    "content": "I read.",
                    "reasoning_content": "Hm.",
                }
            ),
            FINISH,
        ],
        [Thought("Hm."), Text("I read."), CallPiece(0, "a", "read", "{}")],
    ),
    "all of it in the last piece": (
        [
            delta({"reasoning": "Hm."}),
            delta(
                {"content": "I read.", "tool_calls": [called("{}", index=0, id="a", type="function", name="read")]},
                "tool_calls",
            ),
        ],
        [Thought("Hm."), Text("I read."), CallPiece(0, "a", "read", "{}")],
    ),
    "arguments that are an object, or nothing": (
        [
            delta({"tool_calls": [called({"a": [1]}, index=0, id="a", type="function", name="read")]}),
            delta({"tool_calls": [called(None, index=1, id="b", type="function", name="write")]}),
            FINISH,
        ],
        [CallPiece(0, "a", "read", '{"a": [1]}'), CallPiece(1, "b", "write", "")],
    ),
    "neither index nor id": (
        [delta({"tool_calls": [called("{}", name="read")]}), FINISH],
        [CallPiece(0, None, "read", "{}")],
    ),
    "a function, as before there were tools": (
        [
            delta({"function_call": {"name": "read", "arguments": '{"a"'}}),
            delta({"function_call": {"arguments": ":1}"}}),
            delta({}, "function_call"),
        ],
        [CallPiece(0, None, "read", '{"a"'), CallPiece(0, None, None, ":1}")],
    ),
    "thoughts under both names, which are no text": (
        [delta({"reasoning": "Let me "}), delta({"reasoning_content": "see.", "content": ""}), delta({}, "length")],
        [Thought("Let me "), Thought("see.")],
    ),
}


@pytest.mark.parametrize("provider", ["openai", "hosted_vllm"])
@pytest.mark.parametrize("stream", STREAMS)
async def test_both_lanes_say_each_piece_as_it_came(stream: str, provider: str) -> None:
    sent, expected = STREAMS[stream]
    for lane in LANES:
        events = await told(streaming(*sent), stream=True, forced=lane, model=f"{provider}/m", request=ASKED)
        assert [read(event) for event in events] == [*expected, "end"]
        (*_, end) = events
        assert isinstance(end, Reply)
        assert (end.text, end.thoughts, end.calls) == ("", "", ())
        assert end.reasoned == any(isinstance(event, Thought) for event in expected)


WHOLES: dict[str, tuple[dict[str, Any], Reply]] = {
    "calls and no content": (
        {
            "content": None,
            "tool_calls": [
                {"id": "a", "type": "function", "function": {"name": "read", "arguments": '{"x": 1}'}},
                {"id": "b", "type": "function", "function": {"name": "write", "arguments": {"y": 2}}},
            ],
        },
        Reply("", calls=(CallPiece(0, "a", "read", '{"x": 1}'), CallPiece(1, "b", "write", '{"y": 2}'))),
    ),
    "a thought, a text and a call": (
        {
            "content": "I read.",
            "reasoning": "Hm.",
            "tool_calls": [{"id": "a", "type": "function", "function": {"name": "read", "arguments": None}}],
        },
        Reply("I read.", thoughts="Hm.", reasoned=True, calls=(CallPiece(0, "a", "read", ""),)),
    ),
    "a thought in the text": (
        {"content": "<think>Hm.</think>Yes."},
        Reply("Yes.", thoughts="Hm.", reasoned=True),
    ),
    "a function, as before there were tools": (
        {"content": None, "function_call": {"name": "read", "arguments": "{}"}},
        Reply("", calls=(CallPiece(0, None, "read", "{}"),)),
    ),
}


@pytest.mark.parametrize("provider", ["openai", "hosted_vllm"])
@pytest.mark.parametrize("message", WHOLES)
async def test_both_lanes_read_a_whole_answer_alike(message: str, provider: str) -> None:
    sent, expected = WHOLES[message]
    for lane in LANES:
        (reply,) = await told(whole(sent), stream=False, forced=lane, model=f"{provider}/m", request=ASKED)
        assert isinstance(reply, Reply)
        assert (reply.text, reply.thoughts, reply.reasoned) == (expected.text, expected.thoughts, expected.reasoned)
        assert tuple(read(call) for call in reply.calls) == expected.calls
        assert reply.finish_reason in {"tool_calls", "function_call", "stop"}


async def test_calls_without_ids_in_a_whole_answer_are_told_apart_by_their_places() -> None:
    calls = [{"type": "function", "function": {"name": name, "arguments": "{}"}} for name in ("read", "read")]
    for lane in LANES:
        (reply,) = await told(whole({"content": None, "tool_calls": calls}), stream=False, forced=lane)
        assert isinstance(reply, Reply)
        assert [call.index for call in reply.calls] == [0, 1]


@pytest.mark.parametrize("calls", [[None], ["read"], 5, {"a": 1}])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_calls_that_are_none_call_nothing(calls: Any, stream: bool) -> None:
    odd = streaming(delta({"tool_calls": calls}), FINISH) if stream else whole({"content": None, "tool_calls": calls})
    try:
        events = await told(odd, stream=stream)
    except UpstreamError as error:
        said: set[str | None] = {error.kind}
    else:
        found = [call for event in events for call in (event.calls if isinstance(event, Reply) else [event])]
        said = {call.name for call in found if isinstance(call, CallPiece)}
    assert said in ({"bad_response"}, {None})


DETAILS = [
    (
        {"prompt_tokens_details": {"cached_tokens": 4}, "completion_tokens_details": {"reasoning_tokens": 3}},
        (4, None, 3),
    ),
    ({"prompt_cache_hit_tokens": 6, "prompt_cache_miss_tokens": 4}, (6, None, None)),
    ({"cache_read_input_tokens": 6, "cache_creation_input_tokens": 2}, (6, 2, None)),
    ({"prompt_tokens_details": {"cached_tokens": 0}, "completion_tokens_details": None}, (None, None, None)),
    ({}, (None, None, None)),
]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(("said", "expected"), DETAILS)
async def test_both_lanes_know_what_was_cached_and_thought(
    said: dict[str, Any], expected: tuple[int | None, ...], stream: bool
) -> None:
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15, **said}
    last = json.dumps({"id": "x", "object": "chat.completion.chunk", "created": 1, "choices": [], "usage": usage})
    odd = (
        streaming(delta({"content": "Hi"}), delta({}, "stop"), last)
        if stream
        else whole({"content": "Hi"}, usage=usage)
    )
    for lane in LANES:
        (*_, end) = await told(odd, stream=stream, forced=lane)
        assert isinstance(end, Reply)
        assert (end.prompt_tokens, end.completion_tokens) == (10, 5)
        assert (end.cached_tokens, end.cache_write_tokens, end.reasoning_tokens) == expected


@pytest.mark.parametrize("odd", ["4", 4, [4], {"cached_tokens": "4"}, {"cached_tokens": -4}, {"cached_tokens": 4.5}])
async def test_odd_counts_are_not_known(odd: object) -> None:
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15, "prompt_tokens_details": odd}
    (reply,) = await told(whole({"content": "Hi"}, usage=usage), stream=False)
    assert isinstance(reply, Reply)
    assert (reply.text, reply.cached_tokens) == ("Hi", None)


ANTHROPIC_HEAD: dict[str, Any] = {
    "id": "m1", "type": "message", "role": "assistant", "model": "c", "content": [], "stop_reason": None,
    "usage": {"input_tokens": 10, "output_tokens": 1, "cache_read_input_tokens": 7, "cache_creation_input_tokens": 2},
}  # fmt: skip
ANTHROPIC_BLOCKS: list[dict[str, Any]] = [
    {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"},
    {"type": "text", "text": "I read."},
    {"type": "tool_use", "id": "toolu_1", "name": "dir_read", "input": {"path": "a"}},
    {"type": "tool_use", "id": "toolu_2", "name": "write", "input": {}},
]
ANTHROPIC_WHOLE = ANTHROPIC_HEAD | {"content": ANTHROPIC_BLOCKS, "stop_reason": "tool_use"}
ANTHROPIC_EVENTS: list[dict[str, Any]] = [
    {"type": "message_start", "message": ANTHROPIC_HEAD},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": "", "signature": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "Hm."}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "c2ln"}},
    {"type": "content_block_stop", "index": 0},
    {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "I read."}},
    {"type": "content_block_stop", "index": 1},
    {"type": "content_block_start", "index": 2, "content_block": {**ANTHROPIC_BLOCKS[2], "input": {}}},
    {"type": "content_block_delta", "index": 2, "delta": {"type": "input_json_delta", "partial_json": '{"path": '}},
    {"type": "content_block_delta", "index": 2, "delta": {"type": "input_json_delta", "partial_json": '"a"}'}},
    {"type": "content_block_stop", "index": 2},
    {"type": "content_block_start", "index": 3, "content_block": ANTHROPIC_BLOCKS[3]},
    {"type": "content_block_stop", "index": 3},
    {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 5}},
    {"type": "message_stop"},
]
DIRS = ChatRequest(
    ASKED.messages,
    {"tools": [{**TOOLS[0], "function": {**TOOLS[0]["function"], "name": "dir/read"}}, TOOLS[1]], "max_tokens": 99},
)


async def test_both_lanes_hear_what_claude_thinks_says_and_calls() -> None:
    events = "".join(f"event: {e['type']}\ndata: {json.dumps(e)}\n\n" for e in ANTHROPIC_EVENTS)
    odd = Odd(events.encode(), "text/event-stream")
    for lane in LANES:
        heard = await told(odd, stream=True, forced=lane, model="anthropic/claude-sonnet-4-5", request=DIRS)
        said = [read(event) for event in heard]
        # That nothing is an empty object, LiteLLM's parser says and its router does not.
        assert [event for event in said if event != CallPiece(1, None, None, "{}")] == [
            Thought("Hm."),
            Text("I read."),
            # By the name that its caller knows, which Anthropic would have refused.
            CallPiece(0, "toolu_1", "dir/read", ""),
            CallPiece(0, None, None, '{"path": '),
            CallPiece(0, None, None, '"a"}'),
            CallPiece(1, "toolu_2", "write", ""),
            "end",
        ]
        (*_, end) = heard
        assert isinstance(end, Reply)
        assert (end.finish_reason, end.prompt_tokens, end.completion_tokens) == ("tool_calls", 19, 5)
        assert (end.cached_tokens, end.cache_write_tokens) == (7, 2)


async def test_both_lanes_read_a_whole_answer_of_claude_s() -> None:
    odd = Odd(json.dumps(ANTHROPIC_WHOLE).encode())
    for lane in LANES:
        (reply,) = await told(odd, stream=False, forced=lane, model="anthropic/claude-sonnet-4-5", request=DIRS)
        assert isinstance(reply, Reply)
        assert (reply.text, reply.thoughts, reply.finish_reason) == ("I read.", "Hm.", "tool_calls")
        assert [(c.index, c.id, c.name) for c in reply.calls] == [(0, "toolu_1", "dir/read"), (1, "toolu_2", "write")]
        assert [json.loads(str(c.arguments)) for c in reply.calls] == [{"path": "a"}, {}]
        assert (reply.cached_tokens, reply.cache_write_tokens) == (7, 2)


@pytest.mark.parametrize("lane", LANES)
async def test_the_scripted_models_think_say_and_call(upstream: Scripted, lane: str) -> None:
    model = "tools2-think-aloud-cached4-thought3-a"
    (*said, end) = await by(lane, upstream, model, stream=True)
    assert [type(event) for event in said] == [Thought, Text, Text, Text, *[CallPiece] * 6]
    assert isinstance(end, Reply)
    assert (end.finish_reason, end.cached_tokens, end.reasoning_tokens) == ("tool_calls", 4, 3)
    (reply,) = await by(lane, upstream, model, stream=False)
    assert isinstance(reply, Reply)
    assert (reply.text, reply.thoughts) == (f"I am {model}.", REASONING)
    assert [call.name for call in reply.calls] == ["read", "write"]


@pytest.mark.parametrize("lane", LANES)
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("model", ["notools-a", "badschema-a"])
async def test_a_refusal_of_tools_is_told_from_the_caller_s_mistakes(
    upstream: Scripted, model: str, stream: bool, lane: str
) -> None:
    with pytest.raises(UpstreamError) as raised:
        await by(lane, upstream, model, stream=stream)
    assert (raised.value.kind, raised.value.status) == ("tools", 400)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_a_refusal_of_tools_does_not_let_litellm_s_router_rest_the_deployment(
    upstream: Scripted, stream: bool
) -> None:
    router = Router(model_list=deployment(upstream, "notools404-a") + deployment(upstream, "notools404-b"))
    lean = LeanLane(lambda: router, RouterLane(lambda: router), Reporting(), dict)
    for _ in range(6):
        with pytest.raises(UpstreamError) as raised:
            await heard(lean, Call("it", ASKED, 20), stream=stream)
        assert (raised.value.kind, raised.value.status) == ("tools", 404)
    assert await heard(lean, Call("it", ChatRequest(ASKED.messages, {}), 20), stream=stream)
    await lean.close()


@pytest.mark.parametrize("lane", LANES)
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_an_error_inside_of_a_200_is_a_failure(stream: bool, lane: str) -> None:
    said = json.dumps({"error": {"message": "The provider failed after accepting it.", "code": 502}})
    odd = streaming(said) if stream else Odd(said.encode())
    with pytest.raises(UpstreamError) as raised:
        await told(odd, stream=stream, forced=lane, request=ASKED)
    assert raised.value.status >= 500


class Hearing(CustomLogger):
    """Of one model: LiteLLM reports what other tests called when it comes to it."""

    def __init__(self, model: str) -> None:
        super().__init__()
        self.model = model
        self.heard: list[tuple[Any, float]] = []

    async def async_log_success_event(self, kwargs: Any, response_obj: Any, start_time: Any, end_time: Any) -> None:
        if kwargs["model"] == self.model:
            self.heard.append((response_obj.choices[0].message, kwargs["response_cost"]))


@pytest.mark.parametrize("lane", LANES)
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_a_callback_hears_once_of_the_calls_and_what_they_cost(
    upstream: Scripted, monkeypatch: pytest.MonkeyPatch, stream: bool, lane: str
) -> None:
    model = f"tools2-think-aloud-{lane}-{stream}"
    hearing = Hearing(model)
    monkeypatch.setattr(litellm, "callbacks", [hearing])
    monkeypatch.setattr(litellm, "_async_success_callback", [hearing])
    prices = {"input_cost_per_token": 1e-6, "output_cost_per_token": 2e-6}
    router = Router(model_list=deployment(upstream, model, model_info=prices))
    reporting = Reporting()
    lean = LeanLane(lambda: router, RouterLane(lambda: router), reporting, lambda: {"it": lane})
    (*_, end) = await heard(lean, Call("it", ASKED, 20), stream=stream)
    await reporting.close()
    await lean.close()
    for _ in range(200):
        if hearing.heard:
            break
        await asyncio.sleep(0.05)
    ((message, cost),) = hearing.heard
    assert isinstance(end, Reply)
    assert end.cost == pytest.approx(cost) == pytest.approx(20e-6)
    assert (message.content, message.reasoning_content) == (f"I am {model}.", REASONING)
    assert [(call.function.name, json.loads(call.function.arguments)["n"]) for call in message.tool_calls] == [
        ("read", 0),
        ("write", 1),
    ]
