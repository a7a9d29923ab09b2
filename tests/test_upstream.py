"""The scripted model server does what each word of its table says."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import aiohttp
import httpx
import pytest

from tests.upstream import GARBAGE, REASONING, UNICODE, Upstream, script, text_of

Json = dict[str, Any]
TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object"}}} for name in ("read", "write")
]


@pytest.fixture
def server(upstream: Upstream) -> Upstream:
    upstream.clear()
    return upstream


@pytest.fixture
def http(server: Upstream) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=30, trust_env=False) as client:
        yield client


def request(model: str, stream: bool = False, **more: Any) -> Json:
    return {"model": model, "messages": [{"role": "user", "content": "Who are you?"}], "stream": stream, **more}


def ask(http: httpx.Client, model: str, **more: Any) -> httpx.Response:
    return http.post("/v1/chat/completions", json=request(model, **more))


def answer(http: httpx.Client, model: str, **more: Any) -> Json:
    """The one choice of an answer that is not streamed."""
    response = ask(http, model, **more)
    assert response.status_code == 200
    choice: Json = response.json()["choices"][0]
    return choice


def events(lines: Iterator[str]) -> Iterator[Json]:
    """The chunks of a stream, which has to end with [DONE]."""
    for line in lines:
        if line == "data: [DONE]":
            return
        if line:
            yield json.loads(line.removeprefix("data: "))
    pytest.fail("the stream ended without [DONE]")


def streamed(http: httpx.Client, model: str, **more: Any) -> list[Json]:
    response = ask(http, model, stream=True, **more)
    assert response.status_code == 200
    assert response.headers["content-type"] == "text/event-stream"
    # Not `iter_lines`: it would split on U+2028.
    return list(events(iter(response.content.decode().split("\n"))))


def joined(chunks: list[Json], field: str = "content") -> str:
    return "".join(choice["delta"].get(field) or "" for chunk in chunks for choice in chunk["choices"])


def finish(chunks: list[Json]) -> list[str]:
    return [choice["finish_reason"] for chunk in chunks for choice in chunk["choices"] if choice["finish_reason"]]


def test_words_take_their_numbers_and_names_mean_nothing() -> None:
    assert script("slow20-fail503-a") == {"slow": 20, "fail": 503}
    assert script("slow-fail-x") == {"slow": 300, "fail": 500}
    assert script("gpt-4o-mini") == {}


def test_a_plain_model_says_who_it_is(http: httpx.Client) -> None:
    whole = ask(http, "ok-a").json()
    assert whole["model"] == "ok-a"
    assert whole["choices"][0]["message"]["content"] == "I am ok-a." == text_of("ok-a")
    assert whole["choices"][0]["finish_reason"] == "stop"
    assert whole["usage"] == {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}


def test_a_stream_carries_the_same_text(http: httpx.Client) -> None:
    chunks = streamed(http, "ok-a")
    assert joined(chunks) == "I am ok-a."
    assert finish(chunks) == ["stop"]
    assert all(chunk["choices"] for chunk in chunks)


def test_a_stream_reports_usage_when_asked(http: httpx.Client) -> None:
    last = streamed(http, "in7-out3", stream_options={"include_usage": True})[-1]
    assert last["choices"] == []
    assert last["usage"] == {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}


def test_usageless_reports_none(http: httpx.Client) -> None:
    assert "usage" not in ask(http, "usageless-x").json()
    assert not any("usage" in chunk for chunk in streamed(http, "usageless-x", stream_options={"include_usage": True}))


def test_a_test_may_set_the_text(http: httpx.Client, server: Upstream) -> None:
    server.say("ok-a", "Something else.")
    assert answer(http, "ok-a")["message"]["content"] == "Something else."
    assert joined(streamed(http, "ok-a")) == "Something else."
    server.clear()
    assert answer(http, "ok-a")["message"]["content"] == "I am ok-a."


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("status", [400, 401, 403, 404, 408, 429, 500, 503, 529])
def test_fail_refuses_with_the_status_and_an_error_body(http: httpx.Client, status: int, stream: bool) -> None:
    response = ask(http, f"fail{status}-x", stream=stream)
    assert response.status_code == status
    assert set(response.json()["error"]) == {"message", "type", "param", "code"}


@pytest.mark.parametrize(("model", "wait"), [("rate-x", "7"), ("rate30-x", "30")])
def test_rate_says_when_to_come_back(http: httpx.Client, model: str, wait: str) -> None:
    response = ask(http, model)
    assert response.status_code == 429
    assert response.headers["retry-after"] == wait
    assert response.json()["error"]["code"] == "rate_limit_exceeded"


def test_context_names_its_window(http: httpx.Client) -> None:
    response = ask(http, "context-x")
    assert response.status_code == 400
    assert response.json()["error"]["code"] == "context_length_exceeded"
    assert response.json()["error"]["message"].startswith(
        "This model's maximum context length is 4096 tokens. However, "
    )
    assert "length is 8192 tokens" in ask(http, "context8192-x").json()["error"]["message"]


def test_html_is_a_page(http: httpx.Client) -> None:
    response = ask(http, "html-x")
    assert response.status_code == 502
    assert response.headers["content-type"].startswith("text/html")


def test_garbage_is_not_json(http: httpx.Client) -> None:
    response = ask(http, "garbage-x")
    assert (response.status_code, response.content) == (200, GARBAGE)
    assert ask(http, "garbage-x", stream=True).content == b"data: " + GARBAGE + b"\n\n"


def test_empty_says_nothing(http: httpx.Client) -> None:
    assert answer(http, "empty-x")["message"]["content"] == ""
    chunks = streamed(http, "empty-x")
    assert joined(chunks) == ""
    assert finish(chunks) == ["stop"]


def test_null_only_reasons_and_is_cut(http: httpx.Client) -> None:
    choice = answer(http, "null-x")
    assert choice["message"]["content"] is None
    assert choice["message"]["reasoning_content"] == REASONING
    assert choice["finish_reason"] == "length"
    chunks = streamed(http, "null-x")
    assert (joined(chunks), joined(chunks, "reasoning_content")) == ("", REASONING)
    assert finish(chunks) == ["length"]


def test_think_reasons_and_answers(http: httpx.Client) -> None:
    message = answer(http, "think-x")["message"]
    assert (message["content"], message["reasoning_content"]) == ("I am think-x.", REASONING)
    chunks = streamed(http, "think-x")
    assert (joined(chunks), joined(chunks, "reasoning_content")) == ("I am think-x.", REASONING)


def test_length_is_text_that_was_cut(http: httpx.Client) -> None:
    choice = answer(http, "length-x")
    assert (choice["message"]["content"], choice["finish_reason"]) == ("I am length-x.", "length")
    assert finish(streamed(http, "length-x")) == ["length"]


@pytest.mark.parametrize(("model", "size"), [("big-x", 1_000_000), ("huge-x", 20_000_000)])
def test_large_answers_have_their_size(http: httpx.Client, model: str, size: int) -> None:
    text = answer(http, model)["message"]["content"]
    assert len(text) == size
    assert text.startswith(f"I am {model}. ")
    assert joined(streamed(http, model)) == text == text_of(model)


def test_unicode_is_sent_raw(http: httpx.Client) -> None:
    response = ask(http, "unicode-x")
    assert response.json()["choices"][0]["message"]["content"] == UNICODE
    assert "\u2028".encode() in response.content
    assert joined(streamed(http, "unicode-x")) == UNICODE


def test_unicode_packets_end_inside_of_characters(http: httpx.Client) -> None:
    with http.stream("POST", "/v1/chat/completions", json=request("unicode-x", stream=True)) as response:
        packets = list(response.iter_raw())
    assert any(packet[0] & 0xC0 == 0x80 for packet in packets)


def test_echo_returns_the_body_that_arrived(http: httpx.Client) -> None:
    sent = request("echo-x", temperature=0.5, seed=7)
    assert json.loads(answer(http, "echo-x", temperature=0.5, seed=7)["message"]["content"]) == sent
    assert json.loads(joined(streamed(http, "echo-x", seed=7))) == request("echo-x", stream=True, seed=7)


def test_tools_calls_a_tool_of_the_request(http: httpx.Client) -> None:
    choice = answer(http, "tools-x", tools=TOOLS)
    (call,) = choice["message"]["tool_calls"]
    assert choice["message"]["content"] is None
    assert choice["finish_reason"] == "tool_calls"
    assert call["function"]["name"] == "read"
    assert json.loads(call["function"]["arguments"]) == {"query": "tools-x", "n": 0}


def test_tools_streams_interleaved_calls(http: httpx.Client) -> None:
    chunks = streamed(http, "tools2-x", tools=TOOLS)
    deltas = [d for chunk in chunks for d in chunk["choices"][0]["delta"].get("tool_calls", [])]
    assert [delta["index"] for delta in deltas] == [0, 1, 0, 1, 0, 1]
    assert [delta["function"]["name"] for delta in deltas[:2]] == ["read", "write"]
    for index in range(2):
        arguments = "".join(d["function"]["arguments"] for d in deltas if d["index"] == index)
        assert json.loads(arguments) == {"query": "tools2-x", "n": index}
    assert finish(chunks) == ["tool_calls"]


def test_tools_answers_once_it_has_a_result(http: httpx.Client) -> None:
    messages = [{"role": "user", "content": "Read it."}, {"role": "tool", "tool_call_id": "call_1_0", "content": "42"}]
    choice = answer(http, "tools-x", tools=TOOLS, messages=messages)
    assert (choice["message"]["content"], choice["finish_reason"]) == ("I am tools-x.", "stop")


def test_aloud_says_its_text_before_it_calls(http: httpx.Client) -> None:
    choice = answer(http, "tools-aloud-x", tools=TOOLS)
    assert (choice["message"]["content"], choice["finish_reason"]) == ("I am tools-aloud-x.", "tool_calls")
    deltas = [chunk["choices"][0]["delta"] for chunk in streamed(http, "tools-aloud-x", tools=TOOLS)]
    assert [*map(bool, [d.get("tool_calls") for d in deltas])] == [False] * 4 + [True] * 3 + [False]


def test_atonce_has_each_call_whole_in_one_piece(http: httpx.Client) -> None:
    chunks = streamed(http, "tools2-atonce-x", tools=TOOLS)
    calls = [d for chunk in chunks for d in chunk["choices"][0]["delta"].get("tool_calls", [])]
    assert [(c["index"], c["function"]["name"], json.loads(c["function"]["arguments"])["n"]) for c in calls] == [
        (0, "read", 0),
        (1, "write", 1),
    ]


def test_odd_calls_have_objects_or_no_ids(http: httpx.Client) -> None:
    (call,) = answer(http, "tools-objects-x", tools=TOOLS)["message"]["tool_calls"]
    assert call["function"]["arguments"] == {"query": "tools-objects-x", "n": 0}
    chunks = streamed(http, "tools2-idless-x", tools=TOOLS)
    calls = [d for chunk in chunks for d in chunk["choices"][0]["delta"].get("tool_calls", [])]
    assert [sorted(call) for call in calls] == [["function", "type"]] * 2


def test_legacy_makes_one_call_of_a_function(http: httpx.Client) -> None:
    choice = answer(http, "tools2-legacy-x", tools=TOOLS)
    assert choice["message"]["function_call"]["name"] == "read"
    assert (choice["finish_reason"], "tool_calls" in choice["message"]) == ("function_call", False)
    chunks = streamed(http, "tools-legacy-x", tools=TOOLS)
    deltas = [chunk["choices"][0]["delta"].get("function_call", {}) for chunk in chunks]
    assert json.loads("".join(d.get("arguments", "") for d in deltas)) == {"query": "tools-legacy-x", "n": 0}


@pytest.mark.parametrize(
    ("model", "said"), [("notools-x", "does not support tools"), ("badschema-x", "Invalid schema for function 'read'")]
)
def test_some_refuse_tools_and_answer_without(http: httpx.Client, model: str, said: str) -> None:
    response = ask(http, model, tools=TOOLS)
    assert response.status_code == 400
    assert said in response.json()["error"]["message"]
    assert answer(http, model)["message"]["content"] == f"I am {model}."


def test_cached_and_thought_tokens_are_reported(http: httpx.Client) -> None:
    usage = ask(http, "cached-thought7-x").json()["usage"]
    assert usage["prompt_tokens_details"] == {"cached_tokens": 4}
    assert usage["completion_tokens_details"] == {"reasoning_tokens": 7}


@pytest.mark.parametrize("stream", [False, True])
def test_cut_closes_in_the_middle_of_the_body(http: httpx.Client, stream: bool) -> None:
    with pytest.raises(httpx.RemoteProtocolError):
        ask(http, "cut-x", stream=stream)


async def test_cut_comes_after_some_of_the_text(server: Upstream) -> None:
    received = bytearray()

    async def read(response: aiohttp.ClientResponse) -> None:
        async for part in response.content.iter_any():
            received.extend(part)

    async with (
        aiohttp.ClientSession(server.url) as session,
        session.post("/v1/chat/completions", json=request("cut-x", stream=True)) as response,
    ):
        with pytest.raises(aiohttp.ClientPayloadError):
            await read(response)
    chunks = [json.loads(line.removeprefix("data: ")) for line in received.decode().split("\n") if line]
    assert joined(chunks) == "I am "
    (call,) = await asyncio.to_thread(server.wait_for, lambda calls: calls[0].end is not None)
    assert not call.hung_up


def test_midfail_sends_an_error_event(http: httpx.Client) -> None:
    lines = ask(http, "midfail1-x", stream=True).text.split("\n\n")
    assert "error" in json.loads(lines[-2].removeprefix("data: "))
    assert joined([json.loads(line.removeprefix("data: ")) for line in lines[:-2]]) == "I "


def test_unfinished_ends_without_saying_so(http: httpx.Client) -> None:
    text = ask(http, "unfinished-x", stream=True).text
    assert "[DONE]" not in text
    chunks = [json.loads(line.removeprefix("data: ")) for line in text.split("\n\n") if line]
    assert (joined(chunks), finish(chunks)) == ("I am ", [])


def test_words_combine(http: httpx.Client) -> None:
    assert ask(http, "slow1-fail503-x").status_code == 503
    assert joined(streamed(http, "slow1-pace1-ok")) == "I am slow1-pace1-ok."


def test_slow_waits_before_it_answers(http: httpx.Client, server: Upstream) -> None:
    with pytest.raises(httpx.ReadTimeout):
        http.post("/v1/chat/completions", json=request("slow60000-x"), timeout=0.05)
    (call,) = server.wait_for(lambda calls: calls and calls[0].end is not None)
    assert (call.status, call.hung_up) == (None, True)


def test_once_misbehaves_only_the_first_time(http: httpx.Client, server: Upstream) -> None:
    assert [ask(http, "once-fail500-x").status_code for _ in range(3)] == [500, 200, 200]
    server.clear()
    assert ask(http, "once-fail500-x").status_code == 500


def test_later_misbehaves_from_the_second_time_on(http: httpx.Client, server: Upstream) -> None:
    assert [ask(http, "later-fail500-x").status_code for _ in range(3)] == [200, 500, 500]


@pytest.mark.parametrize("stream", [False, True])
async def test_hang_holds_the_socket_until_the_client_hangs_up(server: Upstream, stream: bool) -> None:
    async with aiohttp.ClientSession(server.url) as session:
        asking = asyncio.ensure_future(session.post("/v1/chat/completions", json=request("hang-x", stream)))
        (call,) = await asyncio.to_thread(server.wait_for, len)
        assert (call.end, call.status, call.hung_up) == (None, None, False)
        asking.cancel()
        (call,) = await asyncio.to_thread(server.wait_for, lambda calls: calls[0].end is not None)
    assert call.hung_up


@pytest.mark.parametrize("model", ["drip1-x", "stall-x"])
@pytest.mark.parametrize("stream", [False, True])
async def test_a_body_that_never_ends_is_held_until_the_client_hangs_up(
    server: Upstream, model: str, stream: bool
) -> None:
    async with aiohttp.ClientSession(server.url) as session:
        async with session.post("/v1/chat/completions", json=request(model, stream)) as response:
            assert response.status == 200
            assert await response.content.readany()
            assert server.calls(model)[0].end is None
        (call,) = await asyncio.to_thread(server.wait_for, lambda calls: calls[0].end is not None)
    assert call.hung_up


async def test_gate_waits_for_its_release(server: Upstream) -> None:
    async with aiohttp.ClientSession(server.url) as session:
        asking = asyncio.ensure_future(session.post("/v1/chat/completions", json=request("gate-x")))
        (call,) = await asyncio.to_thread(server.wait_for, len)
        assert call.status is None
        server.release("gate-x")
        async with await asking as response:
            assert (await response.json())["choices"][0]["message"]["content"] == "I am gate-x."


async def test_step_waits_before_each_piece(server: Upstream) -> None:
    async with (
        aiohttp.ClientSession(server.url) as session,
        session.post("/v1/chat/completions", json=request("step-x", stream=True)) as response,
    ):
        await response.content.readuntil(b"\n\n")
        for piece in ("I ", "am ", "step-x."):
            server.release("step-x")
            chunk = json.loads((await response.content.readuntil(b"\n\n")).removeprefix(b"data: "))
            assert joined([chunk]) == piece
        assert (await response.content.read()).endswith(b"data: [DONE]\n\n")


async def test_many_connections_are_held_at_once(server: Upstream) -> None:
    many = 700
    async with aiohttp.ClientSession(server.url, connector=aiohttp.TCPConnector(limit=0)) as session:

        async def one() -> int:
            async with session.post("/v1/chat/completions", json=request("gate-many")) as response:
                await response.read()
                return response.status

        asking = [asyncio.ensure_future(one()) for _ in range(many)]
        calls = await asyncio.to_thread(server.wait_for, lambda calls: len(calls) == many, 30)
        assert all(call.end is None for call in calls)
        server.release("gate-many", many)
        assert await asyncio.gather(*asking) == [200] * many


def test_calls_are_recorded(http: httpx.Client, server: Upstream) -> None:
    http.post("/v1/chat/completions", json=request("ok-a"), headers={"X-Mark": "m"})
    ask(http, "ok-b")
    server.wait_for(lambda calls: len(calls) == 2 and calls[-1].end is not None)
    first, second = http.get("/calls").json()
    assert (first["model"], second["model"]) == ("ok-a", "ok-b")
    assert first["body"] == request("ok-a")
    assert (first["path"], first["headers"]["x-mark"]) == ("/v1/chat/completions", "m")
    assert (first["status"], first["hung_up"]) == (200, False)
    assert first["start"] <= first["end"] <= second["start"] <= second["end"]
    assert [call.model for call in server.calls("ok-b")] == ["ok-b"]


def test_calls_can_be_forgotten(http: httpx.Client, server: Upstream) -> None:
    ask(http, "ok-a")
    assert http.delete("/calls").status_code == 204
    assert http.get("/calls").json() == []


def test_waiting_for_what_does_not_come_says_what_was_there(http: httpx.Client, server: Upstream) -> None:
    ask(http, "ok-a")
    with pytest.raises(TimeoutError, match="ok-a"):
        server.wait_for(lambda calls: len(calls) == 2, timeout=0)


def test_the_list_of_models_is_empty_and_no_call(http: httpx.Client, server: Upstream) -> None:
    assert http.get("/v1/models").json()["data"] == []
    assert server.calls() == []


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/completions", "/chat/completions"])
def test_another_path_is_recorded_and_not_there(http: httpx.Client, server: Upstream, path: str) -> None:
    assert http.post(path, json=request("ok-a")).status_code == 404
    assert [call.path for call in server.calls()] == [path]


@pytest.mark.parametrize("body", [b"", b"{", b"[1]", b'{"messages": []}'])
def test_a_body_that_names_no_model_is_refused(http: httpx.Client, body: bytes) -> None:
    assert http.post("/v1/chat/completions", content=body).status_code == 400


def test_a_port_that_is_taken_is_an_error(server: Upstream) -> None:
    with pytest.raises(OSError, match="in use"):
        Upstream(server.port).start()
