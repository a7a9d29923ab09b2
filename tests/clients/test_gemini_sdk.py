"""Google's own SDK, google-genai, against a real LiteLLM proxy: panels, whole and streamed, errors, settings, keys."""

import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import pytest
from google import genai
from google.genai import errors, types
from pydantic import BaseModel

from tests.asking import Json, eventually, statuses
from tests.proxy import MASTER_KEY, Proxy
from tests.served import ALICE, BOB
from tests.upstream import UNICODE, Upstream

# The SDK's session extends aiohttp's, which aiohttp discourages.
pytestmark = pytest.mark.filterwarnings("ignore:Inheritance class AiohttpClientSession:DeprecationWarning")

PIXEL = b"\x89PNG\r\n\x1a\n\xff\xef\xbe\xff\xef\xbe"
BASES = ["/v1beta/models", "/v1/models", "/models"]
HELLO = {"contents": [{"parts": [{"text": "Who are you?"}]}]}


def options(proxy: Proxy, version: str | None = None) -> types.HttpOptions:
    return types.HttpOptions(
        base_url=proxy.url,
        api_version=version,
        timeout=60_000,
        client_args={"trust_env": False},
        async_client_args={"trust_env": False},
        retry_options=types.HttpRetryOptions(attempts=1),
    )


@pytest.fixture
def sdk(proxy: Proxy, models: Upstream) -> Iterator[genai.Client]:
    with genai.Client(api_key=MASTER_KEY, http_options=options(proxy)) as client:
        yield client


@pytest.fixture(params=["aiohttp", "httpx"])
async def aio(proxy: Proxy, models: Upstream, request: pytest.FixtureRequest) -> AsyncIterator[Any]:
    """The SDK reads a stream in a way of its own over each of the libraries that it takes."""
    async with httpx.AsyncClient(trust_env=False, timeout=60) as plain:
        asked = options(proxy)
        if request.param == "httpx":
            asked.httpx_async_client = plain
        client = genai.Client(api_key=MASTER_KEY, http_options=asked)
        async with client.aio as asynchronous:
            yield asynchronous
        client.close()


def config(**more: Any) -> types.GenerateContentConfig:
    return types.GenerateContentConfig(
        automatic_function_calling=types.AutomaticFunctionCallingConfig(disable=True), **more
    )


def asking(**bench: Any) -> types.GenerateContentConfig:
    return config(http_options=types.HttpOptions(extra_body={"bench": bench}))


def data_of(client: genai.Client, model: str, **bench: Any) -> Json:
    """The `bench` object, which the SDK shows only in the body as it came."""
    asked = asking(**bench)
    asked.should_return_http_response = True
    response = client.models.generate_content(model=model, contents="Who are you?", config=asked)
    assert response.sdk_http_response is not None
    assert response.sdk_http_response.body is not None
    data: Json = json.loads(response.sdk_http_response.body)["bench"]
    return data


def texts(chunks: list[types.GenerateContentResponse]) -> dict[int, str]:
    """Index -> text, over all candidates of all chunks."""
    said: dict[int, str] = {}
    for chunk in chunks:
        for candidate in chunk.candidates or ():
            parts = (candidate.content.parts if candidate.content else None) or []
            index = candidate.index or 0
            said[index] = said.get(index, "") + "".join(part.text or "" for part in parts)
    return said


def ends(response: types.GenerateContentResponse) -> list[str | None]:
    return [c.finish_reason and c.finish_reason.value for c in response.candidates or ()]


def counted(response: types.GenerateContentResponse) -> tuple[int | None, int | None, int | None]:
    usage = response.usage_metadata
    assert usage is not None
    return usage.prompt_token_count, usage.candidates_token_count, usage.total_token_count


# Panels


@pytest.mark.parametrize("version", [None, "v1", "v1beta"])
def test_a_panel_answers_under_each_version_of_the_api(proxy: Proxy, models: Upstream, version: str | None) -> None:
    with genai.Client(api_key=MASTER_KEY, http_options=options(proxy, version)) as client:
        response = client.models.generate_content(model="bench/pair", contents="Who are you?", config=config())
        streamed = list(client.models.generate_content_stream(model="bench/pair", contents="Who are you?"))
        assert (client.models.count_tokens(model="bench/pair", contents="hello " * 50).total_tokens or 0) > 50
    for text in (response.text or "", texts(streamed)[0]):
        assert text.startswith("# bench/pair\n\n")
        assert "I am ok-a." in text
        assert "I am ok-b." in text


