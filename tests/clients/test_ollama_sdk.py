"""Ollama's own library, and plain HTTP where it hides something, against a real proxy."""

import base64
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import ollama
import pytest

from tests.asking import Json, eventually, statuses
from tests.proxy import MASTER_KEY, Proxy
from tests.served import ALICE, BOB
from tests.upstream import UNICODE, Upstream

USER = {"role": "user", "content": "Who are you?"}
BEARER = {"Authorization": f"Bearer {MASTER_KEY}"}
PIXEL = base64.b64encode(b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x01").decode()


def lookup(path: str) -> str:
    """Look something up.

    Args:
      path: where
    """
    return path


@pytest.fixture
def sdk(proxy: Proxy, models: Upstream) -> Iterator[ollama.Client]:
    with ollama.Client(host=proxy.url, headers=BEARER, trust_env=False, timeout=60) as client:
        yield client


@pytest.fixture
async def async_sdk(proxy: Proxy, models: Upstream) -> AsyncIterator[ollama.AsyncClient]:
    async with ollama.AsyncClient(host=proxy.url, headers=BEARER, trust_env=False, timeout=60) as client:
        yield client


def text_of(lines: list[ollama.ChatResponse]) -> str:
    return "".join(line.message.content or "" for line in lines)


def raw(http: httpx.Client, path: str, **body: Any) -> Json:
    """A whole reply with what the library leaves out."""
    response = http.post(path, json={"stream": False, **body})
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == "application/json"
    reply: Json = response.json()
    return reply


# Answers


def test_a_chat_is_answered_by_every_seat(sdk: ollama.Client) -> None:
    reply = sdk.chat(model="bench/pair", messages=[{"role": "system", "content": "Be brief."}, USER])
    assert reply.model == "bench/pair"
    assert (reply.done, reply.done_reason, reply.message.role) == (True, "stop", "assistant")
    assert (reply.prompt_eval_count, reply.eval_count) == (20, 10)
    assert reply.total_duration == reply.eval_duration
    for said in ("# bench/pair", "I am ok-a.", "I am ok-b."):
        assert said in (reply.message.content or "")


def test_a_streamed_chat_says_the_same(sdk: ollama.Client) -> None:
    *lines, last = sdk.chat(model="bench/pair:latest", messages=[USER], stream=True)
    assert [line.done for line in lines] == [False] * len(lines)
    assert (last.done, last.done_reason, last.model) == (True, "stop", "bench/pair:latest")
    assert (last.prompt_eval_count, last.eval_count) == (20, 10)
    for said in ("# bench/pair", "I am ok-a.", "I am ok-b."):
        assert said in text_of(lines)


async def test_a_chat_asynchronously_whole_and_streamed(async_sdk: ollama.AsyncClient) -> None:
    whole = await async_sdk.chat(model="bench/pair", messages=[USER])
    assert "I am ok-b." in (whole.message.content or "")
    lines = [line async for line in await async_sdk.chat(model="bench/pair", messages=[USER], stream=True)]
    assert "I am ok-b." in text_of(lines)
    assert [line.done for line in lines][-2:] == [False, True]


async def test_a_prompt_is_answered_whole_and_streamed(
    sdk: ollama.Client, async_sdk: ollama.AsyncClient, models: Upstream
) -> None:
    whole = sdk.generate(model="bench/pair", prompt="Who are you?", system="Be brief.")
    assert "I am ok-a." in (whole.response or "")
    assert whole.done_reason == "stop"
    lines = [line async for line in await async_sdk.generate(model="bench/pair", prompt="Who?", stream=True)]
    assert "I am ok-b." in "".join(line.response or "" for line in lines)
    assert lines[-1].done
    assert models.calls("ok-a")[0].body["messages"] == [{"role": "system", "content": "Be brief."}, USER]


@pytest.mark.parametrize(
    ("model", "begins", "reply"),
    [
        ("bench/merged", "I am ok-c.\n\n---\n\nMerged by ok-c", "merged"),
        ("bench/pair:merged", "I am ", "merged"),
        # There is no room for alternatives.
        ("bench/choices", "# bench/choices", "all"),
        ("bench/pair:choices", "# bench/pair", "all"),
    ],
)
def test_each_reply_mode_is_one_text(
    sdk: ollama.Client, http: httpx.Client, model: str, begins: str, reply: str
) -> None:
    assert (sdk.chat(model=model, messages=[USER]).message.content or "").startswith(begins)
    assert text_of(list(sdk.chat(model=model, messages=[USER], stream=True))).startswith(begins)
    assert raw(http, "/api/chat", model=model, messages=[USER])["bench"]["reply"] == reply


def test_an_answer_that_was_cut_says_so(sdk: ollama.Client) -> None:
    assert sdk.chat(model="bench/cut-short:merged", messages=[USER]).done_reason == "length"
    *_, last = sdk.chat(model="bench/cut-short:merged", messages=[USER], stream=True)
    assert last.done_reason == "length"


def test_a_mode_may_be_asked_for_by_a_header(proxy: Proxy, models: Upstream) -> None:
    headers = {**BEARER, "X-Bench-Reply": "merged"}
    with ollama.Client(host=proxy.url, headers=headers, trust_env=False) as client:
        assert "Merged by" in (client.chat(model="bench/pair", messages=[USER]).message.content or "")


@pytest.mark.parametrize("path", ["/api/chat", "/api/generate"])
def test_the_panels_data_is_in_the_body_and_its_calls_can_be_judged(
    http: httpx.Client, models: Upstream, path: str
) -> None:
    asked = {"messages": [USER]} if path == "/api/chat" else {"prompt": "Who are you?"}
    whole = raw(http, path, model="bench/partial", **asked)["bench"]
    assert statuses(whole) == {"ok-a": "ok", "fail500-a": "error"}
    assert whole["partial"] is True
    with http.stream("POST", path, json={"model": "bench/partial", **asked}) as response:
        assert response.headers["content-type"] == "application/x-ndjson"
        assert response.headers["x-bench-collection"] == "bench/partial"
        *_, last = [httpx.Response(200, content=line).json() for line in response.iter_lines()]
    assert statuses(last["bench"]) == {"ok-a": "ok", "fail500-a": "error"}
    assert response.headers["x-bench-panel"] == last["bench"]["panel"]
    verdict = {"call": last["bench"]["seats"][0]["call"], "useful": True}
    assert http.post("/bench/verdict", json=verdict).json()["recorded"] is True


def test_options_reach_the_models_as_a_chats_settings(sdk: ollama.Client, models: Upstream) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    options = {"num_predict": 50, "temperature": 0.2, "seed": 7, "stop": ["END"], "num_ctx": 4096}
    sdk.chat(model="bench/solo", messages=[USER], options=options, format=schema, think=True, keep_alive="5m")
    (call,) = models.calls("ok-a")
    assert {k: v for k, v in call.body.items() if k not in {"model", "messages", "stream"}} == {
        "max_tokens": 50,
        "temperature": 0.2,
        "seed": 7,
        "stop": ["END"],
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "answer", "schema": schema, "strict": False},
        },
    }


