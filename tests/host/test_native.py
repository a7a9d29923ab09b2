"""What a member's server and its caller say in their own format reaches the other as it was said, on both lanes."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, get_args

import litellm
import pytest
from litellm import Router
from litellm.integrations.custom_logger import CustomLogger

from bench_proxy.errors import UpstreamError
from bench_proxy.formats.anthropic.relay import MessagesHearing
from bench_proxy.formats.gemini.relay import GeminiHearing
from bench_proxy.formats.relays import Dialect, Hearing
from bench_proxy.formats.responses.relay import ResponsesHearing
from bench_proxy.host import makers
from bench_proxy.host.answer import LONGEST_LINE
from bench_proxy.host.lean import LeanLane
from bench_proxy.host.native import answer, request, router
from bench_proxy.host.native.lane import NativeLane
from bench_proxy.host.reporting import Reporting
from bench_proxy.host.upstream import RouterLane
from bench_proxy.upstream import NativeCall, Reply
from tests.native_upstream import BODIES, EVENTS, HEADERS, WHOLES, NativeServer, Script, encoded, serving, sse

pytestmark = pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")  # of LiteLLM, at fields it did not know

DIALECTS: tuple[Dialect, ...] = ("messages", "responses", "gemini")
HEARINGS: Mapping[Dialect, type[Hearing]] = {
    "messages": MessagesHearing,
    "responses": ResponsesHearing,
    "gemini": GeminiHearing,
}
LANES = ("auto", "router")
WITHIN = 20
PRICES = {
    "input_cost_per_token": 1e-6,
    "output_cost_per_token": 2e-6,
    "cache_read_input_token_cost": 1e-7,
    "cache_creation_input_token_cost": 3e-6,
}
MODELS: Mapping[Dialect, tuple[str, str]] = {
    "messages": ("anthropic/claude-sonnet-4-5", ""),
    "responses": ("openai/gpt-5", "/v1"),
    "gemini": ("gemini/gemini-2.5-pro", "/v1beta"),
}


def call(dialect: Dialect, **more: Any) -> NativeCall:
    hearing = HEARINGS[dialect]()
    return NativeCall("it", dialect, hearing, BODIES[dialect], 3 * WITHIN, ("a-tag",), {**HEADERS[dialect], **more})


def deployment(dialect: Dialect, url: str, **params: Any) -> dict[str, Any]:
    model, path = MODELS[dialect]
    own = {"model": model, "api_base": url + path, "api_key": "sk-of-the-deployment", **params}
    mode = {"mode": "responses"} if dialect == "responses" else {}
    return {"model_name": "it", "litellm_params": own, "model_info": {"id": "one", **mode, **PRICES}}


@asynccontextmanager
async def lane(
    dialect: Dialect, forced: str, server: NativeServer, *others: dict[str, Any], priced: bool = True, **params: Any
) -> AsyncIterator[NativeLane]:
    router = Router(model_list=[*others, deployment(dialect, server.url, **params)], disable_cooldowns=True)
    reporting = Reporting()
    lean = LeanLane(
        lambda: router, RouterLane(lambda: router), reporting, lambda: FORCED[forced], lambda _alias: priced
    )
    native = NativeLane(lambda: router, lean, lambda: FORCED[forced], lambda _alias: priced)
    assert bool(native.why_router("it", dialect)) == (forced == "router")
    try:
        yield native
    finally:
        await reporting.close()
        await lean.close()


FORCED = {forced: {"it": forced} for forced in LANES}


async def streamed(native: NativeLane, of: NativeCall) -> tuple[list[bytes], Reply]:
    async with asyncio.timeout(WITHIN), native.stream_native(of) as events:
        *passed, reply = [event async for event in events]
    assert isinstance(reply, Reply)
    relayed = [event for one in passed if not isinstance(one, Reply) for event in one]
    return [event.data for event in [*relayed, *of.hearing.last]], reply


async def asked(native: NativeLane, of: NativeCall, *, stream: bool) -> Reply:
    _, reply = await (streamed(native, of) if stream else native.complete_native(of))
    return reply


async def failure(dialect: Dialect, forced: str, script: Script, *, stream: bool) -> UpstreamError:
    async with serving(script) as server, lane(dialect, forced, server) as native:
        with pytest.raises(UpstreamError) as failed:
            await asked(native, call(dialect), stream=stream)
        assert len(server.seen) == 1  # one attempt
        assert server.faults == []
        return failed.value


async def test_the_lean_lane_passes_a_whole_answer_on_byte_for_byte(dialect: Dialect) -> None:
    async with serving() as server, lane(dialect, "auto", server) as native:
        body, _ = await native.complete_native(call(dialect))
    assert body == encoded(WHOLES[dialect])


@pytest.fixture(params=DIALECTS)
def dialect(request: pytest.FixtureRequest) -> Dialect:
    return request.param  # type: ignore[no-any-return]


async def test_the_lean_lane_passes_a_stream_on_byte_for_byte(dialect: Dialect) -> None:
    async with serving() as server, lane(dialect, "auto", server) as native:
        events, _ = await streamed(native, call(dialect))
    assert events == [encoded(event) for event in EVENTS[dialect]]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_the_lean_lane_sends_the_callers_body_with_nothing_but_the_model_in_it(
    dialect: Dialect, stream: bool
) -> None:
    async with serving() as server, lane(dialect, "auto", server) as native:
        await asked(native, call(dialect), stream=stream)
        ((path, _, body),) = server.seen
    model = MODELS[dialect][0].partition("/")[2]
    if dialect == "gemini":
        assert model in path
        assert body == BODIES[dialect]
    else:
        assert body == {"model": model, **BODIES[dialect], **({"stream": True} if stream else {})}


def as_litellm_changes_it(dialect: Dialect, said: Any) -> Any:
    """Of what a server says: LiteLLM's router gives responses ids of its own, and says at the end what they cost."""
    if dialect == "responses":
        for response in (said, said.get("response") or {}):
            if str(response.get("id")).startswith("resp_"):
                response["id"] = "resp_1"
            (response.get("usage") or {}).pop("cost", None)
    return said


