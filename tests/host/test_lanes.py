"""Both lanes to the models send the same bytes and say the same of what comes back."""

import asyncio
import json
import socket
from base64 import b64encode
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import litellm
import pytest
from aiohttp import web
from litellm import Router
from litellm.integrations.custom_logger import CustomLogger
from litellm.types.utils import Delta, ModelResponseStream, StreamingChoices
from litellm.utils import get_optional_params

from bench_proxy.errors import UpstreamError
from bench_proxy.formats.request import ChatRequest
from bench_proxy.host import lean as lean_lane
from bench_proxy.host.answer import Ending, _in_openai_form
from bench_proxy.host.lanes import PROVEN
from bench_proxy.host.lean import LeanLane
from bench_proxy.host.proxies import Proxies
from bench_proxy.host.reporting import Reporting
from bench_proxy.host.request import LONGEST_REMEMBERED, LONGEST_SMALL, request_for, target_of
from bench_proxy.host.upstream import RouterLane, model_settings
from bench_proxy.upstream import Call, Event, Reply, Text, Upstream
from tests.host.odd import Odd, heard, sse, told
from tests.upstream import Upstream as Scripted

NOT_OURS = ("host", "content-length", "user-agent", "accept-encoding", "connection", "x-stainless")
"""Headers that the HTTP client writes, not the provider's translation."""

USAGE = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}

OPENAI_WHOLE = {
    "id": "x",
    "object": "chat.completion",
    "created": 1,
    "model": "m",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hello"}, "finish_reason": "stop"}],
    "usage": USAGE,
    "service_tier": "default",  # LiteLLM's reading of Groq fails without it
}
OPENAI_DELTAS: list[dict[str, Any]] = [
    {"choices": [{"index": 0, "delta": {"role": "assistant", "content": "Hel"}, "finish_reason": None}]},
    {"choices": [{"index": 0, "delta": {"content": "lo"}, "finish_reason": None}]},
    {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
    {"choices": [], "usage": USAGE},
]
ANTHROPIC_WHOLE = {
    "id": "m1",
    "type": "message",
    "role": "assistant",
    "model": "c",
    "content": [{"type": "text", "text": "Hello"}],
    "stop_reason": "end_turn",
    "usage": {"input_tokens": 10, "output_tokens": 5},
}
ANTHROPIC_EVENTS: list[dict[str, Any]] = [
    {"type": "message_start", "message": {**ANTHROPIC_WHOLE, "content": [], "stop_reason": None}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hel"}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "lo"}},
    {"type": "content_block_stop", "index": 0},
    {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 5}},
    {"type": "message_stop"},
]


@dataclass
class Wire:
    """A server that answers in OpenAI's or Anthropic's form and keeps what reached it."""

    url: str = ""
    seen: list[tuple[str, dict[str, str], dict[str, Any]]] = field(default_factory=list)

    async def answer(self, request: web.Request) -> web.Response:
        body = json.loads(await request.read())
        headers = {k.lower(): v for k, v in request.headers.items() if not k.lower().startswith(NOT_OURS)}
        self.seen.append((request.path_qs, headers, body))
        if request.path.endswith("/v1/messages"):
            events = [f"event: {e['type']}\ndata: {json.dumps(e)}\n\n" for e in ANTHROPIC_EVENTS]
            return self._stream(events) if body.get("stream") else web.json_response(ANTHROPIC_WHOLE)
        if not body.get("stream"):
            return web.json_response(OPENAI_WHOLE)
        head = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m"}
        return self._stream([*(f"data: {json.dumps(head | d)}\n\n" for d in OPENAI_DELTAS), "data: [DONE]\n\n"])

    def _stream(self, events: list[str]) -> web.Response:
        return web.Response(body="".join(events).encode(), content_type="text/event-stream")


@pytest.fixture
async def wire() -> AsyncIterator[Wire]:
    server = Wire()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", server.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    server.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield server
    await runner.cleanup()


MODELS = {
    "anthropic": ("anthropic/claude-sonnet-4-5", ""),
    "azure": ("azure/a-deployment", ""),
    "cerebras": ("cerebras/llama3.1-8b", "/v1"),
    "deepinfra": ("deepinfra/meta/llama", "/v1"),
    "deepseek": ("deepseek/deepseek-chat", "/beta"),
    "fireworks_ai": ("fireworks_ai/some-model", "/v1"),
    "groq": ("groq/llama-3.1-8b-instant", "/openai/v1"),
    "hosted_vllm": ("hosted_vllm/qwen", "/v1"),
    "mistral": ("mistral/mistral-large-latest", "/v1"),
    "nvidia_nim": ("nvidia_nim/meta/llama3", "/v1"),
    "openai": ("openai/gpt-4o", "/v1"),
    "openai, a reasoning model": ("openai/o3", "/v1"),
    "openai, a model it does not know": ("openai/mine", "/v1"),
    "openrouter": ("openrouter/vendor/model", "/api/v1"),
    "perplexity": ("perplexity/sonar", ""),
    "together_ai": ("together_ai/vendor/model", "/v1"),
    "xai": ("xai/grok-3", "/v1"),
}

MESSAGES = [
    {"role": "system", "content": "Be brief."},
    {
        "role": "user",
        "content": [
            {"type": "text", "text": "What is this?"},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}},
        ],
    },
    {"role": "assistant", "content": "A picture."},
    {"role": "user", "content": "Of what? \u2028 \U0001f600"},
]
SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": False, "required": ["a"]}
EVERY_SETTING = {
    "temperature": 0.2,
    "top_p": 0.9,
    "max_tokens": 50,
    "stop": ["x"],
    "seed": 3,
    "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA, "strict": True}},
    "logit_bias": {"5": 1},
    "reasoning_effort": "low",
    "presence_penalty": 0.1,
    "frequency_penalty": 0.1,
    "user": "u1",
    "top_k": 7,
    "min_p": 0.1,
}