def test_a_whole_reply_has_its_end_usage_and_the_model_as_asked(sdk: genai.Client) -> None:
    response = sdk.models.generate_content(model="bench/pair:all", contents="Who are you?")
    assert ends(response) == ["STOP"]
    assert counted(response) == (20, 10, 30)
    assert response.model_version == "bench/pair:all"
    assert response.response_id in (response.text or "")


def test_a_streamed_reply_has_them_on_its_last_chunk(sdk: genai.Client) -> None:
    *chunks, last = sdk.models.generate_content_stream(model="bench/pair", contents="Who are you?")
    assert all(chunk.usage_metadata is None and ends(chunk) == [None] for chunk in chunks)
    assert ends(last) == ["STOP"]
    assert counted(last) == (20, 10, 30)
    assert {chunk.model_version for chunk in [*chunks, last]} == {"bench/pair"}


def test_bench_options_are_taken_from_extra_body_and_bench_data_comes_back(sdk: genai.Client) -> None:
    data = data_of(sdk, "bench/pair", shape="review")
    assert (data["collection"], data["reply"]) == ("bench/pair", "all")
    assert (data["shape"], data["shape_by"]) == ("review", "request")
    assert statuses(data) == {"ok-a": "ok", "ok-b": "ok"}


async def test_the_asynchronous_client_gets_the_same(aio: Any) -> None:
    response = await aio.models.generate_content(model="bench/pair", contents="Who are you?")
    assert "I am ok-b." in response.text
    chunks = [c async for c in await aio.models.generate_content_stream(model="bench/pair", contents="Who are you?")]
    assert "I am ok-b." in texts(chunks)[0]
    assert counted(chunks[-1]) == counted(response) == (20, 10, 30)
    with pytest.raises(errors.ClientError) as refused:
        await aio.models.generate_content(model="bench/nothing", contents="Who are you?")
    assert (refused.value.code, refused.value.status) == (404, "NOT_FOUND")
    with pytest.raises(errors.ServerError) as failed:
        async for _ in await aio.models.generate_content_stream(model="bench/broken", contents="Who are you?"):
            pass
    assert (failed.value.code, failed.value.status) == (502, "UNAVAILABLE")


@pytest.mark.parametrize("model", ["bench/merged", "bench/pair:merged", "models/bench/merged:latest"])
def test_merged_is_one_answer(sdk: genai.Client, model: str) -> None:
    whole = sdk.models.generate_content(model=model, contents="Who are you?").text or ""
    streamed = texts(list(sdk.models.generate_content_stream(model=model, contents="Who are you?")))[0]
    for text in (whole, streamed):
        assert text.startswith("I am ok-")
        assert "\n\n---\n\nMerged by ok-" in text
    assert data_of(sdk, model)["reply"] == "merged"


def test_in_choices_each_seat_is_a_candidate(sdk: genai.Client) -> None:
    asked = asking(reply="choices")
    whole = sdk.models.generate_content(model="bench/outcomes", contents="Who are you?", config=asked)
    *chunks, last = sdk.models.generate_content_stream(model="bench/outcomes", contents="Who are you?", config=asked)
    expected = {
        0: "I am ok-a.",
        1: "[empty-a: empty]",
        2: "[null-a: empty]",
        3: "I am length-a.",
        4: "[fail500-a: error (500 server_error)]",
    }
    assert texts([whole]) == texts([*chunks, last]) == expected
    assert ends(whole) == ends(last) == ["STOP", "STOP", "STOP", "MAX_TOKENS", "STOP"]
    assert list(expected) == [c.index for c in whole.candidates or ()] == [c.index for c in last.candidates or ()]
    seats = data_of(sdk, "bench/outcomes", reply="choices")["seats"]
    assert [seat["alias"] for seat in seats] == ["ok-a", "empty-a", "null-a", "length-a", "fail500-a"]


