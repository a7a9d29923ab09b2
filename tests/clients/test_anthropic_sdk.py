"""Anthropic's own SDK against a real LiteLLM proxy: panels, counts, and errors of its own classes."""

import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import anthropic
import httpx
import pytest
from anthropic import Anthropic, AsyncAnthropic

from tests.asking import Json, Raw, eventually, request_bytes, send, statuses
from tests.claude_code import FIRST_REQUEST
from tests.proxy import MASTER_KEY, Proxy
from tests.served import ALICE, BOB
from tests.upstream import UNICODE, Upstream

MESSAGES = "/v1/messages"
COUNT = "/v1/messages/count_tokens"
PATHS = (MESSAGES, COUNT)
ASKED: Any = [{"role": "user", "content": "Who are you?"}]
PIXEL = "iVBORw0KGgo="
PNG: Any = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}}
TOOL: Any = {"name": "read", "description": "Read a file.", "input_schema": {"type": "object", "properties": {}}}
SCHEMA = {
    "type": "object",
    "properties": {"title": {"type": "string"}},
    "required": ["title"],
    "additionalProperties": False,
}

Connect = Callable[..., Anthropic]


@pytest.fixture
def connect(proxy: Proxy, models: Upstream) -> Iterator[Connect]:
    """Makes clients of the shared proxy; none of them asks twice."""
    opened: list[Anthropic] = []

    def client(url: str = proxy.url, **options: Any) -> Anthropic:
        key = {} if "auth_token" in options else {"api_key": MASTER_KEY}
        transport = anthropic.DefaultHttpxClient(trust_env=False)
        made = Anthropic(base_url=url, max_retries=0, http_client=transport, **{**key, **options})
        opened.append(made)
        return made

    yield client
    for made in opened:
        made.close()


@pytest.fixture
def sdk(connect: Connect) -> Anthropic:
    return connect()


@pytest.fixture
async def async_sdk(proxy: Proxy, models: Upstream) -> AsyncIterator[AsyncAnthropic]:
    transport = anthropic.DefaultAsyncHttpxClient(trust_env=False)
    async with AsyncAnthropic(base_url=proxy.url, api_key=MASTER_KEY, max_retries=0, http_client=transport) as client:
        yield client


def ask(sdk: Anthropic, model: str, **more: Any) -> Any:
    return sdk.messages.create(**{"model": model, "max_tokens": 100, "messages": ASKED, **more})


def streaming(sdk: Anthropic, model: str, **more: Any) -> AbstractContextManager[Any]:
    """Through the SDK's helper, which puts the message together."""
    return sdk.messages.stream(**{"model": model, "max_tokens": 100, "messages": ASKED, **more})


def told(sdk: Anthropic, model: str, *, stream: bool, **more: Any) -> tuple[Any, Json]:
    """The message and the `bench` object of a reply, which is an extra field to the SDK's models."""
    if not stream:
        message = ask(sdk, model, **more)
        return message, bench(message)
    with streaming(sdk, model, **more) as events:
        (data,) = [bench(event) for event in events if event.type == "message_delta"]
        return events.get_final_message(), data


def bench(reply: Any) -> Json:
    found: Json = reply.model_extra["bench"]
    return found


def texts(message: Any) -> list[str]:
    assert all(block.type == "text" for block in message.content)
    return [block.text for block in message.content]


def error_of(error: anthropic.APIStatusError) -> Json:
    """The error of a body in Anthropic's shape."""
    assert isinstance(error.body, dict)
    assert set(error.body) == {"type", "error", "request_id"}
    assert error.body["type"] == "error"
    assert error.body["request_id"].startswith("req_")
    found: Json = error.body["error"]
    assert set(found) == {"type", "message"}
    return found


both = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


# Panels


@both
def test_every_answer_comes_back_named_with_its_own_call(sdk: Anthropic, stream: bool) -> None:
    message, data = told(sdk, "bench/trio", stream=stream)
    assert (message.type, message.role, message.model) == ("message", "assistant", "bench/trio")
    assert message.id == f"msg_{data['panel']}"
    assert (message.stop_reason, message.stop_sequence) == ("end_turn", None)
    assert statuses(data) == {"ok-a": "ok", "ok-b": "ok", "ok-c": "ok"}
    (text,) = texts(message)
    assert text.startswith("# bench/trio\n")
    for number, name in enumerate("abc", 1):
        assert f"## Member {number}: ok-{name}\n" in text
        assert f"`{data['panel']}.member{number}`" in text
        assert f"I am ok-{name}." in text
    assert data["verdict"]["url"] in text