def text_of(events: list[Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, Text | Reply))


def test_every_provider_that_takes_the_lean_lane_is_compared_here() -> None:
    assert {name.partition(",")[0] for name in MODELS} == PROVEN


DEVELOPERS = [{"role": "developer", "content": "Be brief."}, *MESSAGES[1:]]


@pytest.mark.parametrize(
    ("messages", "settings"),
    [(MESSAGES, {}), (MESSAGES, EVERY_SETTING), (DEVELOPERS, {})],
    ids=["plain", "every setting", "a developer's message"],
)
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("provider", MODELS)
async def test_both_lanes_send_the_same_request_and_read_the_same_answer(
    wire: Wire, provider: str, stream: bool, messages: list[dict[str, Any]], settings: dict[str, Any]
) -> None:
    model, path = MODELS[provider]
    params: dict[str, Any] = {"model": model, "api_base": wire.url + path, "api_key": "sk-of-the-deployment"}
    if provider == "azure":
        params["api_version"] = "2024-10-21"
    router = Router(model_list=[{"model_name": "it", "litellm_params": params}])
    by_router = RouterLane(lambda: router)
    lean = LeanLane(lambda: router, by_router, Reporting(), dict)
    assert lean.why_router("it") == ""
    call = Call("it", ChatRequest(messages, settings), timeout=20)
    try:
        of_router, of_lean = [await heard(lane, call, stream=stream) for lane in (by_router, lean)]
    finally:
        await lean.close()
    assert of_lean == of_router
    sent_by_router, sent_by_lean = wire.seen
    assert sent_by_lean == sent_by_router
    assert text_of(of_lean) == "Hello"