async def test_the_routers_lane_passes_a_whole_answer_on(dialect: Dialect) -> None:
    async with serving() as server, lane(dialect, "router", server) as native:
        body, _ = await native.complete_native(call(dialect))
        assert server.faults == []
    assert as_litellm_changes_it(dialect, json.loads(body)) == WHOLES[dialect]


async def test_the_routers_lane_passes_a_stream_on(dialect: Dialect) -> None:
    async with serving() as server, lane(dialect, "router", server) as native:
        events, _ = await streamed(native, call(dialect))
        assert server.faults == []
    assert [as_litellm_changes_it(dialect, json.loads(event)) for event in events] == EVENTS[dialect]


REFUSALS: list[tuple[int, dict[str, str], str, str]] = [
    (429, {"Retry-After": "7"}, "slow down", "rate_limit"),
    (401, {}, "invalid key", "authentication"),
    (404, {}, "no such model", "not_found"),
    (400, {}, "prompt is too long: 250000 tokens > 200000 maximum", "context_window"),
    (400, {}, "temperature: must be at most 1", "bad_request"),
    (500, {}, "oops", "server_error"),
]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("forced", LANES)
@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda r: f"{r[0]} {r[3]}")
async def test_a_refusal_is_what_it_is_in_our_words(
    dialect: Dialect, forced: str, refusal: tuple[int, dict[str, str], str, str], stream: bool
) -> None:
    status, headers, message, kind = refusal
    body = {"type": "error", "error": {"type": "an_error", "message": message, "code": status}}
    failed = await failure(dialect, forced, Script(status, headers, encoded(body)), stream=stream)
    assert (failed.kind, failed.status) == (kind, status)
    assert message in failed.message
    assert failed.retry_after == (7 if status == 429 else None)
    assert failed.context_window == (200000 if kind == "context_window" else None)


