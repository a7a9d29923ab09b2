"""A turn whose member speaks the caller's own format, as it reaches the client."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import pytest
from starlette.types import Message, Receive, Scope

from bench_proxy.bench import Caller
from bench_proxy.formats.places import place
from bench_proxy.http.answering import Answering
from bench_proxy.http.body import Incoming
from tests.doubles import WITHIN, Models, Natives, Table, fails

Json = dict[str, Any]

MESSAGES = "/v1/messages"
RESPONSES = "/v1/responses"
GEMINI = "/v1beta/models/bench/core:route:streamGenerateContent"

BODIES: Mapping[str, Json] = {
    MESSAGES: {"model": "bench/core:route", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]},
    RESPONSES: {"model": "bench/core:route", "input": "hi"},
    GEMINI: {"contents": "hi"},
}


def line(type: str, **more: Any) -> bytes:
    return json.dumps({"type": type, **more}).encode()


START = line("message_start", message={"id": "msg_1", "model": "claude", "usage": {"input_tokens": 30}})
THOUGHT = line("content_block_delta", index=0, delta={"type": "thinking_delta", "thinking": "Hm."})
SIGNED = line("content_block_delta", index=0, delta={"type": "signature_delta", "signature": "c2lnbmVk+/=="})
HELLO = line("content_block_delta", index=1, delta={"type": "text_delta", "text": "Hello."})
DELTA = line("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": 12})
STOP = line("message_stop")

RESPONSE = {"id": "resp_1", "status": "in_progress", "model": "gpt", "output": []}
CREATED = line("response.created", sequence_number=0, response=RESPONSE)
SPOKEN = line("response.output_text.delta", sequence_number=1, delta="Hello.")
COMPLETED = line("response.completed", sequence_number=2, response={**RESPONSE, "status": "completed"})

CHUNK = json.dumps({"candidates": [{"content": {"parts": [{"text": "Hello."}]}}], "modelVersion": "gemini"}).encode()
LAST = json.dumps({"candidates": [{"finishReason": "STOP"}], "modelVersion": "gemini"}).encode()


async def _all(names: Any) -> list[str]:
    return list(names)


class Client:
    """Sends one request; `leave` hangs up. `sent` is what it got, `first` is set with its first bytes. The head of the
    reply takes `begins_in` seconds.
    """

    def __init__(
        self, natives: Natives, models: Models | None = None, *, begins_in: float = 0, **timing: float
    ) -> None:
        self._begins_in = begins_in
        self.table = Table(models or Models(), members=["native", "gpt"], native=natives, timing=timing)
        self.sent: list[Message] = []
        self.first = asyncio.Event()
        self.leave = asyncio.Event()
        self._answering = Answering(lambda: self.table.bench, self._authenticate)

    async def _authenticate(self, _scope: Scope, _receive: Receive, _body: Mapping[str, Any] | None) -> Caller:
        return Caller("me", admin=False, allowed=_all)

    async def ask(self, path: str, query: bytes = b"", headers: Mapping[str, str] | None = None, **more: Any) -> bytes:
        async def send(message: Message) -> None:
            if message["type"] == "http.response.start":
                await asyncio.sleep(self._begins_in)
            self.sent.append(message)
            if message.get("body"):
                self.first.set()

        async def receive() -> Message:
            await self.leave.wait()
            return {"type": "http.disconnect"}

        raw = [(b"content-type", b"application/json")]
        raw += [(name.encode(), value.encode()) for name, value in (headers or {}).items()]
        scope = {"type": "http", "method": "POST", "path": path, "headers": raw, "query_string": query}
        body = json.dumps({**BODIES[path], **more}).encode()
        asked = place(path, query)
        assert asked is not None
        async with asyncio.timeout(WITHIN):
            incoming = Incoming([{"type": "http.request", "body": body}], whole=True)
            await self._answering.answer(asked, incoming, scope, receive, send)
        return b"".join(message.get("body", b"") for message in self.sent)

    @property
    def status(self) -> int:
        return int(self.sent[0]["status"])

    @property
    def headers(self) -> dict[bytes, bytes]:
        return dict(self.sent[0]["headers"])


def native(*script: Any) -> Natives:
    return Natives({"native": "maker"}, native=script)


def events(written: bytes) -> list[Json]:
    lines = [line for line in written.split(b"\n") if line.startswith(b"data: ")]
    return [json.loads(line.removeprefix(b"data: ")) for line in lines]


def kinds(written: bytes) -> list[str]:
    return [event["type"] for event in events(written)]


# What goes wrong.


async def test_a_stream_that_is_cut_behind_its_first_piece_ends_with_an_error_event() -> None:
    for path, script, last in (
        (MESSAGES, [START, HELLO], "error"),
        (RESPONSES, [CREATED, SPOKEN], "response.failed"),
    ):
        client = Client(native(*script, fails(502, "connection", "cut")))
        written = await client.ask(path, stream=True)
        assert client.status == 200
        assert kinds(written)[-1] == last
        assert b"broke off" in written
        assert client.sent[-1]["more_body"] is False


async def test_an_array_that_is_cut_is_still_an_array() -> None:
    written = await Client(native(CHUNK, fails(502, "connection", "cut"))).ask(GEMINI)
    hello, error = json.loads(written)
    assert hello["candidates"][0]["content"]["parts"] == [{"text": "Hello."}]
    assert error["error"]["code"] == 502


async def test_a_native_member_that_fails_leaves_no_trace_in_anothers_answer() -> None:
    natives = native(START, THOUGHT, fails(529, "overloaded"))
    client = Client(natives, Models(gpt=["I am ", "gpt."]))
    written = await client.ask(MESSAGES, stream=True)
    assert client.headers[b"x-bench-model"] == b"gpt"
    assert b"Hm." not in written
    assert kinds(written).count("message_start") == 1
    assert events(written)[-2]["bench"]["failed_over"][0]["alias"] == "native"


async def test_a_caller_who_hangs_up_ends_the_members_call() -> None:
    natives = native(START, HELLO, asyncio.Event(), STOP)
    client = Client(natives)
    asking = asyncio.create_task(client.ask(MESSAGES, stream=True))
    async with asyncio.timeout(WITHIN):
        await client.first.wait()
        client.leave.set()
        await asking
        await natives.closed.wait()
        await client.table.bench.routing.finish()
    assert natives.open == 0
    assert [turn.status for turn in client.table.ledger.turns] == ["cancelled"]


# What is passed on.


async def test_a_streamed_message_is_its_members_own_but_for_the_model_and_bench() -> None:
    client = Client(native(START, THOUGHT, SIGNED, HELLO, DELTA, STOP))
    written = await client.ask(MESSAGES, stream=True)
    assert client.headers[b"content-type"] == b"text/event-stream; charset=utf-8"
    assert client.headers[b"x-bench-model"] == b"native"
    before, _, behind = written.partition(b', "usage": {"output_tokens": 12},"bench":')
    assert before == (
        b"event: message_start\ndata: " + START.replace(b'"claude"', b'"bench/core:route"') + b"\n\n"
        b"event: content_block_delta\ndata: " + THOUGHT + b"\n\n"
        b"event: content_block_delta\ndata: " + SIGNED + b"\n\n"
        b"event: content_block_delta\ndata: " + HELLO + b"\n\n"
        b'event: message_delta\ndata: {"type": "message_delta", "delta": {"stop_reason": "end_turn"}'
    )
    assert behind.endswith(b"event: message_stop\ndata: " + STOP + b"\n\n")
    bench = events(written)[-2]["bench"]
    assert (bench["alias"], bench["verdict"]["method"]) == ("native", "POST")


@pytest.mark.parametrize(("path", "more"), [(MESSAGES, {}), (RESPONSES, {})])
async def test_a_whole_answer_is_its_members_own_with_bench(path: str, more: Json) -> None:
    message = {"model": "claude", "content": [{"type": "text", "text": "Hello."}], "stop_reason": "end_turn"}
    response = {"model": "gpt", "output": [{"type": "message", "content": [{"type": "output_text", "text": "Hello."}]}]}
    body = message if path == MESSAGES else response
    client = Client(native(json.dumps(body).encode()))
    answer = json.loads(await client.ask(path, **more))
    assert answer.pop("bench")["alias"] == "native"
    assert answer == {**body, "model": "bench/core:route"}
    assert b"x-bench-call" in client.headers


async def test_chunks_are_an_array_or_events_as_was_asked() -> None:
    written = await Client(native(CHUNK, LAST)).ask(GEMINI)
    as_array = json.loads(written)
    as_events = events(await Client(native(CHUNK, LAST)).ask(GEMINI, b"alt=sse"))
    for chunks in (as_array, as_events):
        assert [chunk["modelVersion"] for chunk in chunks] == ["bench/core:route"] * 2
        assert ["bench" in chunk for chunk in chunks] == [False, True]


async def test_only_the_headers_by_which_a_vendors_features_are_chosen_reach_the_member() -> None:
    natives = native(START, HELLO, DELTA, STOP)
    chosen = {"anthropic-beta": "context-1m", "anthropic-version": "2023-06-01"}
    await Client(natives).ask(
        MESSAGES, headers={**chosen, "x-api-key": "secret", "authorization": "secret"}, stream=True
    )
    assert natives.calls[0].headers == chosen
    assert set(natives.calls[0].body) == {"max_tokens", "messages"}


# Signs of life.


async def test_a_reply_that_had_to_begin_before_its_member_has_one_beginning() -> None:
    for path, script, start in (
        (MESSAGES, [START, THOUGHT, 0.2, HELLO, DELTA, STOP], "message_start"),
        (RESPONSES, [CREATED, 0.2, SPOKEN, COMPLETED], "response.created"),
    ):
        client = Client(native(*script), hold_status=0.02, keep_alive=1)
        written = await client.ask(path, stream=True)
        assert kinds(written).count(start) == 1
        assert b"Hello." in written
        assert b"x-bench-model" not in client.headers


@pytest.mark.parametrize("script", [[START, 0.05, HELLO, DELTA, STOP], [fails(529, "overloaded")]])
async def test_nothing_overtakes_a_beginning_that_leaves_slowly(script: list[Any]) -> None:
    models = Models(gpt=[0.05, "Hello."])
    client = Client(native(*script), models, begins_in=0.2, hold_status=0.02, keep_alive=1)
    written = await client.ask(MESSAGES, stream=True)
    assert client.sent[0]["type"] == "http.response.start"
    assert kinds(written)[0] == "message_start"
    assert kinds(written).count("message_start") == 1
    assert b"Hello." in written


async def test_a_refusal_while_the_beginning_leaves_slowly_is_an_event_behind_it() -> None:
    failing = Models(gpt=[0.05, fails(500)])
    client = Client(native(fails(529, "overloaded")), failing, begins_in=0.2, hold_status=0.02, keep_alive=1)
    written = await client.ask(MESSAGES, stream=True)
    assert [message["type"] for message in client.sent].count("http.response.start") == 1
    assert kinds(written) == ["message_start", "error"]


async def test_the_numbers_of_responses_rise_through_signs_of_life_and_errors() -> None:
    script = [CREATED, SPOKEN, 1.5, SPOKEN, fails(502, "connection", "cut")]
    written = await Client(native(*script), keep_alive=1).ask(RESPONSES, stream=True)
    assert "response.in_progress" in kinds(written)
    assert kinds(written).count("response.created") == 1
    numbers = [event["sequence_number"] for event in events(written)]
    assert numbers == list(range(len(numbers)))


async def test_nothing_stands_before_what_the_member_begins_with() -> None:
    written = await Client(native(CHUNK, LAST)).ask(GEMINI, b"alt=sse")
    assert events(written)[0]["candidates"][0]["content"]["parts"] == [{"text": "Hello."}]


async def test_what_a_member_says_at_once_leaves_at_once() -> None:
    models = Models(native=[f"word{n} " for n in range(20)])
    client = Client(Natives({}), models)
    written = await client.ask(RESPONSES, stream=True)
    said = "".join(event["delta"] for event in events(written) if event["type"] == "response.output_text.delta")
    assert said == "".join(f"word{n} " for n in range(20))
    bodies = [message["body"] for message in client.sent if message.get("body")]
    assert len(bodies) == 2
    assert b"word0 " in bodies[0]
    assert b"word19 " in bodies[0]
