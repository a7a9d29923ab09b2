"""OpenAI's own library on legacy completions against a real proxy."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import openai
import pytest
from openai.types import Completion

from tests.asking import Json, statuses
from tests.proxy import MASTER_KEY, Proxy
from tests.served import ALICE
from tests.upstream import UNICODE, Upstream

ASKED = "Who are you?"


def connected(proxy: Proxy, plain: httpx.Client, key: str = MASTER_KEY) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{proxy.url}/v1", api_key=key, http_client=plain, max_retries=0)


@pytest.fixture
def sdk(proxy: Proxy, models: Upstream) -> Iterator[openai.OpenAI]:
    with httpx.Client(trust_env=False, timeout=60) as plain, connected(proxy, plain) as client:
        yield client


@pytest.fixture
async def async_sdk(proxy: Proxy, models: Upstream) -> AsyncIterator[openai.AsyncOpenAI]:
    async with (
        httpx.AsyncClient(trust_env=False, timeout=60) as plain,
        openai.AsyncOpenAI(base_url=f"{proxy.url}/v1", api_key=MASTER_KEY, http_client=plain, max_retries=0) as client,
    ):
        yield client


def bench_of(reply: Completion) -> Json:
    assert reply.model_extra is not None
    return dict(reply.model_extra["bench"])


def texts(chunks: list[Completion]) -> dict[int, str]:
    said: dict[int, str] = {}
    for chunk in chunks:
        for choice in chunk.choices:
            said[choice.index] = said.get(choice.index, "") + choice.text
    return said


def reasons(chunks: list[Completion]) -> dict[int, str]:
    """Why each choice ended; until then it has no reason, whatever the library's types say."""
    return {c.index: c.finish_reason for chunk in chunks for c in chunk.choices if str(c.finish_reason) != "None"}


# Answers


def test_a_prompt_is_answered_by_every_seat(sdk: openai.OpenAI, models: Upstream) -> None:
    reply = sdk.completions.create(model="bench/pair", prompt=ASKED, temperature=0.2, max_tokens=50)
    assert (reply.object, reply.model) == ("text_completion", "bench/pair")
    (choice,) = reply.choices
    assert choice.finish_reason == "stop"
    for said in ("# bench/pair", "I am ok-a.", "I am ok-b."):
        assert said in choice.text
    assert reply.usage is not None
    assert (reply.usage.prompt_tokens, reply.usage.completion_tokens, reply.usage.total_tokens) == (20, 10, 30)
    assert statuses(bench_of(reply)) == {"ok-a": "ok", "ok-b": "ok"}
    for call in models.calls():
        assert call.path == "/v1/chat/completions"
        assert call.body["messages"] == [{"role": "user", "content": ASKED}]
        assert (call.body["temperature"], call.body["max_tokens"]) == (0.2, 50)


def test_a_streamed_answer_says_the_same(sdk: openai.OpenAI) -> None:
    chunks = list(sdk.completions.create(model="bench/pair", prompt=[ASKED], stream=True))
    assert all(len(chunk.choices) == 1 for chunk in chunks)
    (text,) = texts(chunks).values()
    for said in ("# bench/pair", "I am ok-a.", "I am ok-b."):
        assert said in text
    assert reasons(chunks) == {0: "stop"}
    assert statuses(bench_of(chunks[-1])) == {"ok-a": "ok", "ok-b": "ok"}


async def test_asynchronously_whole_and_streamed_with_usage(async_sdk: openai.AsyncOpenAI) -> None:
    whole = await async_sdk.completions.create(model="bench/pair", prompt=ASKED)
    assert "I am ok-b." in whole.choices[0].text
    stream = await async_sdk.completions.create(
        model="bench/pair", prompt=ASKED, stream=True, stream_options={"include_usage": True}
    )
    chunks = [chunk async for chunk in stream]
    assert "I am ok-b." in texts(chunks)[0]
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.total_tokens == 30