ERRORS: list[tuple[Dialect, dict[str, Any], tuple[str, int]]] = [
    (
        "messages",
        {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}},
        ("overloaded", 529),
    ),
    ("messages", {"type": "error", "error": {"type": "rate_limit_error", "message": "Slow."}}, ("rate_limit", 429)),
    ("messages", {"type": "error", "error": {"type": "api_error", "message": "Oops."}}, ("server_error", 500)),
    (
        "messages",
        {
            "type": "error",
            "error": {"type": "invalid_request_error", "message": "prompt is too long: 9000 tokens > 8000 maximum"},
        },
        ("context_window", 400),
    ),
    ("messages", {"type": "error", "error": {"type": "unheard_of", "message": "Hm."}}, ("server_error", 500)),
    ("responses", {"type": "error", "code": "server_error", "message": "Oops."}, ("server_error", 500)),
    ("responses", {"type": "error", "error": {"code": "rate_limit_exceeded", "message": "Slow."}}, ("rate_limit", 429)),
    (
        "responses",
        {
            "type": "response.failed",
            "response": {
                **WHOLES["responses"],
                "status": "failed",
                "error": {
                    "code": "context_length_exceeded",
                    "message": "Your input exceeds the context window of this model.",
                },
            },
        },
        ("context_window", 400),
    ),
    (
        "responses",
        {
            "type": "response.failed",
            "response": {
                **WHOLES["responses"],
                "status": "failed",
                "error": {"code": "server_is_overloaded", "message": "Later."},
            },
        },
        ("overloaded", 503),
    ),
    ("gemini", {"error": {"code": 503, "status": "UNAVAILABLE", "message": "Overloaded."}}, ("overloaded", 503)),
    ("gemini", {"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "message": "Slow."}}, ("rate_limit", 429)),
]


@pytest.mark.parametrize("forced", LANES)
@pytest.mark.parametrize("after", [0, 3], ids=["first", "later"])
@pytest.mark.parametrize(("dialect_of_it", "error", "expected"), ERRORS)
async def test_an_error_in_a_stream_fails_the_call(
    dialect_of_it: Dialect, error: dict[str, Any], expected: tuple[str, int], after: int, forced: str
) -> None:
    frames = [sse(dialect_of_it, event) for event in [*EVENTS[dialect_of_it][:after], error]]
    failed = await failure(dialect_of_it, forced, Script(events=frames), stream=True)
    if forced == "router" and expected[0] == "overloaded" and dialect_of_it == "responses":
        expected = ("server_error", 500)  # LiteLLM does not know that word of OpenAI's
    assert (failed.kind, failed.status) == expected


WHOLE_ERRORS: Mapping[Dialect, dict[str, Any]] = {
    "messages": {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}},
    "responses": {
        **WHOLES["responses"],
        "status": "failed",
        "error": {"code": "server_is_overloaded", "message": "Later."},
    },
    "gemini": {"error": {"code": 503, "status": "UNAVAILABLE", "message": "Overloaded."}},
}


@pytest.mark.parametrize("forced", LANES)
async def test_an_error_in_a_whole_answer_fails_the_call(dialect: Dialect, forced: str) -> None:
    failed = await failure(dialect, forced, Script(body=encoded(WHOLE_ERRORS[dialect])), stream=False)
    assert failed.kind == "overloaded"


@pytest.mark.parametrize("forced", LANES)
@pytest.mark.parametrize("body", [b"<html>", b"[]", b"{}", b'"a"', b'{"content": 3, "output": 3, "candidates": 3}'])
async def test_what_is_no_answer_is_a_bad_one(dialect: Dialect, forced: str, body: bytes) -> None:
    assert (await failure(dialect, forced, Script(body=body), stream=False)).status >= 500


