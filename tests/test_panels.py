"""A panel as its callers see it, through OpenAI's own SDK and byte by byte."""

import asyncio
import itertools
import json
import re
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, closing
from typing import Any

import httpx
import openai
import pytest
from openai import AsyncOpenAI, OpenAI

from tests.asking import (
    CHAT,
    DONE,
    KEEP_ALIVE,
    Json,
    ask,
    async_events,
    chunks_of,
    connect,
    events,
    eventually,
    held,
    panel,
    question,
    refusal,
    request_bytes,
    statuses,
    streamed,
    text_of,
)
from tests.proxy import Proxy
from tests.served import EXPLORERS, LANES, WIDE
from tests.upstream import UNICODE, Upstream
from tests.upstream import text_of as said_by

PANEL_ID = re.compile(r"p\d{8}-\d{6}-[a-z2-7]{16}")
PNG = "data:image/png;base64,iVBORw0KGgo="
ASKED: Any = [{"role": "user", "content": "Who are you?"}]


@pytest.fixture(params=LANES)
def proxy(request: pytest.FixtureRequest, on_lane: Callable[[str], Proxy]) -> Proxy:
    return on_lane(request.param)


@pytest.fixture
def sdk(proxy: Proxy, models: Upstream) -> Iterator[OpenAI]:
    transport = httpx.Client(trust_env=False)
    with OpenAI(base_url=f"{proxy.url}/v1", api_key=proxy.key, max_retries=0, http_client=transport) as client:
        yield client


@pytest.fixture
async def async_sdk(proxy: Proxy, models: Upstream) -> AsyncIterator[AsyncOpenAI]:
    transport = httpx.AsyncClient(trust_env=False)
    async with AsyncOpenAI(
        base_url=f"{proxy.url}/v1", api_key=proxy.key, max_retries=0, http_client=transport
    ) as client:
        yield client


def bench(reply: Any) -> Json:
    """The `bench` object, which the SDK's models carry as an extra field."""
    found: Json = reply.model_extra["bench"]
    return found


def seats_of(data: Json) -> list[tuple[str, str, str]]:
    return [(seat["seat"], seat["alias"], seat["status"]) for seat in data["seats"]]


def heading(text: str) -> str:
    """The text before the first seat's section."""
    return text.partition("## ")[0]


def recorded(caller: httpx.Client, panel_id: str) -> Json:
    response = caller.get(f"/bench/panels/{panel_id}")
    assert response.status_code == 200, response.text
    found: Json = response.json()
    return found


def started(models: Upstream, count: int) -> None:
    """Wait until so many calls have reached the models."""
    models.wait_for(lambda calls: len(calls) == count)


# No seat answered.


def test_all_rate_limited_is_a_rate_limit_error_with_the_shortest_wait(sdk: OpenAI) -> None:
    with pytest.raises(openai.RateLimitError) as caught:
        sdk.chat.completions.create(model="bench/limited", messages=ASKED)
    assert caught.value.response.headers["retry-after"] == "7"
    body = caught.value.response.json()
    assert "rate-a" in body["error"]["message"]
    assert "rate30-a" in body["error"]["message"]
    assert [seat["error"]["status"] for seat in body["bench"]["seats"]] == [429, 429]


@pytest.mark.parametrize(
    ("collection", "status", "named"),
    [
        ("too-long", 413, ["context-a", "context-b", "4096"]),
        ("silent", 504, ["gate-c", "gate-d", "late"]),
        ("timed-out", 504, ["fail408-a", "timeout"]),
        ("broken", 502, ["fail500-a", "html-a"]),
    ],
)
def test_a_panel_without_an_answer_is_no_200_and_names_each_seat(
    http: httpx.Client, models: Upstream, collection: str, status: int, named: list[str]
) -> None:
    response = ask(http, f"bench/{collection}")
    error = refusal(response, status)
    assert error["code"] == "no_seat_answered"
    for word in named:
        assert word in error["message"]
    data = response.json()["bench"]
    assert data["partial"] is True
    assert {seat["status"] for seat in data["seats"]} <= {"error", "late"}
    assert response.headers["x-bench-partial"] == "true"
    assert PANEL_ID.fullmatch(response.headers["x-bench-panel"])
    assert "127.0.0.1" not in error["message"]
    assert "Traceback" not in response.text


def test_failures_of_several_kinds_are_502(http: httpx.Client, models: Upstream) -> None:
    refusal(ask(http, "bench/limited", **{"with": ["context-a"]}), 502)


@pytest.mark.parametrize("collection", ["limited", "broken", "silent"])
def test_a_failure_after_the_200_is_an_event_that_the_sdk_raises(sdk: OpenAI, collection: str) -> None:
    stream = sdk.chat.completions.create(model=f"bench/{collection}", messages=ASKED, stream=True)
    text = []
    with pytest.raises(openai.APIError, match="no seat of bench/") as caught:
        text.extend(chunk.choices[0].delta.content or "" for chunk in stream)
    assert not isinstance(caught.value, openai.APIConnectionError)