def test_an_image_reaches_a_model_that_sees(sdk: ollama.Client, models: Upstream) -> None:
    sdk.chat(model="bench/seeing", messages=[{**USER, "images": [PIXEL]}])
    sdk.generate(model="bench/seeing", prompt="Who are you?", images=[base64.b64decode(PIXEL)])
    seen = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}}
    for call in models.calls("ok-h"):
        assert call.body["messages"][-1]["content"] == [{"type": "text", "text": "Who are you?"}, seen]
    assert len(models.calls("ok-h")) == 2


def test_every_character_arrives(sdk: ollama.Client) -> None:
    lines = list(sdk.chat(model="bench/unicode", messages=[USER], stream=True))
    assert text_of(lines).count(UNICODE) == 2
    whole = sdk.chat(model="bench/unicode", messages=[USER])
    assert (whole.message.content or "").count(UNICODE) == 2


def test_signs_of_life_are_survived(sdk: ollama.Client, models: Upstream) -> None:
    """Lines with no text, while nobody has answered yet."""
    lines: list[ollama.ChatResponse] = []
    silent = 0
    for line in sdk.chat(model="bench/gated", messages=[USER], stream=True):
        lines.append(line)
        silent = silent + 1 if line.message.content == "" else 0
        if silent == 2:
            for name in "abc":
                models.release(f"gate-{name}")
    assert all(f"I am gate-{name}." in text_of(lines) for name in "abc")
    assert lines[-1].done


def test_loading_and_unloading_ask_nobody(sdk: ollama.Client, models: Upstream) -> None:
    assert sdk.generate(model="bench/pair").done_reason == "load"
    assert sdk.generate(model="bench/pair", keep_alive=0).done_reason == "unload"
    assert sdk.chat(model="bench/pair", messages=[]).done_reason == "load"
    (line,) = sdk.chat(model="bench/pair", messages=[], keep_alive="0s", stream=True)
    assert (line.done, line.done_reason, line.message.content) == (True, "unload", "")
    with pytest.raises(ollama.ResponseError, match="no collection"):
        sdk.generate(model="bench/nobody")
    assert models.calls() == []