@pytest.mark.parametrize("forced", LANES)
@pytest.mark.parametrize("length", [0, 3])
async def test_a_stream_without_its_end_is_a_bad_answer(dialect: Dialect, forced: str, length: int) -> None:
    frames = [sse(dialect, event) for event in EVENTS[dialect][:length]]
    failed = await failure(dialect, forced, Script(events=frames), stream=True)
    if forced == "router" and dialect == "responses":  # LiteLLM takes it for a connection that broke
        assert failed.kind == "connection"
    else:
        assert (failed.kind, failed.status) == ("bad_response", 502)


@pytest.mark.parametrize("forced", LANES)
async def test_a_stream_that_breaks_fails_the_call(dialect: Dialect, forced: str) -> None:
    frames = [sse(dialect, event) for event in EVENTS[dialect][:3]]
    failed = await failure(dialect, forced, Script(events=frames, breaks=True), stream=True)
    assert failed.kind in {"connection", "server_error", "bad_response"}
    assert failed.status >= 500


@pytest.mark.parametrize("forced", LANES)
@pytest.mark.parametrize("dialect_of_it", ["messages", "responses"])
async def test_a_stream_that_stays_open_behind_its_end_has_ended(dialect_of_it: Dialect, forced: str) -> None:
    frames = [sse(dialect_of_it, event) for event in EVENTS[dialect_of_it]]
    script = Script(events=[*frames, b"data: {}\n\n"], hangs=len(frames))
    async with serving(script) as server, lane(dialect_of_it, forced, server) as native:
        events, _ = await streamed(native, call(dialect_of_it))
    assert len(events) == len(frames)


@pytest.mark.parametrize(
    "frame", [b"data: {nonsense\n\n", b"data: [1]\n\n", b'data: {"type": "content_block_delta"}\n\n']
)
async def test_a_piece_that_is_no_event_is_a_bad_answer(frame: bytes) -> None:
    failed = await failure("messages", "auto", Script(events=[frame]), stream=True)
    assert failed.kind == "bad_response"


async def test_a_line_without_an_end_is_not_kept() -> None:
    frames = [b"data: " + b"a" * (LONGEST_LINE + 2000)]
    assert (await failure("messages", "auto", Script(events=frames), stream=True)).kind == "bad_response"


@pytest.mark.parametrize("forced", LANES)
async def test_leaving_the_context_ends_the_members_call(dialect: Dialect, forced: str) -> None:
    # LiteLLM's router holds back what comes before the first text.
    after = {"messages": 4, "responses": 5, "gemini": 4}[dialect]
    async with serving(Script(hangs=after)) as server, lane(dialect, forced, server) as native:
        async with native.stream_native(call(dialect)) as events:
            first = [await anext(aiter(events)) for _ in range(2)]
        await asyncio.wait_for(server.left.wait(), WITHIN)
    assert len(first) == 2


@pytest.mark.parametrize("forced", LANES)
async def test_cancelling_ends_the_members_call(dialect: Dialect, forced: str) -> None:
    async with serving(Script(hangs=2)) as server, lane(dialect, forced, server) as native:
        task = asyncio.create_task(streamed(native, call(dialect)))
        while not server.seen:  # noqa: ASYNC110  the server is in this loop too
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(server.left.wait(), WITHIN)


class Listener(CustomLogger):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.heard: list[tuple[str, dict[str, Any]]] = []
        self.came = asyncio.Event()

    async def async_log_success_event(self, kwargs: Any, response_obj: Any, start_time: Any, end_time: Any) -> None:
        self.heard.append(("success", kwargs["standard_logging_object"]))
        self.came.set()

    async def async_log_failure_event(self, kwargs: Any, response_obj: Any, start_time: Any, end_time: Any) -> None:
        self.heard.append(("failure", kwargs["standard_logging_object"]))
        self.came.set()

    async def one(self) -> tuple[str, dict[str, Any]]:
        await asyncio.wait_for(self.came.wait(), WITHIN)
        await asyncio.sleep(0.2)  # another one would come now
        self.came.clear()
        (only,) = self.heard
        return only