def test_live_tokens_come_as_they_are_spoken(sdk: genai.Client, models: Upstream) -> None:
    chunks = sdk.models.generate_content_stream(model="bench/live", contents="Who are you?")
    assert "# bench/live" in (next(chunks).text or "")
    said = []
    for alias in ("step-a", "step-b", "step-c"):
        models.release(alias)
        said.append(next(text for chunk in chunks if "I " in (text := chunk.text or "")))
        models.release(alias, 2)
        said.append(next(text for chunk in chunks if f"{alias}." in (text := chunk.text or "")))
    list(chunks)
    assert [alias in text for alias, text in zip(("step-a", "step-b", "step-c"), said[1::2], strict=True)] == [True] * 3
    assert "step-a." not in said[0]


def test_no_character_is_lost(sdk: genai.Client) -> None:
    whole = sdk.models.generate_content(model="bench/unicode", contents=UNICODE)
    streamed = list(sdk.models.generate_content_stream(model="bench/unicode", contents=UNICODE))
    assert (whole.text or "").count(UNICODE) == texts(streamed)[0].count(UNICODE) == 2


def test_signs_of_life_are_survived_while_models_think(sdk: genai.Client, models: Upstream) -> None:
    said, signs = "", 0
    for chunk in sdk.models.generate_content_stream(model="bench/one-gate", contents="Who are you?"):
        said += chunk.text or ""
        if chunk.text == "" and ends(chunk) == [None]:
            signs += 1
            if signs == 2:
                models.release("gate-a")
    assert signs >= 2
    assert "I am gate-a." in said


async def test_signs_of_life_are_survived_by_the_asynchronous_client(aio: Any, models: Upstream) -> None:
    said, signs = "", 0
    async for chunk in await aio.models.generate_content_stream(model="bench/one-gate", contents="Who are you?"):
        said += chunk.text or ""
        if chunk.text == "" and ends(chunk) == [None]:
            signs += 1
            models.release("gate-a")
    assert signs >= 1
    assert "I am gate-a." in said


def test_a_chat_remembers_what_was_streamed_as_one_answer(sdk: genai.Client, models: Upstream) -> None:
    chat = sdk.chats.create(model="bench/solo")
    first = "".join(chunk.text or "" for chunk in chat.send_message_stream("Who are you?"))
    chat.send_message("And now?")
    (asked, again) = models.calls("ok-a")
    assert asked.body["messages"] == [{"role": "user", "content": "Who are you?"}]
    assert again.body["messages"] == [
        {"role": "user", "content": "Who are you?"},
        {"role": "assistant", "content": first},
        {"role": "user", "content": "And now?"},
    ]


# What reaches the models


class Out(BaseModel):
    name: str
    n: int | None


def test_settings_reach_each_model(sdk: genai.Client, models: Upstream) -> None:
    asked = config(
        system_instruction=["Be brief.", "Be kind."],
        temperature=0.25,
        top_p=0.5,
        top_k=40,
        max_output_tokens=100,
        stop_sequences=["ZZZ"],
        seed=7,
        presence_penalty=0.5,
        frequency_penalty=0.25,
        response_mime_type="application/json",
        response_schema=Out,
        safety_settings=[types.SafetySetting(category="HARM_CATEGORY_HARASSMENT", threshold="BLOCK_NONE")],
        thinking_config=types.ThinkingConfig(include_thoughts=True, thinking_budget=512),
    )
    assert sdk.models.generate_content(model="bench/pair", contents=["One.", "Two."], config=asked).text
    for call in models.calls():
        sent = call.body
        assert sent["messages"][0]["role"] == "system"
        assert [part["text"] for part in sent["messages"][0]["content"]] == ["Be brief.", "Be kind."]
        assert [part["text"] for part in sent["messages"][1]["content"]] == ["One.", "Two."]
        expected = {"temperature": 0.25, "top_p": 0.5, "top_k": 40, "max_tokens": 100, "stop": ["ZZZ"], "seed": 7}
        expected |= {"presence_penalty": 0.5, "frequency_penalty": 0.25, "reasoning_effort": "low"}
        assert {name: sent.get(name) for name in expected} == expected
        schema = sent["response_format"]["json_schema"]["schema"]
        assert schema["type"] == "object"
        assert schema["properties"]["name"]["type"] == "string"
        assert schema["properties"]["n"]["type"] == ["integer", "null"]
        assert "safetySettings" not in json.dumps(sent)
    assert len(models.calls()) == 2