@both
def test_usage_is_the_sum_over_the_seats(sdk: Anthropic, stream: bool) -> None:
    message, data = told(sdk, "bench/metered", stream=stream)
    total = [sum(s.get(name) or 0 for s in data["seats"]) for name in ("prompt_tokens", "completion_tokens")]
    assert [message.usage.input_tokens, message.usage.output_tokens] == total
    assert total[0] >= 810
    assert total[1] >= 125


@both
def test_a_merged_answer_comes_first_and_its_seats_below(sdk: Anthropic, stream: bool) -> None:
    message, data = told(sdk, "bench/merged", stream=stream)
    (text,) = texts(message)
    assert text.startswith("I am ok-c.\n\n---\n\nMerged by ok-c")
    assert data["merger"]["alias"] == "ok-c"


@both
def test_in_mode_choices_each_seat_is_a_block_of_its_own(sdk: Anthropic, stream: bool) -> None:
    message, data = told(sdk, "bench/choices", stream=stream)
    assert texts(message) == ["I am ok-a.", "I am ok-b."] == [seat["answer"] for seat in data["seats"]]


def test_seats_that_speak_at_once_do_not_share_a_block(sdk: Anthropic, models: Upstream) -> None:
    with streaming(sdk, "bench/live:choices") as events:
        models.wait_for(lambda calls: len(calls) == 3)
        for _ in range(3):
            for name in "cba":
                models.release(f"step-{name}")
        indices = [event.index for event in events if event.type == "content_block_delta"]
        message = events.get_final_message()
    assert texts(message) == [f"I am step-{name}." for name in "abc"]
    assert indices == sorted(indices)


@both
def test_an_answer_that_was_cut_says_so(sdk: Anthropic, stream: bool) -> None:
    message, data = told(sdk, "bench/cut-short:choices", stream=stream)
    assert message.stop_reason == "max_tokens"
    assert [seat["finish_reason"] for seat in data["seats"]] == ["length"]


@both
def test_text_in_any_script_comes_back_whole(sdk: Anthropic, stream: bool) -> None:
    message, data = told(sdk, "bench/unicode", stream=stream)
    assert texts(message)[0].count(UNICODE) == 2
    assert [seat["answer"] for seat in data["seats"]] == [UNICODE, UNICODE]


@both
def test_a_seat_that_is_lost_is_named_in_text_and_data(sdk: Anthropic, stream: bool) -> None:
    message, data = told(sdk, "bench/partial", stream=stream)
    assert "**Partial panel**: fail500-a failed (500 server_error)." in texts(message)[0]
    assert data["partial"] is True


def test_the_headers_say_the_same_in_short(sdk: Anthropic) -> None:
    raw = sdk.messages.with_raw_response.create(model="bench/pair", max_tokens=100, messages=ASKED)
    data = bench(raw.parse())
    assert raw.headers["x-bench-panel"] == data["panel"]
    assert raw.headers["x-bench-partial"] == "false"
    assert [seat["call"] for seat in json.loads(raw.headers["x-bench-seats"])] == [s["call"] for s in data["seats"]]


def test_bench_options_go_through_the_sdks_extra_body(sdk: Anthropic) -> None:
    extra = {"bench": {"with": ["ok-b"], "explorers": 0, "shape": "prose"}}
    data = bench(ask(sdk, "bench/guests", extra_body=extra))
    assert [(seat["seat"], seat["alias"]) for seat in data["seats"]] == [("member", "ok-a"), ("guest", "ok-b")]
    assert (data["shape"], data["shape_by"]) == ("prose", "request")


async def test_the_async_sdk_gets_the_same(async_sdk: AsyncAnthropic) -> None:
    message = await async_sdk.messages.create(model="bench/pair", max_tokens=100, messages=ASKED)
    assert statuses(bench(message)) == {"ok-a": "ok", "ok-b": "ok"}
    async with async_sdk.messages.stream(model="bench/pair", max_tokens=100, messages=ASKED) as stream:
        (data,) = [bench(event) async for event in stream if event.type == "message_delta"]
        final = await stream.get_final_message()
    assert statuses(data) == {"ok-a": "ok", "ok-b": "ok"}
    assert texts(final)[0].count("I am ok-") == 2
    with pytest.raises(anthropic.NotFoundError):
        await async_sdk.messages.create(model="bench/pear", max_tokens=100, messages=ASKED)
    events = await async_sdk.messages.create(model="bench/broken", max_tokens=100, messages=ASKED, stream=True)
    with pytest.raises(anthropic.APIStatusError, match="no seat of bench/broken"):
        [event async for event in events]