@pytest.fixture
def listener(monkeypatch: pytest.MonkeyPatch) -> Listener:
    listening = Listener()
    for name in ("_async_success_callback", "_async_failure_callback"):
        monkeypatch.setattr(litellm, name, [listening])
    return listening


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("forced", LANES)
async def test_an_answers_tokens_and_cost_are_ours_and_litellm_is_told_once_of_them(
    dialect: Dialect, forced: str, stream: bool, listener: Listener
) -> None:
    async with serving() as server, lane(dialect, forced, server) as native:
        reply = await asked(native, call(dialect), stream=stream)
        kind, told = await listener.one()
    assert kind == "success"
    assert (told["prompt_tokens"], told["completion_tokens"]) == (130, 5)
    assert (reply.prompt_tokens, reply.cached_tokens, reply.completion_tokens) == (130, 100, 5)
    assert (reply.cache_write_tokens, reply.reasoning_tokens) == ((20, None) if dialect == "messages" else (None, 3))
    assert (reply.text, reply.finish_reason, reply.reasoned) == ("Green \u6f22.", "tool_calls", True)
    assert told["model_group"] == "it"
    assert "a-tag" in told["request_tags"]
    assert (reply.cost, told["response_cost"]) == (pytest.approx(cost(dialect)), pytest.approx(cost(dialect)))


def cost(dialect: Dialect) -> float:
    fresh, written = (10, 20) if dialect == "messages" else (30, 0)
    return fresh * 1e-6 + written * 3e-6 + 100 * 1e-7 + 5 * 2e-6


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("forced", LANES)
async def test_an_answer_costs_what_the_deployment_takes_that_gave_it(
    dialect: Dialect, forced: str, stream: bool
) -> None:
    dear = deployment(dialect, "http://nowhere", weight=0)
    dear["model_info"] |= {"id": "dear", **{name: 10 * price for name, price in PRICES.items()}}
    async with serving() as server, lane(dialect, forced, server, dear, weight=1) as native:
        assert (await asked(native, call(dialect), stream=stream)).cost == pytest.approx(cost(dialect))


@pytest.mark.parametrize("forced", LANES)
async def test_what_a_model_without_a_price_costs_is_not_known(dialect: Dialect, forced: str) -> None:
    async with serving() as server, lane(dialect, forced, server, priced=False) as native:
        reply = await asked(native, call(dialect), stream=True)
    assert (reply.prompt_tokens, reply.cost) == (130, None)


USAGE: Mapping[Dialect, str] = {"messages": "usage", "responses": "usage", "gemini": "usageMetadata"}


@pytest.mark.parametrize("nothing", ["many", None, [], {}], ids=str)
async def test_tokens_that_are_no_numbers_are_not_known(dialect: Dialect, nothing: object) -> None:
    name = USAGE[dialect]
    used = dict.fromkeys(WHOLES[dialect][name], nothing)
    script = Script(body=encoded({**WHOLES[dialect], name: used}))
    async with serving(script) as server, lane(dialect, "auto", server) as native:
        reply = await asked(native, call(dialect), stream=False)
    assert (reply.text, reply.prompt_tokens, reply.cost) == ("Green \u6f22.", None, None)