def test_an_image_reaches_a_model_that_sees(sdk: genai.Client, models: Upstream) -> None:
    contents = [types.Part.from_bytes(data=PIXEL, mime_type="image/png"), "What is this?"]
    assert "I am ok-h." in (sdk.models.generate_content(model="bench/seeing", contents=contents).text or "")
    (call,) = models.calls()
    image, text = call.body["messages"][0]["content"]
    assert text == {"type": "text", "text": "What is this?"}
    assert image["image_url"]["url"] == "data:image/png;base64,iVBORw0KGgr/777/774="


# Errors

NOTHING = types.FunctionDeclaration(name="read", description="Reads.", parameters_json_schema={"type": "object"})
REFUSED: list[tuple[str, Any, types.GenerateContentConfig, int, str, str]] = [
    ("bench/nothing", "x", config(), 404, "NOT_FOUND", "there is no collection"),
    ("bench/pair:odd", "x", config(), 400, "INVALID_ARGUMENT", "unknown reply mode"),
    ("bench", "x", config(), 400, "INVALID_ARGUMENT", "names no collection"),
    ("bench/pair", "x", asking(odd=1), 400, "INVALID_ARGUMENT", "bench.odd: unknown key"),
    (
        "bench/pair",
        "x",
        config(tools=[types.Tool(function_declarations=[NOTHING])]),
        400,
        "INVALID_ARGUMENT",
        "tools cannot be used on a panel",
    ),
    (
        "bench/pair",
        "x",
        config(tools=[types.Tool(google_search=types.GoogleSearch())]),
        400,
        "INVALID_ARGUMENT",
        "tools cannot be used on a panel",
    ),
    (
        "bench/pair",
        types.Part.from_bytes(data=b"x", mime_type="application/pdf"),
        config(),
        400,
        "INVALID_ARGUMENT",
        'of type "file" is not taken by a panel',
    ),
    ("bench/pair", "x", config(cached_content="cachedContents/a"), 400, "INVALID_ARGUMENT", "nothing is stored here"),
    ("bench/pair", types.Part.from_bytes(data=PIXEL, mime_type="image/png"), config(), 400, "INVALID_ARGUMENT", "see"),
]


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(("model", "contents", "asked", "code", "status", "words"), REFUSED)
def test_a_refusal_is_the_sdks_own_error(
    sdk: genai.Client,
    models: Upstream,
    model: str,
    contents: Any,
    asked: types.GenerateContentConfig,
    code: int,
    status: str,
    words: str,
    *,
    streamed: bool,
) -> None:
    ask = sdk.models.generate_content_stream if streamed else sdk.models.generate_content
    with pytest.raises(errors.ClientError) as refused:
        list(ask(model=model, contents=contents, config=asked))
    assert (refused.value.code, refused.value.status) == (code, status)
    assert words in (refused.value.message or "")
    assert models.calls() == []


@pytest.mark.parametrize(
    ("model", "kind", "code", "status"),
    [
        ("bench/broken", errors.ServerError, 502, "UNAVAILABLE"),
        ("bench/limited", errors.ClientError, 429, "RESOURCE_EXHAUSTED"),
        ("bench/too-long", errors.ClientError, 413, "INVALID_ARGUMENT"),
        ("bench/silent", errors.ServerError, 504, "DEADLINE_EXCEEDED"),
    ],
)
def test_a_panel_on_which_no_seat_answered_is_an_error_also_after_the_200(
    sdk: genai.Client, models: Upstream, model: str, kind: type[errors.APIError], code: int, status: str
) -> None:
    with pytest.raises(kind) as whole:
        sdk.models.generate_content(model=model, contents="Who are you?")
    chunks = sdk.models.generate_content_stream(model=model, contents="Who are you?")
    assert f"# {model}" in (next(chunks).text or "")
    with pytest.raises(kind) as streamed:
        list(chunks)
    for error in (whole.value, streamed.value):
        assert (error.code, error.status) == (code, status)
        assert f"no seat of {model} answered" in (error.message or "")
        assert error.details["bench"]["partial"] is True
    for call in models.calls():
        if call.model.startswith("gate"):
            models.release(call.model)