def test_a_stream_that_fails_ends_with_its_error_and_done(http: httpx.Client, models: Upstream) -> None:
    with http.stream("POST", CHAT, json=question("bench/broken", stream=True)) as response:
        read = list(events(response))
    assert read[-1] == DONE
    failure = read[-2]
    assert isinstance(failure, dict)
    assert failure["error"]["code"] == "no_seat_answered"
    assert statuses(failure["bench"]) == {"fail500-a": "error", "html-a": "error"}
    assert not any(isinstance(event, dict) and "error" in event for event in read[:-2])


@pytest.mark.parametrize("stream", [False, True])
def test_a_partial_panel_can_be_refused(http: httpx.Client, models: Upstream, stream: bool) -> None:
    options = {"partial": "refuse"}
    if stream:
        with http.stream("POST", CHAT, json=question("bench/partial", stream=True, bench=options)) as response:
            failed: Any = list(events(response))[-2]
    else:
        response = ask(http, "bench/partial", bench=options)
        assert response.status_code == 502
        # Else OpenAI's library asks the whole panel again, twice.
        assert response.headers["x-should-retry"] == "false"
        failed = response.json()
    assert failed["error"]["code"] == "partial_panel"
    assert "partial" in failed["error"]["message"]
    assert "fail500-a" in failed["error"]["message"]
    assert statuses(failed["bench"]) == {"ok-a": "ok", "fail500-a": "error"}
    assert panel(http, "bench/pair", bench=options)["bench"]["partial"] is False


# Some seats answered.


def test_a_seat_that_is_lost_is_named_in_text_data_and_header(http: httpx.Client, models: Upstream) -> None:
    response = ask(http, "bench/partial")
    assert response.status_code == 200
    reply = response.json()
    data = reply["bench"]
    assert data["partial"] is True
    assert seats_of(data) == [("member", "ok-a", "ok"), ("member", "fail500-a", "error")]
    assert data["seats"][1]["error"] == {"status": 500, "type": "server_error", "message": "fail500-a fails with 500."}
    top = heading(reply["choices"][0]["message"]["content"])
    assert "partial" in top.lower()
    assert "fail500-a failed (500 server_error)" in top
    assert response.headers["x-bench-partial"] == "true"
    told = json.loads(response.headers["x-bench-seats"])
    assert [(seat["alias"], seat["status"]) for seat in told] == [("ok-a", "ok"), ("fail500-a", "error")]


def test_a_streamed_partial_panel_says_so_too(http: httpx.Client, models: Upstream) -> None:
    chunks = streamed(http, "bench/partial")
    assert "partial" in text_of(chunks).lower()
    assert "fail500-a failed (500 server_error)" in text_of(chunks)
    assert chunks[-1]["bench"]["partial"] is True


def test_each_outcome_has_its_status(http: httpx.Client, models: Upstream) -> None:
    reply = panel(http, "bench/outcomes")
    seats = {seat["alias"]: seat for seat in reply["bench"]["seats"]}
    assert statuses(reply["bench"]) == {
        "ok-a": "ok",
        "empty-a": "empty",
        "null-a": "empty",
        "length-a": "ok",
        "fail500-a": "error",
    }
    assert (seats["length-a"]["finish_reason"], seats["length-a"]["answer"]) == ("length", "I am length-a.")
    assert seats["null-a"]["finish_reason"] == "length"
    assert "answer" not in seats["empty-a"]
    top = heading(reply["choices"][0]["message"]["content"])
    for lost in ("empty-a came back empty", "null-a came back empty", "fail500-a failed"):
        assert lost in top
    assert "length-a" not in top.partition("Partial")[2]


def test_garbage_a_cut_body_and_a_page_are_errors_of_their_seats_alone(http: httpx.Client, models: Upstream) -> None:
    reply = panel(http, "bench/garbled")
    assert statuses(reply["bench"]) == {"ok-a": "ok", "garbage-a": "error", "cut-a": "error", "html-a": "error"}
    for seat in reply["bench"]["seats"][1:]:
        assert seat["error"]["message"]
        assert "127.0.0.1" not in seat["error"]["message"]


@pytest.mark.parametrize("status", [400, 401, 403, 404, 408, 422, 503, 529])
def test_a_models_status_is_passed_on_in_its_seat(http: httpx.Client, models: Upstream, status: int) -> None:
    data = panel(http, "bench/guests", bench={"with": [f"fail{status}-a"], "explorers": 0})["bench"]
    seat = data["seats"][1]
    assert (seat["seat"], seat["status"]) == ("guest", "error")
    assert seat["error"]["status"] == (504 if status == 408 else status)
    assert "sk-upstream" not in json.dumps(data)


def test_an_answer_without_end_is_cut_at_its_limit(http: httpx.Client, models: Upstream) -> None:
    data = panel(http, "bench/huge")["bench"]
    huge, plain = data["seats"]
    assert (huge["status"], plain["status"]) == ("ok", "ok")
    assert huge["answer"] == said_by("huge-a")[: 8 * 1024 * 1024]