Counts = tuple[int | None, int | None, int | None, int | None]
ODD: list[tuple[Dialect, dict[str, Any], Counts]] = [
    ("messages", {"cache_creation_input_tokens": None, "server_tool_use": None}, (110, 100, None, 5)),
    ("messages", {"server_tool_use": {"web_search_requests": None}, "cache_creation": None}, (130, 100, 20, 5)),
    ("messages", {"cache_read_input_tokens": "many"}, (30, None, 20, 5)),
    ("messages", {"input_tokens": [10], "iterations": 3}, (120, 100, 20, 5)),
    ("responses", {"input_tokens_details": {"cached_tokens": None, "cache_write_tokens": 20}}, (130, None, 20, 5)),
    ("responses", {"input_tokens_details": None, "output_tokens_details": None}, (130, None, None, 5)),
    ("responses", {"output_tokens": None, "total_tokens": None}, (130, 100, None, None)),
    ("responses", {"input_tokens_details": [100], "total_tokens": "many"}, (130, None, None, 5)),
    ("responses", {"input_tokens": {"of": "many"}}, (None, 100, None, 5)),
    ("gemini", {"candidatesTokenCount": None}, (130, 100, None, 3)),
    ("gemini", {"promptTokensDetails": [None, {"modality": "TEXT", "tokenCount": None}]}, (130, 100, None, 5)),
    ("gemini", {"thoughtsTokenCount": None, "candidatesTokensDetails": None}, (130, 100, None, 2)),
    ("gemini", {"cachedContentTokenCount": [100], "promptTokensDetails": "many"}, (130, None, None, 5)),
    ("gemini", {"promptTokenCount": "130"}, (None, 100, None, 5)),
]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(("dialect_of_it", "odd", "expected"), ODD)
async def test_of_tokens_of_which_some_are_no_numbers_the_others_count(
    dialect_of_it: Dialect, odd: dict[str, Any], expected: Counts, stream: bool, listener: Listener
) -> None:
    def spoilt(said: Any) -> Any:
        if not isinstance(said, dict):
            return said
        inside = {name: spoilt(value) for name, value in said.items()}
        used = inside.get(USAGE[dialect_of_it])
        return {**inside, USAGE[dialect_of_it]: {**used, **odd}} if used else inside

    frames = [sse(dialect_of_it, spoilt(event)) for event in EVENTS[dialect_of_it]]
    script = Script(events=frames) if stream else Script(body=encoded(spoilt(WHOLES[dialect_of_it])))
    async with serving(script) as server, lane(dialect_of_it, "auto", server) as native:
        reply = await asked(native, call(dialect_of_it), stream=stream)
        _, told = await listener.one()
    counted = (reply.prompt_tokens, reply.cached_tokens, reply.cache_write_tokens, reply.completion_tokens)
    assert counted == expected
    assert (told["prompt_tokens"], told["completion_tokens"]) == (expected[0] or 0, expected[-1] or 0)
    assert reply.cost is not None
    assert told["response_cost"] == pytest.approx(reply.cost)


SEARCHED = {"webSearchQueries": ["grass", "green"], "groundingChunks": [{"web": {"uri": "https://there"}}]}
ON_A_MAP = {"webSearchQueries": ["parks"], "groundingChunks": [{"maps": {"uri": "https://there"}}]}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("forced", LANES)
@pytest.mark.parametrize("grounding", [SEARCHED, ON_A_MAP], ids=["searched", "on a map"])
async def test_googles_searches_cost_what_litellm_takes_for_them(
    grounding: dict[str, Any], forced: str, stream: bool, listener: Listener
) -> None:
    (candidate,) = WHOLES["gemini"]["candidates"]
    whole = {**WHOLES["gemini"], "candidates": [{**candidate, "groundingMetadata": grounding}]}
    whole["usageMetadata"] = {**whole["usageMetadata"], "toolUsePromptTokenCount": 50, "totalTokenCount": 185}
    script = Script(events=[sse("gemini", whole)]) if stream else Script(body=encoded(whole))
    async with serving(script) as server, lane("gemini", forced, server) as native:
        reply = await asked(native, call("gemini"), stream=stream)
        _, told = await listener.one()
    assert reply.prompt_tokens == told["prompt_tokens"] == 130  # what was found and read has no price by the token
    assert reply.cost is not None
    assert reply.cost > 2 * cost("gemini")
    assert told["response_cost"] == pytest.approx(reply.cost)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_litellm_is_told_what_was_said_thought_and_called(
    dialect: Dialect, stream: bool, listener: Listener
) -> None:
    async with serving() as server, lane(dialect, "auto", server) as native:
        await asked(native, call(dialect), stream=stream)
        _, told = await listener.one()
    ((message, reason),) = [(choice["message"], choice["finish_reason"]) for choice in told["response"]["choices"]]
    assert (message["content"], message["reasoning_content"].strip(" \u2028")) == ("Green \u6f22.", "Hm.")
    (called,) = [call["function"] for call in message["tool_calls"]]
    assert (called["name"], json.loads(called["arguments"]), reason) == ("look", {"b": 1}, "tool_calls")


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("forced", LANES)
async def test_litellm_is_told_once_of_a_refusal(
    dialect: Dialect, forced: str, stream: bool, listener: Listener
) -> None:
    body = encoded({"error": {"type": "api_error", "message": "Oops.", "code": 500}})
    async with serving(Script(500, body=body)) as server, lane(dialect, forced, server) as native:
        with pytest.raises(UpstreamError):
            await asked(native, call(dialect), stream=stream)
        kind, _ = await listener.one()
    assert kind == "failure"