# Errors


def refused(sdk: ollama.Client, model: str, status: int, **more: Any) -> str:
    """The same error, whole and before a stream."""
    told: set[str] = set()
    for stream in (False, True):
        with pytest.raises(ollama.ResponseError) as error:
            list(sdk.chat(**{"model": model, "messages": [USER], "stream": stream, **more}))
        assert error.value.status_code == status
        told.add(error.value.error)
    (message,) = told
    return message


def test_an_unknown_collection_is_404_and_says_which_there_are(sdk: ollama.Client) -> None:
    assert "bench/pair: Two models." in refused(sdk, "bench/nobody", 404)


def test_a_model_of_litellms_is_not_asked_in_ollamas_way(sdk: ollama.Client, models: Upstream) -> None:
    refused(sdk, "ok-a", 404)
    assert models.calls() == []


def test_an_unknown_mode_is_400(sdk: ollama.Client) -> None:
    assert "merged" in refused(sdk, "bench/pair:merge", 400)


def test_tools_are_refused_with_what_to_do(sdk: ollama.Client, models: Upstream) -> None:
    assert ":route" in refused(sdk, "bench/pair", 400, tools=[lookup])
    called = {"function": {"name": "lookup", "arguments": {"path": "x"}}}
    turns = [
        USER,
        {"role": "assistant", "tool_calls": [called]},
        {"role": "tool", "tool_name": "lookup", "content": "y"},
    ]
    assert "the conversation holds a tool call" in refused(sdk, "bench/pair", 400, messages=turns)
    assert models.calls() == []


def test_an_image_that_nobody_sees_is_refused(sdk: ollama.Client, models: Upstream) -> None:
    refused(sdk, "bench/pair", 400, messages=[{**USER, "images": [PIXEL]}])
    with pytest.raises(ollama.ResponseError, match="PNG, JPEG, GIF or WebP") as error:
        sdk.generate(model="bench/seeing", prompt="?", images=[base64.b64encode(b"no picture").decode()])
    assert error.value.status_code == 400
    assert models.calls() == []


def test_an_old_context_is_refused_and_names_the_other_route(sdk: ollama.Client) -> None:
    with pytest.raises(ollama.ResponseError, match="/api/chat") as error:
        sdk.generate(model="bench/pair", prompt="And then?", context=[1, 2, 3])
    assert error.value.status_code == 400


@pytest.mark.parametrize(
    ("model", "status", "told"),
    [
        ("bench/broken", 502, "fail500-a error (500 server_error"),
        ("bench/limited", 429, "rate-a error (429 rate_limit"),
        ("bench/too-long", 413, "context-a error"),
        ("bench/silent", 504, "gate-c late"),
    ],
)
def test_a_panel_on_which_nobody_answers_is_an_error(sdk: ollama.Client, model: str, status: int, told: str) -> None:
    with pytest.raises(ollama.ResponseError) as whole:
        sdk.chat(model=model, messages=[USER])
    assert whole.value.status_code == status
    assert told in whole.value.error
    # The 200 of a stream has left by then.
    with pytest.raises(ollama.ResponseError) as streamed:
        list(sdk.chat(model=model, messages=[USER], stream=True))
    assert told in streamed.value.error


def test_a_rate_limit_says_how_long_to_wait(http: httpx.Client, models: Upstream) -> None:
    response = http.post("/api/chat", json={"model": "bench/limited", "messages": [USER], "stream": False})
    assert (response.status_code, response.headers["retry-after"]) == (429, "7")
    assert set(response.json()) == {"error"}


async def test_errors_raise_asynchronously_too(async_sdk: ollama.AsyncClient) -> None:
    with pytest.raises(ollama.ResponseError) as error:
        await async_sdk.chat(model="bench/nobody", messages=[USER])
    assert error.value.status_code == 404
    with pytest.raises(ollama.ResponseError, match="fail500-a"):
        async for _ in await async_sdk.chat(model="bench/broken", messages=[USER], stream=True):
            pass