@pytest.mark.parametrize(
    ("params", "taken"),
    [
        ({"model": "openai/gpt-4o", "api_base": "https://api.openai.com/v1"}, False),
        ({"model": "openai/gpt-4o"}, False),
        ({"model": "azure/mine", "api_base": "https://x.example"}, False),
        ({"model": "openai/mine", "api_base": "http://127.0.0.1:8000/v1"}, True),
        ({"model": "hosted_vllm/mine", "api_base": "http://127.0.0.1:8000/v1"}, True),
    ],
)
def test_openai_is_not_sent_what_it_refuses(
    params: dict[str, Any], taken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OPENAI_BASE_URL", "OPENAI_API_BASE"):
        monkeypatch.delenv(name, raising=False)
    kept = model_settings({"top_k": 7, "temperature": 0}, lambda: [{"litellm_params": params}])
    assert kept == ({"top_k": 7, "temperature": 0} if taken else {"temperature": 0})


class Unclosed:
    """Says all of its stream, and then hangs, or drops the connection without the last chunk of HTTP."""

    def __init__(self, *events: str, drops: bool) -> None:
        self._events = events
        self._drops = drops
        self._left = asyncio.Event()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for event in self._events:
            await response.write(f"data: {event}\n\n".encode())
        if self._drops:
            assert request.transport is not None
            request.transport.close()
        else:
            await self._left.wait()
        return response

    def release(self) -> None:
        self._left.set()


@pytest.mark.parametrize(
    ("provider", "done", "drops"),
    [
        # hosted_vllm's answer is waited for in vain by LiteLLM's router when its connection stays open.
        ("openai", True, False),
        *((provider, done, True) for provider in ("openai", "hosted_vllm") for done in (True, False)),
    ],
)
async def test_both_lanes_agree_on_the_end_of_a_stream_whose_connection_does_not_end(
    provider: str, done: bool, drops: bool
) -> None:
    server = Unclosed(delta("Hello"), END, *(["[DONE]"] if done else []), drops=drops)
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", server.answer)
    runner = web.AppRunner(app, shutdown_timeout=1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    params = {
        "model": f"{provider}/m",
        "api_base": f"http://127.0.0.1:{runner.addresses[0][1]}/v1",
        "api_key": "n",
    }
    router = Router(model_list=[{"model_name": "it", "litellm_params": params}], disable_cooldowns=True)
    by_router = RouterLane(lambda: router)
    lean = LeanLane(lambda: router, by_router, Reporting(), dict)
    call = Call("it", ChatRequest([{"role": "user", "content": "Hi"}], {}), 60)
    outcomes = []
    try:
        for lane in (by_router, lean):
            try:
                events = await heard(lane, call, stream=True)
                outcomes.append(text_of(events))
            except UpstreamError as error:
                outcomes.append(error.kind)
    finally:
        await lean.close()
        server.release()
        await runner.cleanup()
    assert outcomes[0] == outcomes[1]
    assert not done or outcomes[0] == "Hello"


def settings_with(*names: str) -> dict[str, Any]:
    """A tool whose schema has these properties in this order."""
    schema = {"type": "object", "properties": {n: {"type": "string"} for n in names}, "additionalProperties": False}
    return {"tools": [{"type": "function", "function": {"name": "f", "strict": True, "parameters": schema}}]}


def test_what_is_remembered_of_settings_is_nobody_else_s() -> None:
    targets = {
        provider: target_of(
            Router(
                model_list=[{"model_name": "m", "litellm_params": {"model": f"{provider}/m", "api_key": "n"}}]
            ).get_model_list()[0]
        )
        for provider in ("openai", "xai")
    }
    settings = settings_with("a", "b")

    def sent(provider: str, settings: dict[str, Any]) -> Any:
        request = request_for(targets[provider], Call("m", ChatRequest(MESSAGES, settings), 20), stream=False)
        return json.loads(request.body)["tools"]

    first = sent("openai", settings)
    sent("xai", settings)  # which has no `strict`, and LiteLLM takes it out where it finds it
    assert sent("openai", settings) == sent("openai", settings_with("a", "b")) == first == settings["tools"]
    other = sent("openai", settings_with("b", "a"))[0]["function"]["parameters"]["properties"]
    assert [*other] == ["b", "a"]


def test_an_agent_s_tools_are_translated_once_and_stay_nobody_else_s(monkeypatch: pytest.MonkeyPatch) -> None:
    translated: list[int] = []

    def counted(**settings: Any) -> Any:
        translated.append(len(settings["tools"]))
        return get_optional_params(**settings)

    monkeypatch.setattr("bench_proxy.host.request.get_optional_params", counted)
    deployment = {"model_name": "m", "litellm_params": {"model": "openai/m", "api_key": "n"}}
    target = target_of(Router(model_list=[deployment]).get_model_list()[0])

    def sent(settings: dict[str, Any], *, stream: bool = True) -> Any:
        request = request_for(target, Call("m", ChatRequest(MESSAGES, settings), 20), stream=stream)
        request.params["tools"].clear()
        return json.loads(request.body)["tools"]

    agents = [settings_with(*(f"{agent}_{n}" for n in range(200))) for agent in range(12)]
    assert all(len(json.dumps(settings)) > LONGEST_SMALL for settings in agents)
    for settings in agents:
        assert [sent(settings) for _ in range(3)] == [settings["tools"]] * 3
    assert len(translated) == len(agents)
    assert len(target.large) < len(agents)
    # Those that were asked for longest ago are forgotten, and said anew.
    assert sent(agents[-1]) == agents[-1]["tools"]
    assert len(translated) == len(agents)
    assert sent(agents[0]) == agents[0]["tools"]
    assert len(translated) == len(agents) + 1
    # Whether it is streamed is part of what is asked.
    sent(agents[0], stream=False)
    assert len(translated) == len(agents) + 2


def test_settings_that_no_agent_has_are_not_remembered() -> None:
    deployment = {"model_name": "m", "litellm_params": {"model": "openai/m", "api_key": "n"}}
    target = target_of(Router(model_list=[deployment]).get_model_list()[0])
    settings = {"stop": ["u" * LONGEST_REMEMBERED]}
    for _ in range(2):
        request = request_for(target, Call("m", ChatRequest(MESSAGES, settings), 20), stream=False)
        assert json.loads(request.body)["stop"] == settings["stop"]
    assert (target.small, target.large) == ({}, {})


END = '{"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}'


def delta(content: str) -> str:
    """`content` stands in the JSON as it is, escapes and all."""
    return f'{{"choices": [{{"index": 0, "delta": {{"content": "{content}"}}, "finish_reason": null}}]}}'


@pytest.mark.parametrize(
    ("pieces", "text"),
    [(("a\\ud83d", "\\ude00 b"), "a\ud83d\ude00 b"), (("a\udcff b",), "a\ufffd b")],
    ids=["a character in two halves", "bytes that are no UTF-8"],
)
async def test_a_stream_with_broken_characters_is_read_on(pieces: tuple[str, ...], text: str) -> None:
    odd = Odd(sse(*(delta(piece) for piece in pieces), END), "text/event-stream")
    assert text_of(await told(odd, stream=True)) == text


def whole(message: dict[str, Any]) -> Odd:
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", **message}}
    return Odd(json.dumps({"id": "x", "object": "chat.completion", "created": 1, "choices": [choice]}).encode())


async def by_both(odd: Odd, *, stream: bool) -> tuple[str, bool]:
    """What both lanes read, which has to be the same, and whether they saw that the model thought aloud."""
    read = [await told(odd, stream=stream, forced=forced) for forced in ("router", "auto")]
    said = [text_of(events) for events in read]
    thought = [events[-1].reasoned for events in read if isinstance(events[-1], Reply)]
    assert said[0] == said[1]
    assert thought[0] == thought[1]
    return said[0], thought[0]


@pytest.mark.parametrize(
    ("message", "text", "thought"),
    [
        ({"content": None, "refusal": "I cannot."}, "I cannot.", False),
        ({"content": "<think>Hm.</think>Yes."}, "Yes.", True),
        ({"content": "Say <think> aloud."}, "Say <think> aloud.", False),
    ],
)
async def test_both_lanes_read_refusals_and_thoughts_alike(message: dict[str, Any], text: str, thought: bool) -> None:
    assert await by_both(whole(message), stream=False) == (text, thought)


async def test_a_refusal_that_is_streamed_is_text() -> None:
    pieces = [
        json.dumps({"choices": [{"index": 0, "delta": {"refusal": text}, "finish_reason": None}]})
        for text in ("I ", "cannot.")
    ]
    read = await told(Odd(sse(*pieces, END), "text/event-stream"), stream=True)
    assert text_of(read) == "I cannot."


async def test_of_several_choices_that_nobody_asked_for_the_first_is_read() -> None:
    other = json.dumps({"choices": [{"index": 1, "delta": {"content": "SECOND"}, "finish_reason": None}]})
    read = await told(Odd(sse(delta("Hello"), other, END), "text/event-stream"), stream=True)
    assert text_of(read) == "Hello"


async def test_a_whole_answer_with_half_a_character_is_read() -> None:
    (reply,) = await told(Odd(json.dumps(OPENAI_WHOLE).replace("Hello", "a\\ud83d b").encode()), stream=False)
    assert reply.text == "a\ud83d b"


NO_ANSWERS = ["[1]", "null", "5", "{}", '{"choices": []}', '{"choices": [null]}', '{"choices": 5}', "<<<", ""]


@pytest.fixture(params=[False, True], ids=["nobody listens", "a callback listens"])
def listening(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param:
        monkeypatch.setattr(litellm, "_async_success_callback", [CustomLogger()])


@pytest.mark.usefixtures("listening")
@pytest.mark.parametrize("body", NO_ANSWERS)
async def test_what_is_no_completion_is_a_bad_response(body: str) -> None:
    with pytest.raises(UpstreamError) as raised:
        await told(Odd(body.encode()), stream=False)
    assert (raised.value.kind, raised.value.status) == ("bad_response", 502)


@pytest.mark.usefixtures("listening")
@pytest.mark.parametrize(
    ("message", "usage"),
    [
        ({"content": 5}, {}),
        ({"content": ["Hi"]}, {}),
        ({"content": "Hi", "reasoning_content": 5}, {}),
        ({"content": "Hi"}, {"prompt_tokens": 1.5}),
        ({"content": "Hi"}, "many"),
        ({"content": "Hi"}, [1]),
        ({}, {}),
    ],
)
async def test_an_odd_answer_is_the_same_whoever_listens(message: dict[str, Any], usage: object) -> None:
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", **message}}
    (reply,) = await told(Odd(json.dumps({"choices": [choice], "usage": usage}).encode()), stream=False)
    said = message.get("content")
    assert isinstance(reply, Reply)
    assert reply.sound().text == (said if isinstance(said, str) else "")


@pytest.mark.parametrize(
    "event",
    [
        "[1]",
        "null",
        '{"choices": [null]}',
        "<<<",
        END.replace('"stop"', "[5]"),
    ],
)
async def test_a_stream_that_is_no_completion_is_a_bad_response(event: str) -> None:
    with pytest.raises(UpstreamError) as raised:
        await told(Odd(sse(delta("x"), event), "text/event-stream"), stream=True)
    assert (raised.value.kind, raised.value.status) == ("bad_response", 502)


@pytest.mark.parametrize(
    "usage",
    [
        "many",
        [1],
        5,
        {"prompt_tokens": "a", "completion_tokens": 1},
        {"prompt_tokens": 1.5, "completion_tokens": 1},
        {"prompt_tokens": 1, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": "x"}},
    ],
)
async def test_an_answer_that_was_streamed_does_not_fail_by_what_it_says_of_its_tokens(usage: object) -> None:
    odd = Odd(sse(delta("Hello"), END, json.dumps({"choices": [], "usage": usage})), "text/event-stream")
    events = await told(odd, stream=True)
    assert text_of(events) == "Hello"
    assert isinstance(events[-1], Reply)


async def test_arguments_with_half_a_character_do_not_fail_an_answer_that_was_streamed() -> None:
    call = {"index": 0, "id": "c", "function": {"name": "look", "arguments": {"q": "\ud83d"}}}
    chunk = json.dumps({"choices": [{"index": 0, "delta": {"tool_calls": [call]}, "finish_reason": None}]})
    events = await told(Odd(sse(chunk, END), "text/event-stream"), stream=True)
    assert isinstance(events[-1], Reply)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_redirect_is_said_to_be_one(stream: bool) -> None:
    with pytest.raises(UpstreamError, match="redirect"):
        await told(Odd(b"", status=302, headers={"Location": "/elsewhere"}), stream=stream)


async def test_a_header_that_is_no_ascii_does_not_hide_an_error() -> None:
    with pytest.raises(UpstreamError) as raised:
        await told(Odd(b"{}", status=429, headers={"X-Region": "Z\u00fcrich", "Retry-After": "7"}), stream=False)
    assert (raised.value.kind, raised.value.retry_after) == ("rate_limit", 7)


async def test_a_large_error_is_read_at_once() -> None:
    # LiteLLM's search of all of it takes seconds, in which the whole proxy would stand.
    with pytest.raises(UpstreamError, match="broken"):
        await told(Odd(b'{"error": {"message": "broken ' + b"{" * 2_000_000 + b'"}}', status=500), stream=False)


@pytest.fixture
def no_proxy_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


def both_lanes(url: str, **more: Any) -> tuple[Upstream, LeanLane]:
    """The router lane and the lean lane to one deployment at this address."""
    params = {"model": "openai/m", "api_base": url, "api_key": "sk-of-the-deployment"} | more
    router = Router(model_list=[{"model_name": "it", "litellm_params": params}], disable_cooldowns=True)
    by_router = RouterLane(lambda: router)
    return by_router, LeanLane(lambda: router, by_router, Reporting(), dict)


def hello(timeout: float = 20) -> Call:
    return Call("it", ChatRequest([{"role": "user", "content": "Hello"}], {}), timeout)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_a_netrc_file_does_not_stand_in_for_the_deployment_s_key(
    wire: Wire, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, stream: bool
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login u password p\ndefault login u password p\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    _, lean = both_lanes(wire.url + "/v1")
    events = await heard(lean, hello(), stream=stream)
    await lean.close()
    assert text_of(events) == "Hello"
    assert [headers["authorization"] for _, headers, _ in wire.seen] == ["Bearer sk-of-the-deployment"]


@pytest.mark.parametrize("name", ["HTTP_PROXY", "http_proxy", "ALL_PROXY"])
async def test_both_lanes_go_by_the_proxy_that_the_environment_names(
    wire: Wire, monkeypatch: pytest.MonkeyPatch, no_proxy_set: None, name: str
) -> None:
    monkeypatch.setenv(name, wire.url.removeprefix("http://"))
    # A name that nobody resolves: only the proxy can have answered.
    by_router, lean = both_lanes(f"http://{name.replace('_', '-')}.invalid/v1")
    for lane in (by_router, lean):
        assert (await lane.complete(hello())).text == "Hello"
    await lean.close()
    assert len(wire.seen) == 2


async def test_a_proxy_that_wants_a_password_gets_the_one_in_its_address(
    wire: Wire, monkeypatch: pytest.MonkeyPatch, no_proxy_set: None
) -> None:
    monkeypatch.setenv("HTTP_PROXY", wire.url.replace("http://", "http://user:secret@"))
    _, lean = both_lanes("http://password.invalid/v1")
    await lean.complete(hello())
    await lean.close()
    ((_, headers, _),) = wire.seen
    assert headers["proxy-authorization"] == "Basic " + b64encode(b"user:secret").decode()
    assert headers["authorization"] == "Bearer sk-of-the-deployment"


@pytest.mark.parametrize("unused", [{"NO_PROXY": "127.0.0.1"}, {"DISABLE_AIOHTTP_TRUST_ENV": "true"}])
async def test_both_lanes_go_past_a_proxy_that_is_not_for_this_server(
    wire: Wire, monkeypatch: pytest.MonkeyPatch, no_proxy_set: None, unused: dict[str, str]
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    for name, value in unused.items():
        monkeypatch.setenv(name, value)
    by_router, lean = both_lanes(wire.url + "/v1")
    for lane in (by_router, lean):
        assert (await lane.complete(hello())).text == "Hello"
    await lean.close()


async def test_the_environment_is_asked_for_a_proxy_once_for_each_server(
    monkeypatch: pytest.MonkeyPatch, no_proxy_set: None
) -> None:
    proxies = Proxies()
    monkeypatch.setenv("HTTP_PROXY", "one:1")
    assert proxies.of("http://a.invalid/v1/chat") == "http://one:1"
    monkeypatch.setenv("HTTP_PROXY", "two:2")
    assert proxies.of("http://a.invalid:81/v1/models") == "http://one:1"
    assert proxies.of("http://b.invalid/") == "http://two:2"
    assert proxies.of("https://a.invalid/") is None
    assert proxies.of("http://[::1/") is None


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("url", ["http://[::1/v1", "http://\u2024\u2024/v1"], ids=["brackets", "dots"])
async def test_an_address_that_is_none_is_no_misread_answer(stream: bool, url: str) -> None:
    _, lean = both_lanes(url)
    with pytest.raises(UpstreamError) as raised:
        await heard(lean, hello(), stream=stream)
    await lean.close()
    assert raised.value.kind == "connection"


class Hearing(CustomLogger):
    def __init__(self) -> None:
        super().__init__()
        self.heard: list[str] = []

    async def async_log_success_event(self, kwargs: Any, response_obj: Any, start_time: Any, end_time: Any) -> None:
        self.heard.append(kwargs["model"])


async def test_a_callback_hears_of_a_call_on_the_lean_lane_once(
    upstream: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    hearing = Hearing()
    monkeypatch.setattr(litellm, "callbacks", [hearing])
    monkeypatch.setattr(litellm, "_async_success_callback", [hearing])
    params = {"model": "openai/ok-a", "api_base": upstream.api_base, "api_key": "n"}
    router = Router(model_list=[{"model_name": "it", "litellm_params": params}])
    reporting = Reporting()
    lean = LeanLane(lambda: router, RouterLane(lambda: router), reporting, dict)
    await lean.complete(Call("it", ChatRequest([{"role": "user", "content": "Hello"}], {}), 20))
    await reporting.close()
    await lean.close()
    for _ in range(200):
        if hearing.heard:
            break
        await asyncio.sleep(0.05)
    assert hearing.heard == ["ok-a"]


FAILURES = (
    "rate-a",
    "context-a",
    "fail400-a",
    "fail401-a",
    "fail403-a",
    "fail404-a",
    "fail500-a",
    "fail503-a",
    "html-a",
)


@pytest.mark.parametrize("provider", ["openai", "hosted_vllm"])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("model", FAILURES)
async def test_both_lanes_call_a_failure_the_same(upstream: Scripted, model: str, stream: bool, provider: str) -> None:
    params = {"model": f"{provider}/{model}", "api_base": upstream.api_base, "api_key": "none"}
    router = Router(model_list=[{"model_name": "it", "litellm_params": params}], disable_cooldowns=True)
    by_router = RouterLane(lambda: router)
    lean = LeanLane(lambda: router, by_router, Reporting(), dict)
    call = Call("it", ChatRequest([{"role": "user", "content": "Hello"}], {}), timeout=20)
    errors = []
    for lane in (by_router, lean):
        with pytest.raises(UpstreamError) as raised:
            await heard(lane, call, stream=stream)
        errors.append((raised.value.kind, raised.value.status, raised.value.retry_after))
    await lean.close()
    assert errors[0] == errors[1]


@contextmanager
def deaf() -> Iterator[str]:
    """The address of a server that takes no connection and refuses none: as many wait already as may."""
    with ExitStack() as open_sockets:
        server = open_sockets.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(4):
            waiting = open_sockets.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(server.getsockname())
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.parametrize("model", ["openai/m", "hosted_vllm/m", "anthropic/claude-sonnet-4-5"])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_a_server_that_takes_no_connection_is_unreachable_on_both_lanes(
    monkeypatch: pytest.MonkeyPatch, no_proxy_set: None, model: str, stream: bool
) -> None:
    monkeypatch.setattr(lean_lane, "CONNECT_SECONDS", 0.05)
    with deaf() as url:
        by_router, lean = both_lanes(url, model=model)
        for lane in (by_router, lean):
            with pytest.raises(UpstreamError) as raised:
                await heard(lane, hello(timeout=0.5), stream=stream)
            assert (raised.value.kind, raised.value.status) == ("connection", 502)
    await lean.close()


async def test_a_failure_on_the_lean_lane_lets_litellm_s_router_rest_the_deployment(upstream: Scripted) -> None:
    deployments = [
        {
            "model_name": "it",
            "litellm_params": {"model": f"openai/{name}", "api_base": upstream.api_base, "api_key": "n"},
        }
        for name in ("rate-a", "ok-a")
    ]
    router = Router(model_list=deployments, cooldown_time=60)
    lean = LeanLane(lambda: router, RouterLane(lambda: router), Reporting(), dict)
    call = Call("it", ChatRequest([{"role": "user", "content": "Hello"}], {}), timeout=20)
    outcomes = []
    for _ in range(24):
        try:
            outcomes.append((await lean.complete(call)).text)
        except UpstreamError as error:
            outcomes.append(error.kind)
    await lean.close()
    assert outcomes.count("rate_limit") == 1
    assert outcomes[-1] == "I am ok-a."


async def test_a_stream_that_is_left_early_is_closed_at_the_model(upstream: Scripted) -> None:
    params = {"model": "openai/drip-a", "api_base": upstream.api_base, "api_key": "n"}
    router = Router(model_list=[{"model_name": "it", "litellm_params": params}])
    lean = LeanLane(lambda: router, RouterLane(lambda: router), Reporting(), dict)
    upstream.clear()
    async with lean.stream(Call("it", ChatRequest([{"role": "user", "content": "Hello"}], {}), 20)) as events:
        async for _event in events:
            break
    await asyncio.to_thread(upstream.wait_for, lambda calls: any(c.model == "drip-a" and c.hung_up for c in calls))
    await lean.close()


@pytest.mark.parametrize(
    ("params", "why"),
    [
        ({"model": "gemini/gemini-2.5-pro", "api_key": "k"}, "gemini has not been compared on both lanes"),
        ({"model": "openai/x", "api_key": "k", "stream_timeout": 5}, "the deployment sets stream_timeout"),
        ({"model": "openai/x", "api_key": "k", "guardrails": ["g"]}, "the deployment sets guardrails"),
        ({"model": "openai/x"}, "its key is not in the deployment"),
        ({"model": "azure/x", "api_key": "k", "api_version": "preview"}, "its api_version is not a date"),
    ],
)
def test_what_the_lean_lane_cannot_do_faithfully_takes_the_router_lane(params: dict[str, Any], why: str) -> None:
    router = Router(model_list=[{"model_name": "it", "litellm_params": params}])
    lean = LeanLane(lambda: router, RouterLane(lambda: router), Reporting(), dict)
    assert lean.why_router("it") == why


LIMITS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"rpm": 2}, {}),
    ({"tpm": 400}, {}),  # LiteLLM makes 6 of 1000
    ({"max_parallel_requests": 2, "rpm": 9}, {}),
    ({}, {"default_max_parallel_requests": 2}),
]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(("params", "settings"), LIMITS, ids=["rpm", "tpm", "max_parallel_requests", "router"])
async def test_both_lanes_together_have_no_more_calls_in_flight_than_the_deployment_takes(
    upstream: Scripted, params: dict[str, Any], settings: dict[str, Any], stream: bool
) -> None:
    upstream.clear()
    params = {"model": "openai/gate-a", "api_base": upstream.api_base, "api_key": "n", **params}
    router = Router(model_list=[{"model_name": "it", "litellm_params": params}], **settings)
    by_router = RouterLane(lambda: router)
    lean = LeanLane(lambda: router, by_router, Reporting(), dict)
    assert lean.why_router("it") == ""

    async def asked(*lanes: Upstream) -> tuple[int, list[object]]:
        """How many calls were in flight together, and what became of each."""
        upstream.clear()
        calls = [asyncio.create_task(heard(lane, hello(100), stream=stream)) for lane in lanes]
        while len(upstream.calls()) + sum(call.done() for call in calls) < len(calls):  # noqa: ASYNC110  by a thread
            await asyncio.sleep(0.01)
        at_once = len(upstream.calls())
        upstream.release("gate-a", at_once)
        ended = await asyncio.gather(*calls, return_exceptions=True)
        return at_once, [(e.kind, e.status) if isinstance(e, UpstreamError) else type(e) for e in ended]

    expected = (2, [list] * 2 + [("rate_limit", 429)] * 4)
    assert await asked(*[by_router] * 6) == expected
    assert await asked(*[lean] * 6) == expected
    assert (await asked(*[by_router, lean] * 3))[0] == 2
    # Each has given its place back, and nobody rests for having been turned away.
    assert await asked(lean) == (1, [list])
    await lean.close()


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_who_hangs_up_or_fails_gives_the_place_back(upstream: Scripted, stream: bool) -> None:
    upstream.clear()
    _, lean = both_lanes(upstream.api_base, model="openai/once-gate-a", rpm=1)
    call = asyncio.create_task(heard(lean, hello(100), stream=stream))
    await asyncio.to_thread(upstream.wait_for, lambda calls: calls)
    call.cancel()
    await asyncio.wait([call])
    for _ in range(2):
        with pytest.raises(UpstreamError) as raised:
            await heard(lean, hello(1e-6), stream=stream)
        assert raised.value.kind == "timeout"
    assert await heard(lean, hello(), stream=stream)
    await lean.close()


async def test_a_stream_holds_its_place_until_it_is_left(upstream: Scripted) -> None:
    _, lean = both_lanes(upstream.api_base, model="openai/drip-a", rpm=1)
    async with lean.stream(hello()) as events:
        async for _event in events:
            break
        with pytest.raises(UpstreamError, match="slots in use"):
            await heard(lean, hello(), stream=True)
    async with lean.stream(hello()) as events:
        assert isinstance(await anext(events), Text)
    await lean.close()


@pytest.mark.parametrize("settings", [{}, {"stream_timeout": 0.3}], ids=["deployment", "router"])
async def test_both_lanes_keep_the_time_limit_of_streams(upstream: Scripted, settings: dict[str, Any]) -> None:
    own = {} if settings else {"stream_timeout": 0.3}
    params = {"model": "openai/slow3000-a", "api_base": upstream.api_base, "api_key": "n", **own}
    router = Router(
        model_list=[{"model_name": "it", "litellm_params": params}], disable_cooldowns=True, num_retries=0, **settings
    )
    by_router = RouterLane(lambda: router)
    lean = LeanLane(lambda: router, by_router, Reporting(), dict)
    for lane in (by_router, lean):
        with pytest.raises(UpstreamError) as raised:
            await heard(lane, hello(60), stream=True)
        assert (raised.value.kind, raised.value.status) == ("timeout", 504)
    await lean.close()


def test_litellms_own_time_limit_for_streams_is_the_router_s_to_keep(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(litellm, "request_timeout", 5.0)
    params = {"model": "openai/x", "api_key": "k"}
    router = Router(model_list=[{"model_name": "it", "litellm_params": params}], timeout=60)
    lean = LeanLane(lambda: router, RouterLane(lambda: router), Reporting(), dict)
    assert lean.why_router("it") == "the router has a time limit for streams"


def test_an_operator_can_force_a_lane() -> None:
    params = {"model": "openai/x", "api_key": "k"}
    router = Router(model_list=[{"model_name": "it", "litellm_params": params}])
    lean = LeanLane(lambda: router, RouterLane(lambda: router), Reporting(), lambda: {"it": "router"})
    assert lean.why_router("it") == "the configuration says so"


async def test_long_messages_are_encoded_once_and_arrive_as_they_were_sent(wire: Wire) -> None:
    params = {"model": "hosted_vllm/qwen", "api_base": wire.url + "/v1", "api_key": "n"}
    router = Router(model_list=[{"model_name": "it", "litellm_params": params}])
    lean = LeanLane(lambda: router, RouterLane(lambda: router), Reporting(), dict)
    url = "data:image/png;base64," + "A" * 200_000
    messages = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}]
    request = ChatRequest(messages, {"temperature": 0.5})
    for _ in range(3):
        await lean.complete(Call("it", request, 20))
    await lean.close()
    assert [body["messages"] for _, _, body in wire.seen] == [messages] * 3
    assert request.encoded_messages is request.encoded_messages


async def test_an_answer_without_end_is_cut_off_and_the_seat_fails(
    upstream: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bench_proxy.host.answer.LARGEST_BODY", 1024)
    params = {"model": "openai/big-a", "api_base": upstream.api_base, "api_key": "n"}
    router = Router(model_list=[{"model_name": "it", "litellm_params": params}], disable_cooldowns=True)
    lean = LeanLane(lambda: router, RouterLane(lambda: router), Reporting(), dict)
    with pytest.raises(UpstreamError, match="larger than"):
        await lean.complete(Call("it", ChatRequest([{"role": "user", "content": "Hello"}], {}), 20))
    await lean.close()


def test_a_refusal_in_a_piece_that_litellm_has_parsed_is_heard() -> None:
    delta = Delta(content=None, refusal="I can't help with that.")
    piece = ModelResponseStream(choices=[StreamingChoices(index=0, delta=delta)])
    assert list(Ending().heard(_in_openai_form(piece))) == [Text("I can't help with that.")]