def test_a_merged_answer_is_the_mergers(sdk: openai.OpenAI) -> None:
    whole = sdk.completions.create(model="bench/merged", prompt=ASKED)
    assert whole.choices[0].text.startswith("I am ok-c.\n\n---\n\nMerged by ok-c")
    chunks = list(sdk.completions.create(model="bench/merged", prompt=ASKED, stream=True))
    assert texts(chunks)[0].startswith("I am ok-c.\n\n---\n\nMerged by ok-c")


def test_an_answer_that_was_cut_says_so(sdk: openai.OpenAI) -> None:
    whole = sdk.completions.create(model="bench/cut-short:merged", prompt=ASKED)
    assert reasons([whole]) == {0: "length"}
    assert reasons(list(sdk.completions.create(model="bench/cut-short:merged", prompt=ASKED, stream=True))) == {
        0: "length"
    }


def test_who_says_how_many_gets_each_seat_as_a_choice_and_others_one_text(sdk: openai.OpenAI) -> None:
    each = {0: "I am ok-a.", 1: "I am ok-b."}
    whole = sdk.completions.create(model="bench/choices", prompt=ASKED, n=1)
    assert {choice.index: choice.text for choice in whole.choices} == each
    chunks = list(sdk.completions.create(model="bench/choices", prompt=ASKED, n=1, stream=True))
    assert texts(chunks) == each
    assert reasons(chunks) == {0: "stop", 1: "stop"}
    assert bench_of(chunks[-1])["reply"] == "choices"

    (only,) = sdk.completions.create(model="bench/choices", prompt=ASKED).choices
    assert only.text.startswith("# bench/choices")
    (text,) = texts(list(sdk.completions.create(model="bench/choices", prompt=ASKED, stream=True))).values()
    assert text.startswith("# bench/choices")


def test_options_of_the_panel_may_be_sent_along(sdk: openai.OpenAI) -> None:
    reply = sdk.completions.create(model="bench/pair", prompt=ASKED, extra_body={"bench": {"reply": "merged"}})
    assert bench_of(reply)["reply"] == "merged"


def test_the_other_path_is_the_same(http: httpx.Client, models: Upstream) -> None:
    response = http.post("/completions", json={"model": "bench/pair", "prompt": ASKED})
    assert response.status_code == 200
    assert response.headers["x-bench-collection"] == "bench/pair"
    assert response.json()["object"] == "text_completion"


def test_every_character_arrives(sdk: openai.OpenAI) -> None:
    assert sdk.completions.create(model="bench/unicode", prompt=ASKED).choices[0].text.count(UNICODE) == 2
    chunks = list(sdk.completions.create(model="bench/unicode", prompt=ASKED, stream=True))
    assert texts(chunks)[0].count(UNICODE) == 2


def test_signs_of_life_are_survived(http: httpx.Client, models: Upstream) -> None:
    """The library does not show comments: that there are some is seen on the wire, whose end it reads."""
    comments, rest = 0, ""
    with http.stream(
        "POST", "/v1/completions", json={"model": "bench/gated", "prompt": ASKED, "stream": True}
    ) as reply:
        assert reply.headers["content-type"] == "text/event-stream; charset=utf-8"
        for line in reply.iter_lines():
            rest += f"{line}\n"
            comments += line.startswith(":")
            if comments == 2:
                for name in "abc":
                    models.release(f"gate-{name}")
    wire = httpx.MockTransport(
        lambda _request: httpx.Response(200, headers={"content-type": "text/event-stream"}, text=rest)
    )
    with (
        httpx.Client(transport=wire) as plain,
        openai.OpenAI(base_url="http://test/v1", api_key="sk-test", http_client=plain) as client,
    ):
        chunks = list(client.completions.create(model="bench/gated", prompt=ASKED, stream=True))
    assert comments >= 2
    assert all(f"I am gate-{name}." in texts(chunks)[0] for name in "abc")