def test_a_seat_that_hangs_ends_by_its_own_limit(keyless: Proxy, models: Upstream) -> None:
    with keyless.client() as caller:
        data = panel(caller, "bench/hanging")["bench"]
        assert data["seats"][0]["status"] == "ok"
        # Where the panel has no deadline of its own, both limits end in the same instant.
        assert data["seats"][1]["status"] in {"late", "error"}
        models.wait_for(lambda calls: any(call.hung_up for call in calls))
        seat = eventually(lambda: [s for s in recorded(caller, data["panel"])["seats"] if s["status"] == "error"])[0]
    assert (seat["alias"], seat["error"]["status"], seat["error"]["type"]) == ("hang-a", 504, "timeout")


def test_a_deadline_reports_what_is_open_as_late(http: httpx.Client, models: Upstream) -> None:
    reply = panel(http, "bench/slow")
    assert statuses(reply["bench"]) == {"ok-a": "ok", "gate-d": "late"}
    assert "gate-d is late" in heading(reply["choices"][0]["message"]["content"])


def test_late_answers_are_on_the_record_when_they_come_and_can_be_judged(http: httpx.Client, models: Upstream) -> None:
    data = panel(http, "bench/overdue", bench={"deadline": 0.3})["bench"]
    assert statuses(data) == {"ok-a": "ok", "gate-a": "late", "gate-b": "late"}
    calls = {seat["alias"]: seat["call"] for seat in data["seats"]}
    early = http.post("/bench/verdict", json={"call": calls["gate-a"], "useful": True})
    assert "late" in refusal(early, 400)["message"]
    models.release("gate-a")

    def answered() -> list[Json]:
        return [seat for seat in recorded(http, data["panel"])["seats"] if seat["status"] == "ok"]

    seats = eventually(lambda: found if len(found := answered()) == 2 else [])
    assert [(seat["alias"], seat["late"], seat["answer"]) for seat in seats] == [
        ("ok-a", False, "I am ok-a."),
        ("gate-a", True, "I am gate-a."),
    ]
    assert http.post("/bench/verdict", json={"call": calls["gate-a"], "useful": True}).json()["recorded"] is True
    models.release("gate-b")
    assert eventually(lambda: len(answered()) == 3)


def test_a_quorum_ends_the_panel_and_the_rest_is_late(http: httpx.Client, models: Upstream) -> None:
    models.release("gate-b")
    data = panel(http, "bench/overdue", bench={"quorum": 2})["bench"]
    assert statuses(data) == {"ok-a": "ok", "gate-a": "late", "gate-b": "ok"}
    assert data["partial"] is True
    models.release("gate-a")
    assert eventually(lambda: statuses(recorded(http, data["panel"]))["gate-a"] == "ok")


def test_a_quorum_of_the_collection_holds_unless_the_request_says_otherwise(
    http: httpx.Client, models: Upstream
) -> None:
    assert statuses(panel(http, "bench/quorum")["bench"])["gate-d"] == "late"
    assert list(statuses(panel(http, "bench/quorum", bench={"quorum": 1})["bench"]).values()).count("ok") >= 1


# All seats answered.


def test_every_answer_comes_back_named_with_its_own_call(sdk: OpenAI) -> None:
    raw = sdk.chat.completions.with_raw_response.create(model="bench/trio", messages=ASKED)
    reply = raw.parse()
    data = bench(reply)
    assert reply.model == "bench/trio"
    assert reply.object == "chat.completion"
    assert [choice.finish_reason for choice in reply.choices] == ["stop"]
    assert PANEL_ID.fullmatch(data["panel"])
    assert reply.id == f"chatcmpl-{data['panel']}"
    assert seats_of(data) == [("member", f"ok-{name}", "ok") for name in "abc"]
    assert [seat["call"] for seat in data["seats"]] == [f"{data['panel']}.member{n}" for n in (1, 2, 3)]
    assert [seat["answer"] for seat in data["seats"]] == [f"I am ok-{name}." for name in "abc"]
    assert all(seat["seconds"] >= 0 and seat["finish_reason"] == "stop" for seat in data["seats"])
    assert (data["collection"], data["reply"], data["partial"], data["skipped"]) == ("bench/trio", "all", False, [])
    assert (data["shape"], data["shape_by"]) == ("general", "collection")
    assert data["verdict"]["method"] == "POST"
    assert data["verdict"]["url"].endswith("/bench/verdict")

    text = reply.choices[0].message.content or ""
    assert text.startswith("# bench/trio\n")
    assert data["panel"] in heading(text)
    assert "partial" not in text.lower()
    for number, name in enumerate("abc", 1):
        assert f"## Member {number}: ok-{name}" in text
        assert f"I am ok-{name}." in text
        assert f"{data['panel']}.member{number}" in text
    assert data["verdict"]["url"] in text.splitlines()[-1]

    assert raw.headers["x-bench-panel"] == data["panel"]
    assert raw.headers["x-bench-collection"] == "bench/trio"
    assert raw.headers["x-bench-partial"] == "false"
    told = json.loads(raw.headers["x-bench-seats"])
    wanted = [{name: seat[name] for name in ("call", "seat", "alias", "status")} for seat in data["seats"]]
    assert told == wanted


