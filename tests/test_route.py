"""Route mode as an agent meets it: one member answers, stays, and is replaced unseen when it fails."""

import itertools
import json
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from tests.asking import (
    CHAT,
    DONE,
    KEEP_ALIVE,
    Json,
    events,
    eventually,
    question,
    refusal,
    streamed,
    text_of,
)
from tests.proxy import Proxy
from tests.served import FAILS_FIRST, LANES
from tests.upstream import Upstream

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "lookup",
            "parameters": {"type": "object", "properties": {"query": {"type": "string"}, "n": {"type": "integer"}}},
        },
    }
]
NUMBER = itertools.count()


@pytest.fixture(params=LANES)
def proxy(request: pytest.FixtureRequest, on_lane: Callable[[str], Proxy]) -> Proxy:
    return on_lane(request.param)


@pytest.fixture
def conversation() -> str:
    """An explicit sticky key that no other test uses."""
    return f"conversation {next(NUMBER)}"


def ask(http: httpx.Client, model: str, conversation: str, **more: Any) -> httpx.Response:
    body = question(model, **{"bench": {"conversation": conversation}, **more})
    return http.post(CHAT, json=body)


def turn(http: httpx.Client, model: str, conversation: str, *, stream: bool = False, **more: Any) -> Json:
    """The message, the finish reason and the `bench` object of a turn that is answered."""
    if stream:
        return turn_of(streamed(http, model, bench={"conversation": conversation}, **more))
    response = ask(http, model, conversation, **more)
    assert response.status_code == 200, response.text
    reply = response.json()
    return {**reply["choices"][0]["message"], "finish": reply["choices"][0]["finish_reason"], "bench": reply["bench"]}


def turn_of(chunks: list[Json]) -> Json:
    calls: dict[int, Json] = {}
    for piece in (piece for chunk in chunks for piece in chunk["choices"][0]["delta"].get("tool_calls") or ()):
        call = calls.setdefault(piece["index"], {"id": piece.get("id"), "function": {"name": "", "arguments": ""}})
        for name in ("name", "arguments"):
            call["function"][name] += piece["function"].get(name) or ""
    thoughts = "".join(chunk["choices"][0]["delta"].get("reasoning_content") or "" for chunk in chunks)
    return {
        "content": text_of(chunks),
        "reasoning_content": thoughts,
        "tool_calls": [calls[index] for index in sorted(calls)],
        "finish": chunks[-1]["choices"][0]["finish_reason"],
        "bench": chunks[-1]["bench"],
    }


def arguments(said: Json) -> list[Json]:
    return [json.loads(call["function"]["arguments"]) for call in said["tool_calls"]]


# Who answers.


@pytest.mark.parametrize("stream", [False, True])
def test_one_member_answers_and_says_who_it_is(
    http: httpx.Client, models: Upstream, conversation: str, stream: bool
) -> None:
    said = turn(http, "bench/routed", conversation, stream=stream)
    assert said["content"] == "I am ok-routed-a."
    assert [call.model for call in models.calls()] == ["ok-routed-a"]
    bench = said["bench"]
    assert bench["reply"] == "route"
    assert (bench["alias"], bench["turn"], bench["sticky_by"]) == ("ok-routed-a", 1, "bench.conversation")
    assert bench["call"] == f"{bench['conversation']}.1"
    assert bench["failed_over"] == bench["skipped"] == []


def test_the_headers_say_the_same(http: httpx.Client, models: Upstream, conversation: str) -> None:
    response = ask(http, "bench/routed", conversation)
    bench = response.json()["bench"]
    told = {name: response.headers[f"x-bench-{name}"] for name in ("conversation", "call", "model", "collection")}
    assert told == {
        "conversation": bench["conversation"],
        "call": bench["call"],
        "model": "ok-routed-a",
        "collection": "bench/routed",
    }


FAILS_STREAMED = {"midfail0-route", "unfinished0-route"}
"""What only a stream can suffer."""


@pytest.mark.parametrize(
    ("failing", "stream"),
    [(one, stream) for one in FAILS_FIRST for stream in (False, True) if stream or one not in FAILS_STREAMED],
)
def test_a_member_that_fails_before_its_first_piece_is_replaced_unseen(
    http: httpx.Client, models: Upstream, conversation: str, failing: str, stream: bool
) -> None:
    said = turn(http, f"bench/route-{failing}", conversation, stream=stream, tools=TOOLS)
    assert said["content"] == "I am ok-spare."
    assert said["bench"]["alias"] == "ok-spare"
    failed = said["bench"]["failed_over"]
    asked = [call.model for call in models.calls()]
    # It cools after the first time, and is then not asked at all.
    assert [one["alias"] for one in failed] == asked[:-1]
    assert asked[-1] == "ok-spare"