def test_how_long_to_wait_is_told_twice(sdk: genai.Client) -> None:
    with pytest.raises(errors.ClientError) as limited:
        sdk.models.generate_content(model="bench/limited", contents="Who are you?")
    assert limited.value.response.headers["retry-after"] == "7"
    assert limited.value.details["error"]["details"][0]["retryDelay"] == "7s"


def test_a_wrong_key_is_the_sdks_own_error(proxy: Proxy, models: Upstream) -> None:
    with genai.Client(api_key="sk-wrong", http_options=options(proxy)) as client:
        for ask in (client.models.generate_content, client.models.generate_content_stream, client.models.count_tokens):
            with pytest.raises(errors.ClientError) as refused:
                list(ask(model="bench/pair", contents="Who are you?"))
            assert (refused.value.code, refused.value.status) == (401, "UNAUTHENTICATED")
    assert models.calls() == []


# Hanging up


def test_a_caller_who_hangs_up_does_not_stop_a_panel(
    proxy: Proxy, sdk: genai.Client, http: httpx.Client, models: Upstream
) -> None:
    with genai.Client(api_key=MASTER_KEY, http_options=options(proxy)) as leaving:
        chunks = leaving.models.generate_content_stream(model="bench/one-gate", contents="Who are you?")
        panel = next(chunks).response_id
        models.wait_for(lambda calls: len(calls) == 1)
    del chunks
    models.release("gate-a")
    kept = eventually(lambda: http.get(f"/bench/panels/{panel}").json().get("seats"))
    assert [(seat["status"], seat["answer"]) for seat in kept] == [("ok", "I am gate-a.")]


def test_a_caller_who_hangs_up_stops_a_panel_whose_collection_says_so(proxy: Proxy, models: Upstream) -> None:
    with genai.Client(api_key=MASTER_KEY, http_options=options(proxy)) as leaving:
        chunks = leaving.models.generate_content_stream(model="bench/cancelled", contents="Who are you?")
        assert next(chunks).text
        models.wait_for(lambda calls: len(calls) == 2)
    del chunks
    models.wait_for(lambda calls: all(call.hung_up for call in calls), timeout=30)


# What no SDK sends


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize(
    "model",
    ["bench/pair", "bench%2Fpair", "bench/pair:merged", "bench%2Fpair%3Amerged", "models/bench/pair", "BENCH/pair:all"],
)
def test_the_model_may_be_encoded_in_the_address_or_not(http: httpx.Client, base: str, model: str) -> None:
    response = http.post(f"{base}/{model}:generateContent", json=HELLO)
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == "application/json"
    assert response.headers["x-bench-collection"] == "bench/pair"
    reply = response.json()
    assert reply["modelVersion"] == model.replace("%2F", "/").replace("%3A", ":").removeprefix("models/")
    assert reply["bench"]["reply"] == ("merged" if "merged" in model else "all")


def test_without_alt_sse_a_stream_is_one_array(http: httpx.Client, models: Upstream) -> None:
    address = "/v1beta/models/bench/one-gate:streamGenerateContent"
    with http.stream("POST", address, json=HELLO) as response:
        assert response.status_code == 200
        assert response.headers["content-type"] == "application/json"
        read = b""
        for part in response.iter_raw():
            read += part
            if read.count(b'"text":""') == 2 and b"I am" not in read:
                models.release("gate-a")
    *chunks, last = json.loads(read)
    assert "I am gate-a." in "".join(c["candidates"][0]["content"]["parts"][0]["text"] for c in chunks)
    assert last["candidates"][0]["finishReason"] == "STOP"
    assert statuses(last["bench"]) == {"gate-a": "ok"}
    assert all("bench" not in chunk for chunk in chunks)


def test_an_error_closes_the_array(http: httpx.Client) -> None:
    *chunks, last = http.post("/v1beta/models/bench/broken:streamGenerateContent", json=HELLO).json()
    assert chunks
    assert (last["error"]["code"], last["error"]["status"]) == (502, "UNAVAILABLE")