def test_a_stream_carries_the_same_through_the_sdk(sdk: OpenAI) -> None:
    raw = sdk.chat.completions.with_raw_response.create(model="bench/trio", messages=ASKED, stream=True)
    assert PANEL_ID.fullmatch(raw.headers["x-bench-panel"])
    assert raw.headers["x-bench-collection"] == "bench/trio"
    chunks = list(raw.parse())
    assert all(len(chunk.choices) == 1 for chunk in chunks)
    assert {chunk.model for chunk in chunks} == {"bench/trio"}
    assert {chunk.object for chunk in chunks} == {"chat.completion.chunk"}
    assert {chunk.id for chunk in chunks} == {f"chatcmpl-{raw.headers['x-bench-panel']}"}
    assert chunks[0].choices[0].delta.role == "assistant"
    finishes = [chunk.choices[0].finish_reason for chunk in chunks]
    assert finishes == [None] * (len(chunks) - 1) + ["stop"]
    assert all(chunk.usage is None for chunk in chunks)
    data = bench(chunks[-1])
    assert data["panel"] == raw.headers["x-bench-panel"]
    assert seats_of(data) == [("member", f"ok-{name}", "ok") for name in "abc"]
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    for number, name in enumerate("abc", 1):
        assert text.count(f"## Member {number}: ok-{name}\n") == 1
        assert text.count(f"I am ok-{name}.") == 1
    assert text.rstrip().splitlines()[-1].count("/bench/verdict") == 1


async def test_the_async_sdk_gets_the_same(async_sdk: AsyncOpenAI) -> None:
    reply = await async_sdk.chat.completions.create(model="bench/pair", messages=ASKED)
    assert seats_of(bench(reply)) == [("member", "ok-a", "ok"), ("member", "ok-b", "ok")]
    stream = await async_sdk.chat.completions.create(model="bench/pair", messages=ASKED, stream=True)
    chunks = [chunk async for chunk in stream]
    assert seats_of(bench(chunks[-1])) == [("member", "ok-a", "ok"), ("member", "ok-b", "ok")]
    with pytest.raises(openai.NotFoundError, match="bench/pair"):
        await async_sdk.chat.completions.create(model="bench/pear", messages=ASKED)


def test_the_sdks_own_stream_helper_puts_the_pieces_together(sdk: OpenAI) -> None:
    with sdk.chat.completions.stream(model="bench/pair", messages=ASKED) as stream:
        for _ in stream:
            pass
        final = stream.get_final_completion()
    assert final.choices[0].finish_reason == "stop"
    assert "I am ok-b." in (final.choices[0].message.content or "")


def test_bench_options_go_through_the_sdks_extra_body(sdk: OpenAI) -> None:
    reply = sdk.chat.completions.create(
        model="bench/guests", messages=ASKED, extra_body={"bench": {"with": ["ok-b"], "explorers": 0, "shape": "prose"}}
    )
    assert seats_of(bench(reply)) == [("member", "ok-a", "ok"), ("guest", "ok-b", "ok")]
    assert (bench(reply)["shape"], bench(reply)["shape_by"]) == ("prose", "request")


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/chat/completions", "/v1/chat/completions?x=1"])
def test_both_paths_answer(http: httpx.Client, models: Upstream, path: str) -> None:
    assert http.post(path, json=question("bench/pair")).json()["bench"]["collection"] == "bench/pair"


# Usage.


def test_usage_is_the_sum_over_the_seats(sdk: OpenAI) -> None:
    reply = sdk.chat.completions.create(model="bench/metered", messages=ASKED)
    assert reply.usage is not None
    data = {seat["alias"]: seat for seat in bench(reply)["seats"]}
    assert (data["in800-out120-a"]["prompt_tokens"], data["in800-out120-a"]["completion_tokens"]) == (800, 120)
    total = [sum(seat.get(name) or 0 for seat in data.values()) for name in ("prompt_tokens", "completion_tokens")]
    assert [reply.usage.prompt_tokens, reply.usage.completion_tokens] == total
    assert total[0] >= 810
    assert total[1] >= 125
    assert reply.usage.total_tokens == sum(total)


def test_usage_is_streamed_when_asked_for_in_a_chunk_of_its_own(sdk: OpenAI) -> None:
    stream = sdk.chat.completions.create(
        model="bench/pair", messages=ASKED, stream=True, stream_options={"include_usage": True}
    )
    *others, last = list(stream)
    assert last.choices == []
    assert last.usage is not None
    assert (last.usage.prompt_tokens, last.usage.completion_tokens, last.usage.total_tokens) == (20, 10, 30)
    assert all(chunk.choices and chunk.usage is None for chunk in others)
    assert others[-1].choices[0].finish_reason == "stop"


@pytest.mark.parametrize("options", [None, {}, {"include_usage": False}])
def test_without_being_asked_for_no_chunk_is_without_choices(
    http: httpx.Client, models: Upstream, options: Json | None
) -> None:
    chunks = streamed(http, "bench/pair", stream_options=options)
    assert all(chunk["choices"] and "usage" not in chunk for chunk in chunks)