# What reaches the models


def test_messages_and_settings_reach_each_seat_under_their_names_in_chat(sdk: Anthropic, models: Upstream) -> None:
    ask(
        sdk,
        "bench/echoes",
        system=[{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
        messages=[
            {"role": "user", "content": [{"type": "text", "text": "One."}, {"type": "text", "text": "Two."}]},
            {"role": "assistant", "content": [{"type": "text", "text": "Three."}]},
            *ASKED,
        ],
        stop_sequences=["END"],
        metadata={"user_id": "me"},
        thinking={"type": "adaptive"},
        output_config={"format": {"type": "json_schema", "schema": SCHEMA}},
        service_tier="auto",
        extra_body={"temperature": 0.3, "top_k": 5, "bench": {"explorers": 0}},
    )
    calls = models.calls()
    assert sorted(call.model for call in calls) == ["echo-a", "echo-b"]
    for call in calls:
        assert call.body == {
            "model": call.model,
            "messages": [
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": [{"type": "text", "text": "One."}, {"type": "text", "text": "Two."}]},
                {"role": "assistant", "content": "Three."},
                *ASKED,
            ],
            "max_tokens": 100,
            "stop": ["END"],
            "temperature": 0.3,
            "top_k": 5,
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "answer", "schema": SCHEMA, "strict": True},
            },
        }


@pytest.mark.parametrize("address", [None, "https://example.org/cat.png"], ids=["inline", "by URL"])
def test_images_reach_the_models_that_see(sdk: Anthropic, models: Upstream, address: str | None) -> None:
    image = {"type": "image", "source": {"type": "url", "url": address}} if address else PNG
    ask(sdk, "bench/seeing", messages=[{"role": "user", "content": [image, {"type": "text", "text": "What?"}]}])
    (call,) = models.calls()
    (part, _) = call.body["messages"][0]["content"]
    assert part["image_url"]["url"] == (address or f"data:image/png;base64,{PIXEL}")


def test_images_that_nobody_can_see_are_refused(sdk: Anthropic, models: Upstream) -> None:
    with pytest.raises(anthropic.BadRequestError, match="see"):
        ask(sdk, "bench/pair", messages=[{"role": "user", "content": [PNG]}])
    assert models.calls() == []


def test_the_beta_client_and_its_fields_are_taken(sdk: Anthropic) -> None:
    message = sdk.beta.messages.create(
        model="bench/pair",
        max_tokens=100,
        messages=ASKED,
        betas=["context-management-2025-06-27", "fine-grained-tool-streaming-2025-05-14"],
        context_management={"edits": []},
    )
    assert statuses(bench(message)) == {"ok-a": "ok", "ok-b": "ok"}


def test_another_model_is_litellms_as_before(sdk: Anthropic, models: Upstream) -> None:
    """LiteLLM asks it in OpenAI's newer format, which this model does not speak."""
    with pytest.raises(anthropic.NotFoundError, match="no POST /v1/responses here"):
        ask(sdk, "ok-a")
    assert [call.path for call in models.calls()] == ["/v1/responses"]


# Claude Code


def test_claude_codes_first_request_is_refused_for_its_tools_and_answered_without_them(
    http: httpx.Client, models: Upstream
) -> None:
    asked = {**FIRST_REQUEST, "model": "bench/pair"}
    response = http.post(f"{MESSAGES}?beta=true", json=asked)
    assert response.status_code == 400
    assert response.json()["error"]["type"] == "invalid_request_error"
    assert "tools cannot be used on a panel" in response.json()["error"]["message"]
    assert models.calls() == []

    del asked["tools"]
    response = http.post(f"{MESSAGES}?beta=true", json=asked)
    assert response.status_code == 200
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert response.text.endswith('event: message_stop\ndata: {"type":"message_stop"}\n\n')
    assert [call.body["messages"][0]["role"] for call in models.calls()] == ["system", "system"]


# Counting


def counted(sdk: Anthropic, model: str = "bench/pair", **more: Any) -> Any:
    return sdk.messages.count_tokens(**{"model": model, "messages": ASKED, **more})