async def test_litellm_is_told_once_of_an_error_in_a_stream_and_of_a_hang_up_at_the_end(
    dialect: Dialect, listener: Listener
) -> None:
    async with serving() as server, lane(dialect, "auto", server) as native:
        of = call(dialect)
        async with native.stream_native(of) as events:
            async for event in events:
                if of.hearing.ended and (isinstance(event, Reply) or not of.hearing.over):
                    break
        assert (await listener.one())[0] == "success"
        listener.heard.clear()
        server.script = Script(events=[sse(dialect, EVENTS[dialect][0])])
        with pytest.raises(UpstreamError):
            await streamed(native, call(dialect))
        assert (await listener.one())[0] == "failure"


async def test_a_callers_key_does_not_take_the_place_of_the_deployments() -> None:
    async with serving() as server, lane("messages", "auto", server) as native:
        await native.complete_native(call("messages", **{"x-api-key": "theirs", "authorization": "Bearer theirs"}))
        ((_, headers, _),) = server.seen
    assert "theirs" not in str(headers)


@pytest.mark.parametrize("forced", LANES)
async def test_a_config_by_googles_other_name_for_it_is_sent_once(forced: str) -> None:
    body = {name: value for name, value in BODIES["gemini"].items() if name != "generationConfig"}
    asks = replace(call("gemini"), body={**body, "generation_config": {"temperature": 1}})
    async with serving() as server, lane("gemini", forced, server) as native:
        with pytest.raises(UpstreamError):  # the server asks for the other settings
            await native.complete_native(asks)
        ((_, _, sent),) = server.seen
    (config,) = [value for name, value in sent.items() if name.lower().replace("_", "") == "generationconfig"]
    assert config == {"temperature": 1}
    assert "generation_config" in asks.body


async def test_azure_is_called_at_its_own_address_with_its_own_header() -> None:
    params = {"model": "azure/gpt-5", "api_version": "2025-04-01"}
    async with serving() as server, lane("responses", "auto", server, **params) as native:
        server.script = Script()
        await native.complete_native(call("responses"))
        ((path, headers, _),) = server.seen
    assert "/responses?api-version=2025-04-01" in path
    assert headers["api-key"] == "sk-of-the-deployment"


async def test_a_full_deployment_is_not_called() -> None:
    async with serving(Script(hangs=2)) as server, lane("messages", "auto", server, max_parallel_requests=1) as native:
        async with native.stream_native(call("messages")) as events:
            await anext(aiter(events))
            with pytest.raises(UpstreamError, match="rate_limit"):
                await streamed(native, call("messages"))
        assert len(server.seen) == 1


def made_by(dialect: Dialect, *deployments: dict[str, Any]) -> str:
    router = Router(model_list=[{"model_name": "it", **d} for d in deployments])
    lean = LeanLane(lambda: router, RouterLane(lambda: router), Reporting(), dict)
    return NativeLane(lambda: router, lean, dict).maker("it", dialect)