# What reaches the seats.


@pytest.mark.parametrize("stream", [False, True])
def test_messages_and_settings_reach_each_seat_as_sent(http: httpx.Client, models: Upstream, stream: bool) -> None:
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "One."}, {"type": "text", "text": "Two. ü 漢"}]},
        {"role": "assistant", "content": "Three.", "refusal": None},
        {"role": "user", "content": "Four.", "name": "someone"},
    ]
    settings = {
        "temperature": 0.25,
        "top_p": 0.5,
        "max_tokens": 77,
        "seed": 5,
        "stop": ["END", "\n\n"],
        "presence_penalty": -0.5,
        "frequency_penalty": 1,
        "logit_bias": {"50256": -100},
        "logprobs": True,
        "top_logprobs": 2,
        "reasoning_effort": "low",
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "a", "strict": True, "schema": {"type": "object", "properties": {}}},
        },
    }
    caller = streamed if stream else panel
    caller(http, "bench/echoes", messages=messages, **settings)
    calls = models.calls()
    assert sorted(call.model for call in calls) == ["echo-a", "echo-b"]
    for call in calls:
        sent = {name: value for name, value in call.body.items() if name not in {"model", "messages"}}
        assert sent == settings
        wanted = [{k: v for k, v in message.items() if v is not None} for message in messages]
        got = [{k: v for k, v in message.items() if v is not None} for message in call.body["messages"]]
        assert got == wanted


def test_each_seat_is_asked_once_and_no_other_model(http: httpx.Client, models: Upstream) -> None:
    ask(http, "bench/outcomes")
    asked = Counter(call.model for call in models.calls())
    assert asked == {"ok-a": 1, "empty-a": 1, "null-a": 1, "length-a": 1, "fail500-a": 1}


@pytest.mark.parametrize("stream", [False, True])
def test_text_in_any_script_comes_back_whole(proxy: Proxy, models: Upstream, stream: bool) -> None:
    with proxy.client() as caller:
        response = ask(caller, "bench/unicode", stream=stream)
    # Readers that split lines at these would cut an event in two.
    for separator in ("\u2028", "\u2029", "\u0085"):
        assert separator.encode() not in response.content
    if stream:
        blocks = response.content.decode().split("\n\n")
        chunks = [json.loads(block.removeprefix("data: ")) for block in blocks if block.startswith("data: {")]
        assert text_of(chunks).count(UNICODE) == 2
        data = chunks[-1]["bench"]
    else:
        assert response.json()["choices"][0]["message"]["content"].count(UNICODE) == 2
        data = response.json()["bench"]
    assert [seat["answer"] for seat in data["seats"]] == [UNICODE, UNICODE]


# Streams as they run.


def test_the_200_and_the_heading_arrive_before_any_seat_answered(http: httpx.Client, models: Upstream) -> None:
    with http.stream("POST", CHAT, json=question("bench/gated", stream=True)) as response:
        assert response.status_code == 200
        assert PANEL_ID.fullmatch(response.headers["x-bench-panel"])
        reading = events(response)
        opening = [next(reading), next(reading)]
        started(models, 3)
        assert all(call.status is None for call in models.calls())
        assert isinstance(opening[0], dict)
        assert opening[0]["choices"][0]["delta"]["role"] == "assistant"
        assert isinstance(opening[1], dict)
        top = text_of([opening[1]])
        for word in ("bench/gated", response.headers["x-bench-panel"], "gate-a", "gate-b", "gate-c", "general"):
            assert word in top
        for gate in ("gate-a", "gate-b", "gate-c"):
            models.release(gate)
        assert list(reading)[-1] == DONE


def test_no_call_id_is_told_before_its_answer(http: httpx.Client, models: Upstream) -> None:
    with http.stream("POST", CHAT, json=question("bench/gated", stream=True)) as response:
        reading = events(response)
        opening = json.dumps([next(reading), next(reading), dict(response.headers)])
        assert ".member" not in opening
        for gate in ("gate-a", "gate-b", "gate-c"):
            models.release(gate)
        assert list(reading)[-1] == DONE


def test_sections_arrive_as_the_seats_finish_and_their_calls_are_on_the_record(
    http: httpx.Client, models: Upstream, proxy: Proxy
) -> None:
    with proxy.client() as judge, http.stream("POST", CHAT, json=question("bench/gated", stream=True)) as response:
        reading = (event for event in events(response) if isinstance(event, dict))
        opening = [next(reading), next(reading)]
        started(models, 3)
        order = ["gate-c", "gate-a", "gate-b"]
        for gate in order:
            models.release(gate)
            section = text_of([next(reading)])
            assert f": {gate}\n" in section
            assert f"I am {gate}." in section
            call = re.search(r"`(p[^`]*\.member\d)`", section)
            assert call is not None
            verdict = judge.post("/bench/verdict", json={"call": call[1], "useful": gate != "gate-a"})
            assert verdict.json()["recorded"] is True
        rest = list(reading)
    assert "## " not in text_of(rest)
    data = rest[-1]["bench"]
    assert [seat["alias"] for seat in data["seats"]] == ["gate-a", "gate-b", "gate-c"]
    assert "bench/gated" in text_of(opening)