@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer sk-wrong"}])
def test_a_missing_or_wrong_key_is_401(proxy: Proxy, models: Upstream, headers: dict[str, str]) -> None:
    with ollama.Client(host=proxy.url, headers=headers, trust_env=False) as client:
        assert "Authentication Error" in refused(client, "bench/pair", 401)
        for look in (client.list, client.ps, lambda: client.show("bench/pair"), lambda: client.generate("bench/pair")):
            with pytest.raises(ollama.ResponseError, match="Authentication Error") as error:
                look()
            assert error.value.status_code == 401
    assert models.calls() == []


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b'{"model": "bench/pair", "messages": [', 400),
        (b'{"model": "bench/pair", "messages": "Hello."}', 400),
        (b'{"model": "bench/pair", "messages": [{"content": "x"}]}', 400),
    ],
)
def test_what_is_no_request_is_refused_in_ollamas_shape(http: httpx.Client, body: bytes, status: int) -> None:
    response = http.post("/api/chat", content=body, headers={"Content-Type": "application/json"})
    assert response.status_code == status
    assert set(response.json()) == {"error"}


def test_a_key_that_may_call_another_collection_only_is_refused(workers: Proxy, models: Upstream) -> None:
    with ollama.Client(host=workers.url, headers={"Authorization": f"Bearer {ALICE}"}, trust_env=False) as alice:
        assert "I am ok-b." in (alice.chat(model="bench/pair", messages=[USER]).message.content or "")
        models.clear()
        for model in ("bench/secret", "bench/secret:merged"):
            assert "For few." not in refused(alice, model, 403)
        assert models.calls() == []
        seen = {(model.model or "").partition(":")[0] for model in alice.list().models}
        assert seen == {"bench/pair"}
        with pytest.raises(ollama.ResponseError) as error:
            alice.show("bench/secret")
        assert error.value.status_code == 404
    with ollama.Client(host=workers.url, headers={"Authorization": f"Bearer {BOB}"}, trust_env=False) as bob:
        assert bob.show("bench/secret").capabilities == ["completion"]


# Hanging up


def test_a_caller_who_hangs_up_stops_the_panel_where_the_collection_says_so(
    sdk: ollama.Client, models: Upstream
) -> None:
    reply = sdk.chat(model="bench/cancelled", messages=[USER], stream=True)
    next(reply)
    models.wait_for(lambda calls: len(calls) == 2)
    reply.close()  # type: ignore[attr-defined]
    calls = models.wait_for(lambda calls: all(call.end is not None for call in calls))
    assert all(call.hung_up for call in calls)


def test_elsewhere_the_panel_goes_on_and_is_on_the_record(
    sdk: ollama.Client, http: httpx.Client, models: Upstream
) -> None:
    with http.stream("POST", "/api/chat", json={"model": "bench/one-gate", "messages": [USER]}) as response:
        panel = response.headers["x-bench-panel"]
        models.wait_for(lambda calls: len(calls) == 1)
    models.release("gate-a")
    (seat,) = eventually(lambda: http.get(f"/bench/panels/{panel}").json().get("seats"))
    assert (seat["status"], seat["answer"]) == ("ok", "I am gate-a.")


# The models


def test_the_list_has_each_collection_and_nothing_that_cannot_be_asked(sdk: ollama.Client) -> None:
    listed = [model.model or "" for model in sdk.list().models]
    assert {"bench/pair", "bench/pair:merged", "bench/pair:choices"} <= set(listed)
    assert all(name.startswith("bench/") for name in listed)


def test_a_model_is_shown(sdk: ollama.Client) -> None:
    seeing = sdk.show("bench/seeing:latest")
    assert seeing.capabilities == ["completion", "vision"]
    assert seeing.modelinfo is not None
    assert seeing.modelinfo["general.basename"] == "bench/seeing"
    assert sdk.show("bench/pair").capabilities == ["completion"]
    with pytest.raises(ollama.ResponseError) as error:
        sdk.show("bench/nobody")
    assert error.value.status_code == 404


async def test_no_model_is_running(sdk: ollama.Client, async_sdk: ollama.AsyncClient) -> None:
    assert sdk.ps().models == []
    assert (await async_sdk.ps()).models == []
    assert (await async_sdk.list()).models == sdk.list().models


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_probes_are_answered_to_anybody(proxy: Proxy, method: str) -> None:
    with httpx.Client(base_url=proxy.url, trust_env=False) as nobody:
        for path in ("/api", "/api/", "/api/version"):
            response = nobody.request(method, path)
            assert response.status_code == 200
            assert response.content == (b"" if method == "HEAD" else b'{"version":"0.14.0"}')


@pytest.mark.parametrize("path", ["/api/hello", "/api/pull", "/api/chat"])
def test_what_ollama_has_and_we_have_not_is_litellms_404(http: httpx.Client, path: str) -> None:
    for method in ("GET", "HEAD"):
        assert http.request(method, path).status_code == 404
    assert http.post("/api/pull", json={"model": "bench/pair"}).status_code == 404