# Errors


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("asked", "kind", "told"),
    [
        ({"model": "bench/nobody"}, openai.NotFoundError, "bench/pair: Two models."),
        ({"model": "bench/pair:merge"}, openai.BadRequestError, "unknown reply mode"),
        ({"prompt": [ASKED, ASKED]}, openai.BadRequestError, "holds 2 prompts"),
        ({"prompt": [15496, 13]}, openai.BadRequestError, "token numbers"),
        ({"n": 2}, openai.BadRequestError, "n is 2"),
        ({"best_of": 3}, openai.BadRequestError, "best_of"),
        ({"echo": True}, openai.BadRequestError, "echo"),
        ({"suffix": "end"}, openai.BadRequestError, "suffix"),
        ({"logprobs": 2}, openai.BadRequestError, "logprobs"),
        ({"extra_body": {"tools": [{"type": "function"}]}}, openai.BadRequestError, ":route"),
    ],
)
def test_what_cannot_be_honoured_is_refused(
    sdk: openai.OpenAI, models: Upstream, asked: Json, kind: type[openai.APIStatusError], told: str, *, stream: bool
) -> None:
    with pytest.raises(kind) as error:
        sdk.completions.create(**{"model": "bench/pair", "prompt": ASKED, "stream": stream, **asked})
    assert told in error.value.message
    assert models.calls() == []


@pytest.mark.parametrize(
    ("model", "status", "told"),
    [
        ("bench/broken", 502, "fail500-a error (500 server_error"),
        ("bench/limited", 429, "rate-a error (429 rate_limit"),
        ("bench/silent", 504, "gate-c late"),
    ],
)
def test_a_panel_on_which_nobody_answers_is_an_error(sdk: openai.OpenAI, model: str, status: int, told: str) -> None:
    with pytest.raises(openai.APIStatusError) as whole:
        sdk.completions.create(model=model, prompt=ASKED)
    assert whole.value.status_code == status
    assert whole.value.response.headers.get("retry-after") == ("7" if status == 429 else None)
    assert isinstance(whole.value, openai.RateLimitError if status == 429 else openai.InternalServerError)
    assert told in whole.value.message
    assert whole.value.response.json()["bench"]["partial"] is True
    # The 200 of a stream has left by then.
    with pytest.raises(openai.APIError) as streamed:
        list(sdk.completions.create(model=model, prompt=ASKED, stream=True))
    assert told in streamed.value.message


def test_a_wrong_key_is_401(proxy: Proxy, models: Upstream) -> None:
    with (
        httpx.Client(trust_env=False) as plain,
        connected(proxy, plain, "sk-wrong") as client,
        pytest.raises(openai.AuthenticationError, match="Authentication Error"),
    ):
        client.completions.create(model="bench/pair", prompt=ASKED)
    assert models.calls() == []


def test_a_key_that_may_call_another_collection_only_is_refused(workers: Proxy, models: Upstream) -> None:
    with httpx.Client(trust_env=False) as plain, connected(workers, plain, ALICE) as alice:
        assert "I am ok-b." in alice.completions.create(model="bench/pair", prompt=ASKED).choices[0].text
        models.clear()
        with pytest.raises(openai.PermissionDeniedError) as error:
            alice.completions.create(model="bench/secret", prompt=ASKED)
        assert "For few." not in error.value.message
    assert models.calls() == []


def test_a_model_of_litellms_is_litellms(http: httpx.Client, bare: Proxy, models: Upstream) -> None:
    """The same answer, also where it is an odd one."""
    asked: dict[str, Any] = {"json": {"model": "no-such-model", "prompt": [[1, 2]], "echo": True}}
    with bare.client() as litellm:
        ours, theirs = http.post("/v1/completions", **asked), litellm.post("/v1/completions", **asked)
    assert ours.status_code == theirs.status_code
    assert ours.json()["error"]["type"] == theirs.json()["error"]["type"]


def test_a_caller_who_hangs_up_stops_the_panel_where_the_collection_says_so(
    sdk: openai.OpenAI, models: Upstream
) -> None:
    with sdk.completions.create(model="bench/cancelled", prompt=ASKED, stream=True) as stream:
        next(stream)
        models.wait_for(lambda calls: len(calls) == 2)
    calls = models.wait_for(lambda calls: all(call.end is not None for call in calls))
    assert all(call.hung_up for call in calls)