def test_silence_is_filled_with_comments(http: httpx.Client, models: Upstream) -> None:
    with http.stream("POST", CHAT, json=question("bench/one-gate", stream=True)) as response:
        reading = events(response)
        opening = [next(reading), next(reading)]
        assert KEEP_ALIVE not in opening
        assert [next(reading), next(reading)] == [KEEP_ALIVE, KEEP_ALIVE]
        models.release("gate-a")
        rest = list(reading)
    assert KEEP_ALIVE not in chunks_of(rest)
    assert rest[-1] == DONE


def test_the_sdk_takes_keep_alives_for_nothing(sdk: OpenAI, models: Upstream) -> None:
    stream = sdk.chat.completions.create(model="bench/one-gate", messages=ASKED, stream=True)
    reading = iter(stream)
    first = [next(reading), next(reading)]
    started(models, 1)
    with pytest.raises(TimeoutError):  # long enough for a keep-alive
        models.wait_for(lambda calls: calls[0].end is not None, timeout=1.5)
    models.release("gate-a")
    rest = list(reading)
    assert "I am gate-a." in "".join(chunk.choices[0].delta.content or "" for chunk in [*first, *rest])


# Callers who hang up.


@pytest.mark.parametrize("stream", [False, True])
def test_a_caller_who_hangs_up_does_not_stop_the_panel(http: httpx.Client, models: Upstream, stream: bool) -> None:
    with (
        pytest.raises(httpx.ReadTimeout),
        http.stream(
            "POST", CHAT, json=question("bench/gated", stream=stream), timeout=httpx.Timeout(30, read=0.5)
        ) as response,
    ):
        for _ in events(response):
            pass
    started(models, 3)
    for gate in ("gate-a", "gate-b", "gate-c"):
        models.release(gate)
    models.wait_for(lambda calls: all(call.end is not None for call in calls))
    assert not any(call.hung_up for call in models.calls())

    def newest() -> Json:
        found: list[Json] = http.get("/bench/panels", params={"collection": "gated", "limit": 1}).json()["panels"]
        return found[0] if found else {"over": False}  # it may be on its way to the record

    assert eventually(lambda: newest()["over"] and statuses(newest())) == dict.fromkeys(
        ("gate-a", "gate-b", "gate-c"), "ok"
    )


@pytest.mark.parametrize("stream", [False, True])
def test_a_caller_who_hangs_up_stops_the_panel_where_the_collection_says_so(
    http: httpx.Client, models: Upstream, stream: bool
) -> None:
    with (
        pytest.raises(httpx.ReadTimeout),
        http.stream(
            "POST", CHAT, json=question("bench/cancelled", stream=stream), timeout=httpx.Timeout(30, read=0.5)
        ) as response,
    ):
        for _ in events(response):
            pass
    calls = models.wait_for(lambda calls: len(calls) == 2 and all(call.end is not None for call in calls))
    assert all(call.hung_up for call in calls)


def test_callers_who_hang_up_before_a_panel_is_seated_leave_nothing_behind(keyless: Proxy, models: Upstream) -> None:
    request = request_bytes(json.dumps(question("bench/leaving", stream=True)).encode(), key=None)
    with keyless.client() as caller:
        assert eventually(lambda: ask(caller, "bench/pair").status_code == 200)
        with held(keyless):  # the explorer cannot be reserved, while the member is asked already
            for count in (1, 2, 3):
                with closing(connect(keyless.url)) as connection:
                    connection.sendall(request)
                    started(models, count + 2)
            models.wait_for(lambda calls: sum(call.hung_up for call in calls) == 3)
        # As many panels as may run at once have been left: one that had not ended would keep its place for ever.
        assert eventually(lambda: ask(caller, "bench/pair").status_code == 200)


def test_an_answer_of_many_megabytes_is_streamed_whole(http: httpx.Client, models: Upstream) -> None:
    text = text_of(streamed(http, "bench/huge"))
    assert said_by("huge-a")[: 8 * 1024 * 1024] in text
    assert "I am ok-a." in text


def test_requests_that_share_a_connection_are_answered_in_order(proxy: Proxy, models: Upstream) -> None:
    first, second, last = (json.dumps(question(f"bench/{name}")).encode() for name in ("overdue", "pair", "solo"))
    for gate in ("gate-a", "gate-b"):
        models.release(gate)
    with closing(connect(proxy.url)) as connection:
        connection.sendall(request_bytes(first) + request_bytes(second) + request_bytes(last, "Connection: close"))
        replies = b"".join(iter(lambda: connection.recv(65_536), b""))
    assert replies.count(b"HTTP/1.1 200 OK\r\n") == 3
    answered = re.findall(rb'"collection":"bench/([a-z-]+)"', replies)
    assert answered == [b"overdue", b"pair", b"solo"]