def of(model: str, info: Mapping[str, Any] | None = None, **params: Any) -> dict[str, Any]:
    return {"litellm_params": {"model": model, "api_key": "k", **params}, "model_info": dict(info or {})}


@pytest.mark.parametrize(
    ("dialect_of_it", "deployments", "maker"),
    [
        ("messages", [of("anthropic/claude-sonnet-4-5")], "anthropic"),
        ("messages", [of("anthropic/kimi", api_base="http://there")], "anthropic"),
        ("messages", [of("openai/gpt-5")], ""),
        ("messages", [of("anthropic/claude-sonnet-4-5"), of("openai/gpt-5")], ""),
        ("messages", [], ""),
        ("gemini", [of("gemini/gemini-2.5-pro")], "google"),
        ("gemini", [of("vertex_ai/gemini-2.5-pro", vertex_project="p")], "google"),
        ("gemini", [of("vertex_ai/claude-sonnet-4-5", vertex_project="p")], ""),
        ("gemini", [of("openai/gemini-2.5-pro")], ""),
        ("responses", [of("openai/qwen", api_base="http://there/v1")], ""),
        ("responses", [of("openai/gpt-5", use_chat_completions_api=True)], ""),
        ("responses", [of("openai/gpt-5", api_key="a"), of("openai/gpt-5", api_key="b")], ""),
        ("responses", [of("groq/llama", {"mode": "responses"})], ""),
        ("responses", [of("anthropic/claude-sonnet-4-5")], ""),
    ],
)
def test_a_maker_is_whose_servers_all_of_a_models_deployments_are(
    dialect_of_it: Dialect, deployments: list[dict[str, Any]], maker: str
) -> None:
    assert made_by(dialect_of_it, *deployments) == maker


def test_an_organisation_is_a_maker_of_its_own_whose_key_is_not_shown() -> None:
    deployments = [
        of("openai/gpt-5", api_key="sk-first-key"),
        of("openai/gpt-5", api_key="sk-other-key"),
        of("openai/gpt-5", api_key="sk-first-key", organization="org-1"),
        of("openai/gpt-5", api_key="sk-first-key", api_base="https://api.openai.com/v1"),
        of("azure/gpt-5", api_key="sk-first-key", api_base="https://a.openai.azure.com", api_version="2025-04-01"),
        of("openai/qwen", {"mode": "responses"}, api_key="sk-first-key", api_base="http://there/v1"),
        of("groq/llama", {"supported_endpoints": ["/v1/responses"]}, api_key="sk-first-key"),
    ]
    seen = [made_by("responses", each) for each in deployments]
    assert all(seen)
    assert len(set(seen)) == len(seen)
    assert not any("key" in maker or "org-1" in maker for maker in seen)
    assert made_by("responses", deployments[0]) == seen[0]


async def test_a_callback_that_changes_what_is_sent_to_these_servers_takes_the_routers_lane(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Changing(CustomLogger):  # type: ignore[misc]
        async def async_pre_request_hook(self, model: str, messages: list[Any], kwargs: dict[str, Any]) -> None:
            return None

    router = Router(model_list=[deployment("messages", "http://there")])
    lean = LeanLane(lambda: router, RouterLane(lambda: router), Reporting(), dict)
    native = NativeLane(lambda: router, lean, dict)
    assert native.why_router("it", "messages") == ""
    monkeypatch.setattr(litellm, "callbacks", [Changing()])
    assert "Changing" in native.why_router("it", "messages")


@pytest.mark.parametrize(
    "table",
    [makers.MAKERS, answer.USAGES, request.ASKED, request.CHOICES, request.WAYS, router.ENTRIES],
    ids=["MAKERS", "USAGES", "ASKED", "CHOICES", "WAYS", "ENTRIES"],
)
def test_each_table_has_a_row_for_each_dialect(table: Mapping[str, object]) -> None:
    assert set(table) == set(get_args(Dialect))