def test_tokens_are_counted_without_asking_a_model(sdk: Anthropic, models: Upstream) -> None:
    reply = counted(sdk)
    assert reply.input_tokens > 5
    assert bench(reply) == {"estimate": True}
    assert counted(sdk, system="Be brief.").input_tokens > reply.input_tokens
    assert counted(sdk, tools=[TOOL]).input_tokens > reply.input_tokens
    assert counted(sdk, "bench/pair:route").input_tokens == reply.input_tokens
    picture = counted(sdk, messages=[{"role": "user", "content": [PNG]}])
    assert picture.input_tokens >= 2500
    assert models.calls() == []


def test_claude_codes_first_request_is_counted_with_its_tools(http: httpx.Client, models: Upstream) -> None:
    asked = {**FIRST_REQUEST, "model": "bench/pair"}
    with_tools = http.post(f"{COUNT}?beta=true", json=asked)
    del asked["tools"]
    without = http.post(f"{COUNT}?beta=true", json=asked)
    assert with_tools.status_code == without.status_code == 200
    assert with_tools.json()["input_tokens"] > without.json()["input_tokens"] > 0
    assert models.calls() == []


# Errors, before the 200


@pytest.mark.parametrize("path", PATHS)
def test_an_unknown_collection_is_not_found_and_the_others_are_named(http: httpx.Client, path: str) -> None:
    response = http.post(path, json={"model": "bench/pear", "max_tokens": 5, "messages": ASKED})
    assert response.status_code == 404
    error = response.json()["error"]
    assert error["type"] == "not_found_error"
    assert "bench/pair: Two models. [small]" in error["message"]


def test_an_unknown_collection_is_raised_as_not_found(sdk: Anthropic) -> None:
    with pytest.raises(anthropic.NotFoundError) as caught:
        ask(sdk, "bench/pear")
    assert error_of(caught.value)["type"] == "not_found_error"
    with pytest.raises(anthropic.NotFoundError):
        counted(sdk, "bench/pear")


def user(*blocks: Json) -> Json:
    return {"messages": [{"role": "user", "content": list(blocks)}]}


SEARCH = {"type": "web_search_20250305", "name": "web_search"}
CALL = {"role": "assistant", "content": [{"type": "tool_use", "id": "x", "name": "y", "input": {}}]}
PDF = {"type": "document", "source": {"type": "url", "url": "https://example.org/a.pdf"}}
UPLOADED = {"type": "image", "source": {"type": "file", "file_id": "x"}}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("more", "named"),
    [
        ({"tools": [TOOL]}, "tools cannot be used on a panel"),
        ({"tools": [SEARCH]}, "tools cannot be used on a panel"),
        ({"messages": [*ASKED, CALL]}, "holds a tool call"),
        (user(PDF), '"document"'),
        (user(UPLOADED), '"image by file"'),
        ({"messages": []}, '"messages"'),
        ({"max_tokens": 0}, '"max_tokens"'),
        ({"extra_body": {"bench": {"dedline": 3}}}, 'did you mean "deadline"?'),
    ],
)
def test_what_a_panel_cannot_honour_is_raised_as_a_bad_request(
    sdk: Anthropic, models: Upstream, more: Json, named: str, stream: bool
) -> None:
    with pytest.raises(anthropic.BadRequestError) as caught:
        ask(sdk, "bench/pair", stream=stream, **more)
    error = error_of(caught.value)
    assert error["type"] == "invalid_request_error"
    assert named in error["message"]
    assert models.calls() == []


def test_all_rate_limited_is_raised_as_a_rate_limit_with_the_shortest_wait(sdk: Anthropic) -> None:
    with pytest.raises(anthropic.RateLimitError) as caught:
        ask(sdk, "bench/limited")
    assert caught.value.response.headers["retry-after"] == "7"
    error = error_of(caught.value)
    assert error["type"] == "rate_limit_error"
    assert "rate-a" in error["message"]
    assert "rate30-a" in error["message"]


@pytest.mark.parametrize(
    ("collection", "status", "kind", "named"),
    [
        ("broken", 502, "api_error", ("fail500-a", "html-a")),
        ("too-long", 413, "request_too_large", ("context-a", "4096")),
        ("timed-out", 504, "api_error", ("fail408-a", "timeout")),
    ],
)
def test_a_panel_without_an_answer_is_raised_with_its_status_and_names_each_seat(
    sdk: Anthropic, collection: str, status: int, kind: str, named: tuple[str, ...]
) -> None:
    with pytest.raises(anthropic.APIStatusError) as caught:
        ask(sdk, f"bench/{collection}")
    assert caught.value.status_code == status
    assert isinstance(caught.value, anthropic.InternalServerError) is (status >= 500)
    error = error_of(caught.value)
    assert error["type"] == kind
    assert all(word in error["message"] for word in named)
    assert caught.value.body["request_id"] == f"req_{caught.value.response.headers['x-bench-panel']}"