@pytest.mark.parametrize("stream", [False, True])
def test_a_member_that_breaks_off_after_its_first_piece(
    http: httpx.Client, models: Upstream, conversation: str, stream: bool
) -> None:
    """Streamed, the caller has heard some of it: an error. Whole, nothing has left: the next member."""
    if not stream:
        assert turn(http, "bench/route-midfail2-route", conversation)["content"] in {
            "I am ok-spare.",
            "I am midfail2-route.",
        }
        return
    body = question("bench/route-midfail2-route", bench={"conversation": conversation}, stream=True)
    with http.stream("POST", CHAT, json=body) as response:
        found = list(events(response))
    if models.calls()[0].model == "ok-spare":  # it cools from an earlier time
        return
    assert found[-1] == DONE
    error = found[-2]
    assert isinstance(error, dict)
    assert "midfail2-route broke off" in error["error"]["message"]
    assert error["error"]["code"] == "answer_broke_off"
    assert [call.model for call in models.calls()] == ["midfail2-route"]


# Nobody answers.


@pytest.mark.parametrize("stream", [False, True])
def test_when_all_fail_each_is_named(http: httpx.Client, models: Upstream, conversation: str, stream: bool) -> None:
    response = ask(http, "bench/route-all-fail", conversation, stream=stream)
    error = refusal(response, 502)
    for member in ("fail500-a", "html-b"):
        assert member in error["message"]
    assert "127.0.0.1" not in response.text
    assert response.headers["x-bench-conversation"] == response.json()["bench"]["conversation"]
    assert [one["alias"] for one in response.json()["bench"]["failed_over"]]


@pytest.mark.parametrize("stream", [False, True])
def test_when_all_are_rate_limited_the_shortest_wait_is_told(
    http: httpx.Client, models: Upstream, conversation: str, stream: bool
) -> None:
    response = ask(http, "bench/route-limited", conversation, stream=stream)
    refusal(response, 429)
    assert response.headers["retry-after"] == "7"


@pytest.mark.parametrize("stream", [False, True])
def test_a_prompt_too_long_for_all_is_the_vendors_own_400(
    http: httpx.Client, models: Upstream, conversation: str, stream: bool
) -> None:
    error = refusal(ask(http, "bench/route-too-long", conversation, stream=stream), 400)
    assert error["code"] == "context_length_exceeded"
    assert "maximum context length is 4096 tokens" in error["message"]


@pytest.mark.parametrize("stream", [False, True])
def test_what_every_member_would_refuse_is_told_in_the_members_words(
    http: httpx.Client, models: Upstream, conversation: str, stream: bool
) -> None:
    error = refusal(ask(http, "bench/route-refused", conversation, stream=stream), 400)
    assert "fail422-a fails with 422" in error["message"]
    assert [call.model for call in models.calls()] == ["fail422-a"]


# Tools.


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("member", ["tools2-atonce-a", "tools2-objects-a", "tools2-idless-a", "think-aloud-tools2-a"])
def test_calls_come_well_formed_however_the_member_makes_them(
    http: httpx.Client, models: Upstream, conversation: str, member: str, stream: bool
) -> None:
    said = turn(http, f"bench/route-{member}", conversation, stream=stream, tools=TOOLS)
    assert [call["function"]["name"] for call in said["tool_calls"]] == ["lookup", "lookup"]
    assert arguments(said) == [{"query": member, "n": 0}, {"query": member, "n": 1}]
    assert len({call["id"] for call in said["tool_calls"]}) == 2
    assert all(call["id"] for call in said["tool_calls"])
    assert said["finish"] == "tool_calls"
    if "think" in member:
        assert said["reasoning_content"] == "Let me think."
        assert said["content"] == f"I am {member}."


def test_a_hundred_turns_with_tools_stay_on_one_member(http: httpx.Client, models: Upstream, conversation: str) -> None:
    messages: list[Json] = [{"role": "user", "content": "Look it up."}]
    told = set()
    for number in range(1, 101):
        response = http.post(
            CHAT,
            json={"model": "bench/agents", "messages": messages, "tools": TOOLS},
            headers={"x-session-id": conversation},
        )
        assert response.status_code == 200, response.text
        reply = response.json()
        assert reply["bench"]["turn"] == number
        assert reply["bench"]["sticky_by"] == "client session"
        told.add((reply["bench"]["alias"], reply["bench"]["call"]))
        message = reply["choices"][0]["message"]
        messages.append({k: v for k, v in message.items() if v is not None})
        calls = message.get("tool_calls") or ()
        messages += [{"role": "tool", "tool_call_id": call["id"], "content": "found"} for call in calls]
        if not calls:
            messages.append({"role": "user", "content": f"And number {number}?"})
    assert len(told) == 1
    assert len({call.model for call in models.calls()}) == 1


def test_tools_and_settings_reach_the_member_as_they_were_sent(
    http: httpx.Client, models: Upstream, conversation: str
) -> None:
    turn(
        http, "bench/route-echo", conversation, tools=TOOLS, tool_choice="auto", parallel_tool_calls=False,
        temperature=0.3, max_tokens=50, stop=["END"],
    )  # fmt: skip
    body = models.calls()[0].body
    assert body["tools"] == TOOLS
    assert {n: body[n] for n in ("tool_choice", "parallel_tool_calls", "temperature", "max_tokens", "stop")} == {
        "tool_choice": "auto",
        "parallel_tool_calls": False,
        "temperature": 0.3,
        "max_tokens": 50,
        "stop": ["END"],
    }
    assert "bench" not in body


