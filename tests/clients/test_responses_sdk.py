"""OpenAI Responses through OpenAI's own SDK and a real LiteLLM proxy."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import openai
import pytest
from pydantic import BaseModel

from tests.asking import eventually, refusal
from tests.proxy import MASTER_KEY, Proxy
from tests.served import ALICE, BOB
from tests.upstream import UNICODE, Upstream

Json = dict[str, Any]

ASK = "Who are you?"
PIXEL = "data:image/png;base64," + base64.b64encode(b"\x89PNG\r\n\x1a\n").decode()
PATHS = ("/v1/responses", "/responses")


def client_of(url: str, key: str = MASTER_KEY) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0)


@pytest.fixture
def sdk(proxy: Proxy, models: Upstream) -> Iterator[openai.OpenAI]:
    with client_of(proxy.url) as client:
        yield client


@pytest.fixture
async def sdk_async(proxy: Proxy, models: Upstream) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=f"{proxy.url}/v1", api_key=MASTER_KEY, max_retries=0) as client:
        yield client


def bench_of(response: Any) -> Json:
    """What only this gateway sends, and the SDK keeps as it came."""
    data: Json = response.to_dict()["bench"]
    return data


def texts_of(response: Any) -> list[str]:
    return [item.content[0].text for item in response.output]


def check_panel(response: Any, collection: str, *aliases: str) -> None:
    """A completed response of a panel of these seats, each of which says who it is."""
    assert (response.object, response.status, response.error) == ("response", "completed", None)
    assert response.model == f"bench/{collection}"
    assert response.store is False
    data = bench_of(response)
    assert response.id == f"resp_{data['panel']}"
    assert [(seat["alias"], seat["status"]) for seat in data["seats"]] == [(alias, "ok") for alias in aliases]
    for alias in aliases:
        assert f"I am {alias}." in response.output_text


# Answers


def test_a_whole_reply_of_all_seats(sdk: openai.OpenAI, models: Upstream) -> None:
    response = sdk.responses.create(model="bench/pair", input=ASK, instructions="Be brief.", store=True)
    check_panel(response, "pair", "ok-a", "ok-b")
    (text,) = texts_of(response)
    assert text.startswith("# bench/pair\n")
    assert response.usage is not None
    usage = response.usage
    assert (usage.input_tokens, usage.output_tokens, usage.total_tokens) == (20, 10, 30)
    assert (usage.input_tokens_details.cached_tokens, usage.output_tokens_details.reasoning_tokens) == (0, 0)
    for call in models.calls():
        assert call.path == "/v1/chat/completions"
        assert call.body["messages"] == [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": ASK},
        ]


def test_a_streamed_reply_of_all_seats(sdk: openai.OpenAI) -> None:
    with sdk.responses.stream(model="bench/pair", input=ASK) as stream:
        events = list(stream)
        response = stream.get_final_response()
    check_panel(response, "pair", "ok-a", "ok-b")
    kinds = [event.type for event in events]
    assert kinds[:4] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
    ]
    assert kinds[-4:] == [
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]
    assert "".join(e.delta for e in events if e.type == "response.output_text.delta") == response.output_text
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert response.usage is not None
    assert response.usage.total_tokens == 30


async def test_the_asynchronous_client_gets_the_same(sdk_async: openai.AsyncOpenAI) -> None:
    check_panel(await sdk_async.responses.create(model="bench/pair", input=ASK), "pair", "ok-a", "ok-b")
    async with sdk_async.responses.stream(model="bench/pair", input=ASK) as stream:
        kinds = [event.type async for event in stream]
        response = await stream.get_final_response()
    check_panel(response, "pair", "ok-a", "ok-b")
    assert (kinds[0], kinds[-1]) == ("response.created", "response.completed")


@pytest.mark.parametrize("streamed", [False, True])
def test_a_merged_reply(sdk: openai.OpenAI, models: Upstream, streamed: bool) -> None:
    models.say("ok-c", "Both are models.")
    response = told(sdk, "bench/merged", streamed=streamed)
    (text,) = texts_of(response)
    assert text.startswith("Both are models.\n\n---\n\nMerged by ok-c")
    assert bench_of(response)["merger"]["alias"] == "ok-c"
    assert response.usage is not None
    assert response.usage.total_tokens == 45


@pytest.mark.parametrize("streamed", [False, True])
def test_each_seat_of_a_choices_reply_is_a_message(sdk: openai.OpenAI, streamed: bool) -> None:
    response = told(sdk, "bench/choices", streamed=streamed)
    assert texts_of(response) == ["I am ok-a.", "I am ok-b."]
    assert [item.type for item in response.output] == ["message", "message"]
    assert len({item.id for item in response.output}) == 2
    assert [seat["alias"] for seat in bench_of(response)["seats"]] == ["ok-a", "ok-b"]


def test_messages_of_seats_that_speak_at_once_come_one_after_the_other(sdk: openai.OpenAI, models: Upstream) -> None:
    """Also when the first seat is the last to speak."""
    with sdk.responses.create(model="bench/live:choices", input=ASK, stream=True) as stream:
        for name in ("step-c", "step-b"):
            models.release(name, 3)
            models.wait_for(lambda calls, name=name: any(c.model == name and c.end for c in calls))  # type: ignore[misc]
        models.release("step-a", 3)
        events = list(stream)
    order = [e.output_index for e in events if e.type.startswith(("response.output_", "response.content_"))]  # type: ignore[union-attr]
    assert order == sorted(order)
    assert set(order) == {0, 1, 2}
    assert events[-1].type == "response.completed"
    assert texts_of(events[-1].response) == ["I am step-a.", "I am step-b.", "I am step-c."]


@pytest.mark.parametrize("streamed", [False, True])
def test_a_seat_that_was_cut_leaves_its_message_incomplete(sdk: openai.OpenAI, streamed: bool) -> None:
    response = told(sdk, "bench/outcomes:choices", streamed=streamed)
    assert texts_of(response)[3] == "I am length-a."
    assert response.output[3].status == "incomplete"
    assert response.status == "completed"


@pytest.mark.parametrize("streamed", [False, True])
def test_no_character_is_changed(sdk: openai.OpenAI, streamed: bool) -> None:
    assert texts_of(told(sdk, "bench/unicode:choices", streamed=streamed)) == [UNICODE, UNICODE]


def told(sdk: openai.OpenAI, model: str, *, streamed: bool) -> Any:
    """The same response, whole or streamed."""
    if not streamed:
        return sdk.responses.create(model=model, input=ASK)
    with sdk.responses.stream(model=model, input=ASK) as stream:
        return stream.get_final_response()


class Answer(BaseModel):
    name: str
    sure: bool


def test_each_choice_is_parsed_by_the_schema_that_was_asked_for(sdk: openai.OpenAI, models: Upstream) -> None:
    models.say("ok-a", '{"name": "A", "sure": true}')
    models.say("ok-b", '{"name": "B", "sure": false}')
    response = sdk.responses.parse(model="bench/choices", input=ASK, text_format=Answer)
    parsed = [item.content[0].parsed for item in response.output]  # type: ignore[union-attr]
    assert parsed == [Answer(name="A", sure=True), Answer(name="B", sure=False)]
    for call in models.calls():
        assert call.body["response_format"]["json_schema"]["name"] == "Answer"


def test_what_a_panel_said_can_be_sent_back(sdk: openai.OpenAI, models: Upstream) -> None:
    said = sdk.responses.create(model="bench/choices", input=ASK)
    models.clear()
    sdk.responses.create(
        model="bench/solo",
        input=[
            {"role": "user", "content": ASK},
            *[item.to_dict() for item in said.output],  # type: ignore[list-item]
            {"role": "user", "content": [{"type": "input_text", "text": "And now?"}]},
        ],
    )
    (call,) = models.calls("ok-a")
    assert call.body["messages"] == [
        {"role": "user", "content": ASK},
        {"role": "assistant", "content": "I am ok-a."},
        {"role": "assistant", "content": "I am ok-b."},
        {"role": "user", "content": "And now?"},
    ]


def test_settings_reach_every_seat(sdk: openai.OpenAI, models: Upstream) -> None:
    sdk.responses.create(
        model="bench/pair",
        input=ASK,
        temperature=0.2,
        top_p=0.9,
        max_output_tokens=50,
        user="me",
        metadata={"a": "b"},
        include=["reasoning.encrypted_content"],
        truncation="auto",
        service_tier="flex",
    )
    assert len(models.calls()) == 2
    for call in models.calls():
        sent = {name: value for name, value in call.body.items() if name not in {"model", "messages", "stream"}}
        assert sent == {"temperature": 0.2, "top_p": 0.9, "max_tokens": 50}


@pytest.mark.parametrize("url", [PIXEL, "https://example.org/cat.png"])
def test_an_image_reaches_the_seat_that_sees(sdk: openai.OpenAI, models: Upstream, url: str) -> None:
    image: Json = {"type": "input_image", "image_url": url, "detail": "low"}
    response = sdk.responses.create(
        model="bench/seeing",
        input=[{"role": "user", "content": [{"type": "input_text", "text": ASK}, image]}],  # type: ignore[list-item]
    )
    check_panel(response, "seeing", "ok-h")
    (call,) = models.calls("ok-h")
    assert call.body["messages"] == [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": ASK},
                {"type": "image_url", "image_url": {"url": url, "detail": "low"}},
            ],
        }
    ]


def test_options_of_the_gateway_are_taken_and_answers_can_be_judged(sdk: openai.OpenAI, http: httpx.Client) -> None:
    response = sdk.responses.create(model="bench/pair", input=ASK, extra_body={"bench": {"reply": "choices"}})
    assert texts_of(response) == ["I am ok-a.", "I am ok-b."]
    for seat in bench_of(response)["seats"]:
        assert http.post("/bench/verdict", json={"call": seat["call"], "useful": True}).json()["recorded"] is True


def test_headers_name_the_panel_whole_and_streamed(sdk: openai.OpenAI) -> None:
    raw = sdk.responses.with_raw_response.create(model="bench/pair", input=ASK)
    assert raw.headers["x-bench-panel"] == bench_of(raw.parse())["panel"]
    with sdk.responses.create(model="bench/pair", input=ASK, stream=True) as stream:
        assert stream.response.headers["content-type"] == "text/event-stream; charset=utf-8"
        *_, last = stream
    assert stream.response.headers["x-bench-panel"] == bench_of(last.response)["panel"]  # type: ignore[union-attr]


# A sign of life, and hanging up


def test_the_client_survives_the_signs_of_life_of_a_silent_panel(sdk: openai.OpenAI, models: Upstream) -> None:
    alive = 0
    with sdk.responses.stream(model="bench/one-gate", input=ASK) as stream:
        for event in stream:
            alive += event.type == "response.in_progress"
            if alive == 3:  # one belongs to the beginning
                models.release("gate-a")
        response = stream.get_final_response()
    assert alive >= 3
    check_panel(response, "one-gate", "gate-a")


async def test_the_asynchronous_client_survives_them_too(sdk_async: openai.AsyncOpenAI, models: Upstream) -> None:
    alive = 0
    async with sdk_async.responses.stream(model="bench/one-gate", input=ASK) as stream:
        async for event in stream:
            alive += event.type == "response.in_progress"
            if alive == 3:
                models.release("gate-a")
        response = await stream.get_final_response()
    check_panel(response, "one-gate", "gate-a")


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_caller_who_hangs_up_leaves_a_panel_that_goes_on(
    sdk_async: openai.AsyncOpenAI, http: httpx.Client, models: Upstream, streamed: bool
) -> None:
    def panels() -> dict[str, list[str]]:
        listed = http.get("/bench/panels", params={"collection": "one-gate"}).json()["panels"]
        return {panel["panel"]: [seat["status"] for seat in panel["seats"]] for panel in listed}

    before = panels()
    asking = asyncio.create_task(sdk_async.responses.create(model="bench/one-gate", input=ASK, stream=streamed))  # type: ignore[call-overload]
    await asyncio.to_thread(models.wait_for, lambda calls: len(calls) == 1)
    if streamed:
        async with await asking:
            pass
    else:
        asking.cancel()
        await asyncio.wait([asking])
    models.release("gate-a")
    await asyncio.to_thread(eventually, lambda: ["ok"] in [panels()[name] for name in panels().keys() - before])
    assert [seats for name, seats in panels().items() if name not in before] == [["ok"]]
    assert [call.hung_up for call in models.calls()] == [False]


# Refusals and errors


@pytest.mark.parametrize("streamed", [False, True])
def test_an_unknown_collection_is_not_found(sdk: openai.OpenAI, models: Upstream, streamed: bool) -> None:
    with pytest.raises(openai.NotFoundError, match="bench/pair") as raised:
        sdk.responses.create(model="bench/nothing", input=ASK, stream=streamed)  # type: ignore[call-overload]
    assert (raised.value.code, raised.value.param) == ("model_not_found", "model")
    assert models.calls() == []


@pytest.mark.parametrize(
    ("more", "param"),
    [
        ({"tools": [{"type": "function", "name": "read", "parameters": {}, "strict": False}]}, "tools"),
        ({"tools": [{"type": "web_search"}]}, "tools"),
        ({"input": [{"type": "function_call_output", "call_id": "c", "output": "x"}]}, None),
        ({"input": [{"role": "user", "content": [{"type": "input_file", "file_id": "file-1"}]}]}, None),
        ({"input": [{"role": "user", "content": [{"type": "input_image", "file_id": "file-1"}]}]}, None),
        ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "ftp://x"}]}]}, "messages"),
        ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": PIXEL}]}]}, None),
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"background": True}, "background"),
        ({"prompt": {"id": "pmpt_1"}}, "prompt"),
        ({"temperature": "hot"}, "temperature"),
        ({"input": 5}, "input"),
        ({"bench": {"reply": "loud"}}, "bench.reply"),
    ],
)
def test_what_a_panel_does_not_take_is_a_bad_request(
    sdk: openai.OpenAI, models: Upstream, more: Json, param: str | None
) -> None:
    with pytest.raises(openai.BadRequestError) as raised:
        sdk.responses.create(model="bench/pair", input=ASK, extra_body=more)
    assert raised.value.type == "invalid_request_error"
    assert raised.value.param == param
    assert models.calls() == []


def test_an_empty_list_of_tools_is_no_tools(sdk: openai.OpenAI, models: Upstream) -> None:
    response = sdk.responses.create(model="bench/solo", input=ASK, tools=[], tool_choice="auto")
    check_panel(response, "solo", "ok-a")
    (call,) = models.calls()
    assert not {"tools", "tool_choice", "parallel_tool_calls"} & call.body.keys()


def test_a_wrong_key_is_an_authentication_error(proxy: Proxy, models: Upstream) -> None:
    with client_of(proxy.url, "sk-wrong") as stranger, pytest.raises(openai.AuthenticationError) as raised:
        stranger.responses.create(model="bench/pair", input=ASK)
    assert raised.value.response.headers["www-authenticate"] == "Bearer"
    assert raised.value.type == "auth_error"
    assert models.calls() == []


def test_no_seat_answered_is_a_server_error_that_names_each(sdk: openai.OpenAI) -> None:
    with pytest.raises(openai.InternalServerError) as raised:
        sdk.responses.create(model="bench/broken", input=ASK)
    assert raised.value.status_code == 502
    assert raised.value.code == "no_seat_answered"
    for alias in ("fail500-a", "html-a"):
        assert alias in raised.value.message
    assert [seat["status"] for seat in raised.value.response.json()["bench"]["seats"]] == ["error", "error"]


def test_every_seat_limited_is_a_rate_limit_error_that_says_when_to_ask_again(sdk: openai.OpenAI) -> None:
    with pytest.raises(openai.RateLimitError) as raised:
        sdk.responses.create(model="bench/limited", input=ASK)
    assert raised.value.response.headers["retry-after"] == "7"


@pytest.mark.parametrize(("collection", "status"), [("too-long", 413), ("timed-out", 504)])
def test_the_status_says_why_every_seat_failed(sdk: openai.OpenAI, collection: str, status: int) -> None:
    with pytest.raises(openai.APIStatusError) as raised:
        sdk.responses.create(model=f"bench/{collection}", input=ASK)
    assert raised.value.status_code == status


def test_an_error_after_the_200_is_raised(sdk: openai.OpenAI) -> None:
    heard = []
    with (
        sdk.responses.create(model="bench/broken", input=ASK, stream=True) as stream,
        pytest.raises(openai.APIError, match=r"no seat of bench/broken answered: fail500-a") as raised,
    ):
        heard += [event.type for event in stream]
    assert not isinstance(raised.value, openai.APIStatusError)
    assert (raised.value.code, raised.value.type) == ("no_seat_answered", "server_error")
    assert stream.response.status_code == 200


async def test_an_error_after_the_200_is_raised_to_the_asynchronous_client(sdk_async: openai.AsyncOpenAI) -> None:
    stream = await sdk_async.responses.create(model="bench/broken", input=ASK, stream=True)
    with pytest.raises(openai.APIError, match="no seat of bench/broken answered"):
        [event.type async for event in stream]


@pytest.mark.parametrize(
    ("collection", "code"),
    [("broken", "server_error"), ("limited", "rate_limit_exceeded"), ("too-long", "context_length_exceeded")],
)
def test_a_stream_that_fails_ends_with_a_failed_response(http: httpx.Client, collection: str, code: str) -> None:
    body = {"model": f"bench/{collection}", "input": ASK, "stream": True}
    text = http.post("/v1/responses", json=body).text
    *_, error, failed, empty = text.split("\n\n")
    assert empty == ""
    assert error.startswith("event: error\n")
    kind, _, data = failed.partition("\ndata: ")
    assert kind == "event: response.failed"
    response = json.loads(data)["response"]
    assert (response["status"], response["error"]["code"]) == ("failed", code)
    assert response["bench"]["collection"] == f"bench/{collection}"


# Who is in


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("header", ["Authorization", "api-key"])
def test_the_key_may_come_as_openai_or_azure_send_it(proxy: Proxy, models: Upstream, path: str, header: str) -> None:
    value = f"Bearer {MASTER_KEY}" if header == "Authorization" else MASTER_KEY
    with httpx.Client(base_url=proxy.url, trust_env=False, headers={header: value}) as caller:
        reply = caller.post(path, json={"model": "bench/pair", "input": ASK})
    assert reply.status_code == 200, reply.text
    assert [seat["status"] for seat in reply.json()["bench"]["seats"]] == ["ok", "ok"]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer sk-wrong"}, {"api-key": "sk-wrong"}])
def test_a_missing_or_wrong_key_is_401(proxy: Proxy, models: Upstream, path: str, headers: dict[str, str]) -> None:
    with httpx.Client(base_url=proxy.url, trust_env=False, headers=headers) as nobody:
        for streamed in (False, True):
            response = nobody.post(path, json={"model": "bench/pair", "input": ASK, "stream": streamed})
            assert refusal(response, 401)["type"] == "auth_error"
            assert response.headers["www-authenticate"] == "Bearer"
    assert models.calls() == []


def test_a_key_calls_the_collections_of_its_list_and_no_other(workers: Proxy, models: Upstream) -> None:
    with client_of(workers.url, ALICE) as alice, client_of(workers.url, BOB) as bob:
        check_panel(alice.responses.create(model="bench/pair", input=ASK), "pair", "ok-a", "ok-b")
        check_panel(bob.responses.create(model="bench/pair", input=ASK), "pair", "ok-a", "ok-b")
        models.clear()
        for model in ("bench/secret", "bench/secret:all"):
            with pytest.raises(openai.PermissionDeniedError) as raised:
                alice.responses.create(model=model, input=ASK)
            assert raised.value.type == "key_model_access_denied"
            assert "For few." not in raised.value.message
        with pytest.raises(openai.NotFoundError) as unknown:
            bob.responses.create(model="bench/nothing", input=ASK)
        assert "For few." in unknown.value.message
    with workers.client(headers={"Authorization": f"Bearer {ALICE}"}) as caller:
        denied = caller.post("/responses", json={"model": "bench/secret", "input": ASK})
        assert refusal(denied, 403)["type"] == "key_model_access_denied"
    assert models.calls() == []


ODD: list[Json] = [
    {"metadata": "x"},
    {"metadata": ["x"]},
    {"litellm_metadata": "x"},
    {"tools": 5},
    {"tools": [{"type": "mcp"}], "input": ASK},
    {"input": {"x": 1}},
    {"input": [5]},
    {"input": [{"type": "message", "role": "user", "content": [5]}]},
    {"instructions": {"x": 1}},
    {"previous_response_id": {"x": 1}},
    {"user": ["x"]},
    {"stream_options": {"include_usage": True}, "messages": [{"role": "user", "content": "x"}]},
]


@pytest.mark.parametrize("odd", ODD, ids="-".join)
def test_odd_fields_are_answered_or_refused_in_openais_shape(http: httpx.Client, models: Upstream, odd: Json) -> None:
    response = http.post("/v1/responses", json={"model": "bench/solo", "input": ASK, **odd})
    if response.status_code == 200:
        assert "I am ok-a." in response.json()["output"][0]["content"][0]["text"]
    else:
        refusal(response, 400)
        assert models.calls() == []


def test_a_body_that_is_no_request_is_refused_in_openais_shape(http: httpx.Client) -> None:
    for content in (b'{"model": "bench/solo", "input": ', b'{"model": "bench/solo", "input": "\xff"}'):
        refusal(http.post("/v1/responses", content=content, headers={"content-type": "application/json"}), 400)
    plain = http.post("/v1/responses", content=b'{"model": "bench/solo"}', headers={"content-type": "text/plain"})
    refusal(plain, 415)


@pytest.mark.parametrize("path", PATHS)
def test_another_model_is_litellms_own(http: httpx.Client, models: Upstream, path: str) -> None:
    """And reaches the model's server in this very format, which ours do not."""
    http.post(path, json={"model": "ok-a", "input": ASK})
    assert {call.path for call in models.calls()} == {"/v1/responses"}