def test_a_partial_panel_can_be_refused(sdk: Anthropic) -> None:
    with pytest.raises(anthropic.InternalServerError, match="fail500-a"):
        ask(sdk, "bench/partial", extra_body={"bench": {"partial": "refuse"}})


def test_a_model_that_is_not_listed_is_raised_as_not_found(sdk: Anthropic) -> None:
    with pytest.raises(anthropic.NotFoundError, match="bench/pair") as caught:
        sdk.models.retrieve("bench/pear")
    assert error_of(caught.value)["type"] == "not_found_error"


def refused(reply: Raw, status: int, kind: str) -> str:
    assert reply.status == status, reply.body[:500]
    assert reply.headers["content-type"] == "application/json"
    body = reply.json()
    assert (body["type"], body["error"]["type"]) == ("error", kind)
    message: str = body["error"]["message"]
    return message


@pytest.mark.parametrize("path", PATHS)
def test_what_is_no_request_is_refused_in_anthropics_shape(proxy: Proxy, models: Upstream, path: str) -> None:
    def sent(body: bytes, *headers: str, content_type: str = "application/json") -> Raw:
        return send(proxy.url, request_bytes(body, *headers, path=path, content_type=content_type))

    asked = json.dumps({"model": "bench/pair", "max_tokens": 5, "messages": ASKED}).encode()
    assert "not JSON" in refused(sent(asked[:-2]), 400, "invalid_request_error")
    assert "application/json" in refused(sent(asked, content_type="text/plain"), 415, "api_error")
    deep = b'{"model": "bench/pair", "deep": ' + b"[" * 101 + b"]" * 101 + b"}"
    assert "levels" in refused(sent(deep), 400, "invalid_request_error")
    assert '"messages"' in refused(sent(b'{"model": "bench/pair", "max_tokens": 5}'), 400, "invalid_request_error")
    large = b'{"model": "bench/pair", "pad": "' + b"x" * 21 * 1024 * 1024 + b'"}'
    assert "20 MB" in refused(sent(large), 413, "request_too_large")
    assert models.calls() == []


@pytest.mark.parametrize("odd", [5, "x", [], {"tags": 5}, {"user_id": 5}, {"user_id": {}}], ids=str)
def test_bookkeeping_of_an_odd_kind_does_no_harm(http: httpx.Client, models: Upstream, odd: Any) -> None:
    response = http.post(MESSAGES, json={"model": "bench/solo", "max_tokens": 5, "messages": ASKED, "metadata": odd})
    assert response.status_code in {200, 400}
    assert response.json()["type"] in {"message", "error"}


# Errors, after the 200


@pytest.mark.parametrize(
    ("collection", "kind"), [("limited", "rate_limit_error"), ("broken", "api_error"), ("silent", "api_error")]
)
def test_a_failure_after_the_200_is_an_event_that_the_sdk_raises(sdk: Anthropic, collection: str, kind: str) -> None:
    read = []
    with (
        streaming(sdk, f"bench/{collection}") as events,
        pytest.raises(anthropic.APIStatusError, match=f"no seat of bench/{collection}") as caught,
    ):
        read.extend(event.type for event in events)
    assert "message_stop" not in read
    assert caught.value.response.status_code == 200
    assert error_of(caught.value)["type"] == kind


def test_a_stream_that_fails_ends_with_its_error(http: httpx.Client, models: Upstream) -> None:
    asked = {"model": "bench/broken", "max_tokens": 100, "messages": ASKED, "stream": True}
    response = http.post(MESSAGES, json=asked)
    assert response.status_code == 200
    *_, last, rest = response.text.split("\n\n")
    assert (last.splitlines()[0], rest) == ("event: error", "")
    assert "message_stop" not in response.text


# Who is in


def test_the_key_may_come_as_anthropics_clients_send_it(connect: Connect, models: Upstream) -> None:
    for client in (connect(), connect(auth_token=MASTER_KEY, api_key=None)):
        assert statuses(bench(ask(client, "bench/pair"))) == {"ok-a": "ok", "ok-b": "ok"}
        assert counted(client).input_tokens > 0
    for call in models.calls():
        assert MASTER_KEY not in str(call.headers)