def test_a_connection_is_free_while_late_seats_still_run(http: httpx.Client, models: Upstream) -> None:
    first = panel(http, "bench/overdue", bench={"deadline": 0.2})["bench"]
    assert statuses(first)["gate-a"] == "late"
    assert statuses(panel(http, "bench/pair")["bench"]) == {"ok-a": "ok", "ok-b": "ok"}
    assert models.calls("gate-a")[0].end is None


# More panels than may run.


def test_a_panel_too_many_is_429_with_a_wait_and_there_is_room_again_later(keyless: Proxy, models: Upstream) -> None:
    with keyless.client() as caller, ExitStack() as running:
        asked = question("bench/gated", stream=True)
        streams = [running.enter_context(caller.stream("POST", CHAT, json=asked)) for _ in range(3)]
        assert [response.status_code for response in streams] == [200, 200, 200]
        response = ask(caller, "bench/pair")
        error = refusal(response, 429)
        assert error["type"] == "rate_limit_error"
        assert int(response.headers["retry-after"]) >= 1
        assert "concurrent_panels" in error["message"]
        models.release("gate-a", 3)
        for stream in streams:
            assert list(events(stream))[-1] == DONE
        assert eventually(lambda: ask(caller, "bench/pair").status_code == 200)


# Explorers and guests.


def test_nobody_who_may_explore_is_left_out_twice_running(http: httpx.Client, models: Upstream) -> None:
    seated = []
    for _ in range(6):
        data = panel(http, "bench/explored")["bench"]
        assert [seat["alias"] for seat in data["seats"][:2]] == ["ok-a", "ok-b"]
        explorers = [seat for seat in data["seats"] if seat["seat"] == "explorer"]
        assert [seat["call"].rpartition(".")[2] for seat in explorers] == ["explorer1", "explorer2"]
        seated.append({seat["alias"] for seat in explorers})
    assert all(len(pair) == 2 for pair in seated)
    for before, after in itertools.pairwise(seated):
        assert before | after == set(EXPLORERS)


def test_a_rate_limited_explorer_is_asked_once_and_adds_nothing(http: httpx.Client, models: Upstream) -> None:
    with http.stream("POST", CHAT, json=question("bench/hasty", stream=True)) as response:
        reading = (event for event in events(response) if isinstance(event, dict))
        opening = [next(reading), next(reading)]
        assert "rate-explorer" in text_of(opening)
        assert "rate-explorer" in text_of([next(reading)])  # its section, while the member still thinks
        assert models.calls("gate-a")[0].status is None
        models.release("gate-a")
        data = list(reading)[-1]["bench"]
    assert statuses(data) == {"gate-a": "ok", "rate-explorer": "error"}
    assert data["seats"][1]["error"]["status"] == 429
    assert len(models.calls("rate-explorer")) == 1


def test_a_silent_explorer_is_waited_for_no_longer_than_its_grace(http: httpx.Client, models: Upstream) -> None:
    # The explorer is one for images.
    reply = panel(http, "bench/patient", text=[{"type": "image_url", "image_url": {"url": PNG}}])
    assert statuses(reply["bench"]) == {"ok-h": "ok", "gate-explorer": "late"}
    assert models.calls("gate-explorer")[0].end is None
    models.release("gate-explorer")
    assert eventually(lambda: statuses(recorded(http, reply["bench"]["panel"]))["gate-explorer"] == "ok")


def test_guests_take_the_explorers_seats(http: httpx.Client, models: Upstream) -> None:
    one = panel(http, "bench/guests", **{"with": ["ok-b"]})["bench"]
    assert [seat["seat"] for seat in one["seats"]] == ["member", "guest", "explorer"]
    assert one["seats"][1]["call"] == f"{one['panel']}.guest1"
    two = panel(http, "bench/guests", bench={"with": ["ok-b", "ok-c"]})["bench"]
    assert seats_of(two) == [("member", "ok-a", "ok"), ("guest", "ok-b", "ok"), ("guest", "ok-c", "ok")]


def test_guests_that_cannot_sit_are_named(http: httpx.Client, models: Upstream) -> None:
    response = ask(http, "bench/guests", **{"with": ["ok-a", "ok-b", "ok-c", "ok-d"]})
    data = response.json()["bench"]
    assert [seat["alias"] for seat in data["seats"]] == ["ok-a", "ok-b", "ok-c"]
    # ok-a sits already, as a member.
    assert [(skipped["seat"], skipped["alias"]) for skipped in data["skipped"]] == [("guest", "ok-d")]
    assert all(skipped["why"] for skipped in data["skipped"])
    assert data["partial"] is True
    assert response.headers["x-bench-partial"] == "true"
    top = heading(response.json()["choices"][0]["message"]["content"])
    assert "ok-d was skipped" in top


def test_fewer_explorers_can_be_asked_for_and_never_more(http: httpx.Client, models: Upstream) -> None:
    assert len(panel(http, "bench/explored", bench={"explorers": 0})["bench"]["seats"]) == 2
    assert len(panel(http, "bench/explored", bench={"explorers": 1})["bench"]["seats"]) == 3
    assert len(panel(http, "bench/explored", bench={"explorers": 9})["bench"]["seats"]) == 4
    assert len(panel(http, "bench/pair", bench={"explorers": 2})["bench"]["seats"]) == 2