def test_a_tool_that_only_its_vendor_runs_is_left_out_and_named(
    http: httpx.Client, models: Upstream, conversation: str
) -> None:
    said = turn(http, "bench/route-echo", conversation, tools=[*TOOLS, {"type": "web_search"}])
    assert models.calls()[0].body["tools"] == TOOLS
    assert said["bench"]["left_out"] == ["web_search"]


@pytest.mark.parametrize("more", [{"tools": [{"type": "web_search"}]}, {"n": 2}, {"bench": {"with": ["ok-spare"]}}])
def test_what_cannot_be_honoured_is_refused_before_anybody_is_asked(
    http: httpx.Client, models: Upstream, conversation: str, more: Json
) -> None:
    refusal(ask(http, "bench/routed", conversation, **more), 400)
    assert models.calls() == []


# Usage.


@pytest.mark.parametrize("stream", [False, True])
def test_usage_is_the_members_own(http: httpx.Client, models: Upstream, conversation: str, stream: bool) -> None:
    model = "bench/route-cached-thought-route"
    body = question(model, bench={"conversation": conversation})
    if stream:
        body = {"bench": {"conversation": conversation}, "stream_options": {"include_usage": True}}
        found = streamed(http, model, **body)
        usage = found[-1]["usage"]
        assert found[-1]["choices"] == []
    else:
        usage = http.post(CHAT, json=body).json()["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (10, 5)
    assert usage["prompt_tokens_details"]["cached_tokens"] == 4
    assert usage["completion_tokens_details"]["reasoning_tokens"] == 3


def test_no_chunk_is_without_choices_unless_usage_was_asked_for(
    http: httpx.Client, models: Upstream, conversation: str
) -> None:
    chunks = streamed(http, "bench/routed", bench={"conversation": conversation})
    assert all(chunk["choices"] for chunk in chunks)
    assert "role" in chunks[0]["choices"][0]["delta"]


# Waiting, leaving.


def test_silence_is_filled_once_the_200_had_to_leave(http: httpx.Client, models: Upstream, conversation: str) -> None:
    body = question("bench/route-gate-route", bench={"conversation": conversation}, stream=True)
    with http.stream("POST", CHAT, json=body) as response:
        assert response.status_code == 200
        came: Iterator[Json | str] = events(response)
        assert next(e for e in came if e == KEEP_ALIVE)
        models.release("gate-route")
        rest = list(came)
    assert rest[-1] == DONE
    assert text_of([e for e in rest if isinstance(e, dict)]) in {"I am gate-route.", "I am ok-spare."}


@pytest.mark.parametrize("stream", [False, True])
def test_a_caller_who_hangs_up_ends_the_members_call(
    proxy: Proxy, models: Upstream, conversation: str, stream: bool
) -> None:
    model = "route-pace200-route" if stream else "route-gate-route"
    with proxy.client() as http:
        body = question(f"bench/{model}", bench={"conversation": conversation}, stream=stream)
        request = http.build_request("POST", CHAT, json=body)
        if stream:
            response = http.send(request, stream=True)
            next(response.iter_raw())
            response.close()
        else:
            with pytest.raises(httpx.ReadTimeout):
                http.send(http.build_request("POST", CHAT, json=body, timeout=2))
    models.wait_for(lambda calls: calls and calls[0].hung_up)
    with proxy.client() as http:
        page = eventually(lambda: [
            one for one in http.get("/bench/conversations", params={"collection": model}).json()["conversations"]
            if one["turns"]
        ])  # fmt: skip
        found = http.get(f"/bench/conversations/{page[0]['conversation']}").json()
    assert found["history"][0]["status"] == "cancelled"


# The record.


def test_a_conversation_is_on_the_record_with_its_turns_and_takes_a_verdict(
    http: httpx.Client, models: Upstream, conversation: str
) -> None:
    first = turn(http, "bench/routed", conversation)["bench"]
    turn(http, "bench/routed", conversation, stream=True)
    judged = http.post("/bench/verdict", json={"call": first["call"], "useful": True})
    assert judged.status_code == 200, judged.text
    assert judged.json()["alias"] == "ok-routed-a"
    found = http.get(f"/bench/conversations/{first['conversation']}").json()
    assert found["turns"] == 2
    assert [one["status"] for one in found["history"]] == ["ok", "ok"]
    assert [(one["call"], one["verdict"]["useful"]) for one in found["calls"]] == [(first["call"], True)]
    assert "Who are you?" not in json.dumps(found)


def test_a_verdict_finds_its_call_the_moment_the_stream_ends(
    http: httpx.Client, models: Upstream, conversation: str
) -> None:
    for number in range(20):
        said = turn(http, "bench/routed", f"{conversation} {number}", stream=True)
        judged = http.post("/bench/verdict", json={"call": said["bench"]["call"], "useful": True})
        assert judged.status_code == 200, judged.text


def test_every_format_of_model_list_names_the_mode(http: httpx.Client) -> None:
    ids = [entry["id"] for entry in http.get("/v1/models").json()["data"]]
    assert "bench/pair:route" in ids
    assert "bench/routed" in ids