@pytest.mark.parametrize("key", [{"api_key": "sk-wrong"}, {"auth_token": "sk-wrong", "api_key": None}])
def test_a_wrong_key_is_raised_as_an_authentication_error(connect: Connect, models: Upstream, key: Json) -> None:
    client = connect(**key)
    for asking in (ask, counted):
        with pytest.raises(anthropic.AuthenticationError) as caught:
            asking(client, "bench/pair")
        assert error_of(caught.value)["type"] == "authentication_error"
        assert caught.value.response.headers["www-authenticate"] == "Bearer"
        assert "sk-wrong" not in caught.value.response.text
    assert models.calls() == []


@pytest.mark.parametrize("key", [ALICE, BOB], ids=["one collection", "all collections"])
def test_a_key_may_ask_what_its_list_of_models_names(workers: Proxy, connect: Connect, key: str) -> None:
    client = connect(workers.url, api_key=key)
    assert statuses(bench(ask(client, "bench/pair"))) == {"ok-a": "ok", "ok-b": "ok"}
    assert counted(client).input_tokens > 0


def test_a_collection_that_a_key_may_not_call_is_raised_as_denied_and_not_described(
    workers: Proxy, connect: Connect, models: Upstream
) -> None:
    client = connect(workers.url, api_key=ALICE)
    for asking in (ask, counted):
        with pytest.raises(anthropic.PermissionDeniedError) as caught:
            asking(client, "bench/secret")
        error = error_of(caught.value)
        assert error["type"] == "permission_error"
        assert "For few." not in error["message"]
        with pytest.raises(anthropic.BadRequestError) as listed:
            asking(client, "bench/pair:odd")
        assert "secret" not in error_of(listed.value)["message"]
    with pytest.raises(anthropic.AuthenticationError):
        ask(connect(workers.url, api_key="sk-stranger"), "bench/pair")
    assert models.calls() == []


# Silence, and callers who leave


def test_silence_is_filled_with_pings(http: httpx.Client, models: Upstream) -> None:
    asked = {"model": "bench/one-gate", "max_tokens": 100, "messages": ASKED, "stream": True}
    with http.stream("POST", MESSAGES, json=asked) as response:
        lines = response.iter_lines()
        pings = 0
        while pings < 2:
            pings += next(lines) == "event: ping"
        models.release("gate-a")
        rest = list(lines)
    assert "event: message_stop" in rest


def test_the_sdk_takes_pings_for_nothing(sdk: Anthropic, models: Upstream) -> None:
    with streaming(sdk, "bench/one-gate") as events:
        reading = iter(events)
        assert next(reading).type == "message_start"
        models.wait_for(lambda calls: len(calls) == 1)
        with pytest.raises(TimeoutError):  # long enough for a ping
            models.wait_for(lambda calls: calls[0].end is not None, timeout=1.5)
        models.release("gate-a")
        kinds = {event.type for event in reading}
        message = events.get_final_message()
    assert kinds == {
        "content_block_start",
        "content_block_delta",
        "text",
        "content_block_stop",
        "message_delta",
        "message_stop",
    }
    assert "I am gate-a." in texts(message)[0]


def test_a_caller_who_hangs_up_does_not_stop_the_panel(sdk: Anthropic, http: httpx.Client, models: Upstream) -> None:
    with streaming(sdk, "bench/gated") as events:
        assert next(iter(events)).type == "message_start"
        models.wait_for(lambda calls: len(calls) == 3)
    gates = ("gate-a", "gate-b", "gate-c")
    for gate in gates:
        models.release(gate)
    models.wait_for(lambda calls: all(call.end is not None for call in calls))
    assert not any(call.hung_up for call in models.calls())

    def newest() -> Json:
        found: list[Json] = http.get("/bench/panels", params={"collection": "gated", "limit": 1}).json()["panels"]
        return found[0] if found else {"over": False}  # it may be on its way to the record

    assert eventually(lambda: newest()["over"] and statuses(newest())) == dict.fromkeys(gates, "ok")


def test_a_caller_who_hangs_up_stops_the_panel_where_the_collection_says_so(sdk: Anthropic, models: Upstream) -> None:
    with streaming(sdk, "bench/cancelled") as events:
        assert next(iter(events)).type == "message_start"
        models.wait_for(lambda calls: len(calls) == 2)
    calls = models.wait_for(lambda calls: all(call.end is not None for call in calls))
    assert all(call.hung_up for call in calls)