def test_a_stream_of_events_ends_with_bench_data(http: httpx.Client) -> None:
    response = http.post("/v1beta/models/bench/pair:streamGenerateContent?alt=sse", json=HELLO)
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    blocks = response.text.removesuffix("\n\n").split("\n\n")
    *chunks, last = [json.loads(block.removeprefix("data: ")) for block in blocks]
    assert statuses(last["bench"]) == {"ok-a": "ok", "ok-b": "ok"}
    assert all("bench" not in chunk for chunk in chunks)


@pytest.mark.parametrize("sent", [{"contents": "Who?"}, {"generateContentRequest": {"contents": [{"parts": "Who?"}]}}])
def test_a_count_asks_no_model(http: httpx.Client, models: Upstream, sent: Json) -> None:
    response = http.post("/v1beta/models/bench/pair:countTokens", json=sent)
    assert response.json()["totalTokens"] > 0
    assert response.json()["bench"] == {"estimate": True}
    assert models.calls() == []


@pytest.mark.parametrize("content", [b"{", b"[]", b'{"contents": [{"parts": [{"text": 5}]}]}', b'{"contents": []}'])
def test_a_body_that_is_none_is_refused_in_googles_shape(http: httpx.Client, content: bytes) -> None:
    headers = {"content-type": "application/json"}
    response = http.post("/v1beta/models/bench/pair:generateContent", content=content, headers=headers)
    assert response.status_code == 400
    error = response.json()["error"]
    assert (error["code"], error["status"]) == (400, "INVALID_ARGUMENT")


def test_other_models_stay_litellms(http: httpx.Client, bare: Proxy) -> None:
    with bare.client() as litellm:
        for address in ("/v1beta/models/ok-a:generateContent", "/v1/models/ok-a:generateContent"):
            ours, theirs = http.post(address, json=HELLO), litellm.post(address, json=HELLO)
            assert (ours.status_code, ours.json()) == (theirs.status_code, theirs.json())


# Keys


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("action", ["generateContent", "streamGenerateContent", "countTokens"])
def test_the_key_may_come_in_googles_header_or_in_the_address(
    proxy: Proxy, models: Upstream, base: str, action: str
) -> None:
    address = f"{base}/bench/pair:{action}"
    with httpx.Client(base_url=proxy.url, trust_env=False) as caller:
        assert caller.post(address, json=HELLO, headers={"x-goog-api-key": MASTER_KEY}).status_code == 200
        assert caller.post(address, json=HELLO, params={"key": MASTER_KEY}).status_code == 200
        models.clear()
        no_keys: list[Json] = [{}, {"headers": {"x-goog-api-key": "sk-wrong"}}, {"params": {"key": "sk-wrong"}}]
        for no_key in no_keys:
            response = caller.post(address, json=HELLO, **no_key)
            assert response.status_code == 401
            assert response.headers["www-authenticate"] == "Bearer"
            error = response.json()["error"]
            assert set(error) == {"code", "message", "status"}
            assert (error["code"], error["status"]) == (401, "UNAUTHENTICATED")
            assert "sk-wrong" not in response.text
    assert models.calls() == []


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("action", ["generateContent", "streamGenerateContent", "countTokens"])
def test_a_key_calls_the_collections_of_its_list_and_no_others(
    workers: Proxy, models: Upstream, base: str, action: str
) -> None:
    with httpx.Client(base_url=workers.url, trust_env=False, timeout=60) as caller:
        for mode in ("", ":merged"):
            for key in (ALICE, BOB):
                allowed = caller.post(f"{base}/bench/pair{mode}:{action}", json=HELLO, headers={"x-goog-api-key": key})
                assert allowed.status_code == 200, allowed.text
            models.clear()
            refused = caller.post(f"{base}/bench/secret{mode}:{action}", json=HELLO, params={"key": ALICE})
            assert refused.status_code == 403
            error = refused.json()["error"]
            assert (error["code"], error["status"]) == (403, "PERMISSION_DENIED")
            assert "For few." not in error["message"]
            assert models.calls() == []


def test_the_address_decides_which_model_is_asked_not_the_body(workers: Proxy, models: Upstream) -> None:
    with workers.client(headers={"Authorization": f"Bearer {ALICE}"}) as alice:
        address = "/v1beta/models/bench/secret:generateContent"
        assert alice.post(address, json={**HELLO, "model": "models/bench/pair"}).status_code == 403
    assert models.calls() == []