async def seated_at_once(served: Proxy, panels: int) -> Counter[str]:
    """How often each model sat as an explorer of so many panels that were asked for at the same time."""
    async with served.async_client() as caller:
        asking = [caller.post(CHAT, json=question("bench/wide")) for _ in range(panels)]
        replies = [response.json()["bench"] for response in await asyncio.gather(*asking)]
    assert all(len(data["seats"]) == 3 for data in replies)
    assert len({data["panel"] for data in replies}) == panels
    return Counter(seat["alias"] for data in replies for seat in data["seats"] if seat["seat"] == "explorer")


@pytest.mark.proxy
@pytest.mark.parametrize("name", ["one process", "two processes"])
async def test_simultaneous_panels_spread_over_equal_explorers(
    name: str, request: pytest.FixtureRequest, on_lane: Callable[[str], Proxy]
) -> None:
    served: Proxy = on_lane("auto") if name == "one process" else request.getfixturevalue("workers")
    before = drawn_blindly(served)
    seated = await seated_at_once(served, 40)
    # A panel does not wait for a ledger that is slow, as one on a very busy machine can be.
    most = 2 + 2 * (drawn_blindly(served) - before)
    assert all(abs(seated[name] - 8) <= most for name in WIDE), seated


def drawn_blindly(served: Proxy) -> int:
    return served.log().count("are drawn without the ledger")


# Many at once.


async def test_200_streams_opened_at_once_all_complete(proxy: Proxy, models: Upstream) -> None:
    async with proxy.async_client() as caller:

        async def one() -> tuple[str, Json]:
            async with caller.stream("POST", CHAT, json=question("bench/crowd", stream=True)) as response:
                assert response.status_code == 200
                chunks = chunks_of([event async for event in async_events(response)])
            assert "bench" in chunks[-1], chunks[-1]
            return text_of(chunks), chunks[-1]["bench"]

        replies = await asyncio.gather(*(one() for _ in range(200)))
    assert len({data["panel"] for _, data in replies}) == 200
    for text, data in replies:
        assert statuses(data) == {"slow300-a": "ok", "slow300-b": "ok"}
        assert text.count("I am slow300-a.") == text.count("I am slow300-b.") == 1


# The list of models.


def test_collections_follow_litellms_models(http: httpx.Client, bare: Proxy) -> None:
    listed = http.get("/v1/models").json()
    with bare.client() as caller:
        theirs = caller.get("/v1/models").json()
    assert listed["object"] == "list"
    assert listed["data"][: len(theirs["data"])] == theirs["data"]
    ours = {entry["id"]: entry for entry in listed["data"][len(theirs["data"]) :]}
    assert all(name.startswith("bench/") for name in ours)
    pair = ours["bench/pair"]
    assert (pair["object"], pair["owned_by"]) == ("model", "bench")
    assert isinstance(pair["created"], int)
    about = pair["bench"]
    assert about["description"] == "Two models."
    assert (about["tags"], about["reply"], about["members"]) == (["small"], "all", ["ok-a", "ok-b"])
    assert about["explorers"] == 0
    assert about["together"]["context_unknown"] == ["ok-a", "ok-b"]
    assert about["together"]["capabilities"] == ["tools"]
    assert http.get("/models").json() == listed


def test_the_sdk_lists_and_finds_collections(sdk: OpenAI) -> None:
    assert "bench/pair" in [model.id for model in sdk.models.list()]
    assert sdk.models.retrieve("bench/pair").id == "bench/pair"
    with pytest.raises(openai.NotFoundError):
        sdk.models.retrieve("bench/nothing")


@pytest.mark.parametrize("path", ["/v1/models/bench/pair", "/v1/models/bench%2Fpair", "/models/bench%2fpair"])
def test_a_collection_is_found_by_its_name_encoded_or_not(http: httpx.Client, path: str) -> None:
    entry = http.get(path).json()
    assert entry["id"] == "bench/pair"
    assert entry in http.get("/v1/models").json()["data"]


def test_the_case_of_the_prefix_does_not_matter_there(http: httpx.Client) -> None:
    assert http.get("/v1/models/BENCH%2Fpair").json()["id"] == "bench/pair"


def test_an_unknown_collection_is_not_found_in_openais_shape(http: httpx.Client) -> None:
    assert "bench/pair" in refusal(http.get("/v1/models/bench/nothing"), 404)["message"]


def test_anthropics_list_has_anthropics_shape(http: httpx.Client) -> None:
    listed = http.get("/v1/models", headers={"anthropic-version": "2023-06-01"}).json()
    (pair,) = [entry for entry in listed["data"] if entry["id"] == "bench/pair"]
    assert set(pair) == {"type", "id", "display_name", "created_at"}
    assert pair["type"] == "model"
    assert listed["last_id"] == listed["data"][-1]["id"]
    assert listed["has_more"] is False
    assert any(entry["id"] == "ok-a" for entry in listed["data"])
