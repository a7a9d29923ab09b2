"""Gemini's API as Google's own models answer it: what is heard of it, and what of it reaches the caller."""

import json
from typing import Any

import pytest

from bench_proxy.errors import TurnFailed
from bench_proxy.formats.base import Envelope
from bench_proxy.formats.gemini.relay import GeminiRelaying
from bench_proxy.formats.gemini.turns import GeminiTurn
from bench_proxy.formats.relays import Relayed, Said
from tests.hearing import hear, understood

Json = dict[str, Any]

GEMINI = GeminiRelaying()
ENVELOPE = Envelope("r1-1", "bench/core:route", 1_772_366_405)
BENCH = {"reply": "route"}


def chunk(*parts: Json, reason: str | None = None, **more: Any) -> bytes:
    candidate: Json = {"content": {"parts": list(parts), "role": "model"}, "index": 0}
    if reason:
        candidate["finishReason"] = reason
    return json.dumps({"candidates": [candidate], "modelVersion": "gemini-3-pro", **more}).encode()


CALL = {"functionCall": {"name": "read", "args": {"n": 1}}, "thoughtSignature": "c2ln"}
HELLO = chunk({"text": "Hello."})
USED = {
    "promptTokenCount": 30, "candidatesTokenCount": 5, "thoughtsTokenCount": 7, "cachedContentTokenCount": 20,
}  # fmt: skip
LAST = chunk({"text": ""}, reason="STOP", usageMetadata=USED)


def heard(*events: bytes) -> tuple[list[Relayed], list[Relayed], Said]:
    hearing = GEMINI.hearing()
    passed = hear(hearing, *events)
    return passed, hearing.last, hearing.said


def named(data: bytes) -> bytes:
    return data.replace(b"gemini-3-pro", b"bench/core:route")


# What goes wrong.


@pytest.mark.parametrize("events", [True, False])
def test_an_error_behind_what_was_passed_on_ends_the_reply(events: bool) -> None:
    stream = GeminiTurn(ENVELOPE, events=events)
    relay = GEMINI.relay(stream, ENVELOPE.model)
    (passed,), _, _ = heard(HELLO)
    written = relay.write(passed) + stream.error(TurnFailed("cut", status=502))
    if events:
        assert b'data: {"error":{"code":502' in written
    else:
        assert [next(iter(one)) for one in json.loads(written)] == ["candidates", "error"]


@pytest.mark.parametrize("body", [{}, {"candidates": None}, {"candidates": [{}]}, {"candidates": [{"content": {}}]}])
def test_a_chunk_that_says_little_is_passed_on(body: Json) -> None:
    passed, _, said = heard(json.dumps(body).encode())
    assert [event.body for event in passed] == [body]
    assert not said.answers


# When an answer begins.


@pytest.mark.parametrize(
    "part", [{"text": "Hm.", "thought": True}, {"text": " \n"}, {"text": "", "thoughtSignature": "c2ln"}]
)
def test_thoughts_and_blank_text_are_no_answer(part: Json) -> None:
    assert not heard(chunk(part), LAST)[2].answers


@pytest.mark.parametrize("part", [{"text": "Hi"}, CALL, {"executableCode": {"code": "1"}}])
def test_text_and_calls_are_an_answer(part: Json) -> None:
    assert heard(chunk(part))[2].answers


# What is passed on.


def test_chunks_are_passed_on_as_events_byte_by_byte_but_for_the_model_and_bench() -> None:
    relay = GEMINI.relay(GeminiTurn(ENVELOPE, events=True), ENVELOPE.model)
    signed = chunk(CALL)
    passed, last, _ = heard(signed, HELLO, LAST)
    assert b"".join(relay.write(event) for event in passed) == (
        b"data: " + named(signed) + b"\n\ndata: " + named(HELLO) + b"\n\n"
    )
    assert relay.end(last, BENCH) == b"data: " + named(LAST)[:-1] + b',"bench":{"reply":"route"}}\n\n'


@pytest.mark.parametrize("begun", [False, True])
def test_chunks_are_items_of_an_array(begun: bool) -> None:
    stream = GeminiTurn(ENVELOPE, events=False)
    written = stream.keep_alive() if begun else b""
    relay = GEMINI.relay(stream, ENVELOPE.model)
    passed, last, _ = heard(HELLO, LAST)
    written += b"".join([relay.write(event) + stream.keep_alive() for event in passed]) + relay.end(last, BENCH)
    chunks = json.loads(written)
    assert len(chunks) == 3 + begun
    assert chunks[-1]["bench"] == BENCH
    assert {one["modelVersion"] for one in chunks} == {"bench/core:route"}


def test_what_comes_behind_the_finish_reason_waits_and_bench_is_on_the_last() -> None:
    used = json.dumps({"usageMetadata": USED}).encode()
    hearing = GEMINI.hearing()
    assert len(hear(hearing, HELLO, chunk({"text": "!"}, reason="STOP"), used)) == 1
    assert hearing.ended
    written = GEMINI.relay(GeminiTurn(ENVELOPE, events=False), "m").end(hearing.last, BENCH)
    assert ["bench" in one for one in json.loads(written)] == [False, True]


def test_a_stream_without_a_finish_reason_has_not_ended() -> None:
    hearing = GEMINI.hearing()
    hear(hearing, HELLO)
    assert not hearing.ended


# What the record gets.


def test_what_was_used_said_and_called() -> None:
    _, _, said = heard(chunk({"text": "Hm.", "thought": True}), HELLO, chunk(CALL), LAST)
    assert (said.text, said.thought, len(said.calls), said.finish_reason) == ("Hello.", 3, 1, "tool_calls")
    assert (said.usage, said.argued) == (USED, len(json.dumps(CALL["functionCall"]["args"])))


@pytest.mark.parametrize(
    ("reason", "expected"), [("STOP", "stop"), ("MAX_TOKENS", "length"), ("SAFETY", "content_filter")]
)
def test_finish_reasons_are_in_the_words_of_chat(reason: str, expected: str) -> None:
    assert heard(chunk({"text": "x"}, reason=reason))[2].finish_reason == expected


def test_a_whole_answer_keeps_every_byte_but_the_model_and_has_bench() -> None:
    body = chunk(CALL, {"text": "Hello."}, reason="STOP", usageMetadata=USED)
    assert GEMINI.whole(body, "bench/core:route", BENCH) == named(body)[:-1] + b',"bench":{"reply":"route"}}'
    said = understood(GEMINI, body)
    assert (said.text, len(said.calls), said.finish_reason, said.usage) == ("Hello.", 1, "tool_calls", USED)


# What is sent.


def fitted(body: Json, *, foreign: bool) -> Json:
    before = json.dumps(body)
    made: Json = dict(GEMINI.fitted(body, foreign=foreign, most_output=64))
    assert json.dumps(body) == before
    return made


@pytest.mark.parametrize("name", ["thoughtSignature", "thought_signature"])
@pytest.mark.parametrize("alone", [False, True])
def test_signatures_that_may_be_anothers_are_taken_from_their_parts(name: str, alone: bool) -> None:
    call = {"functionCall": {"name": "read"}}
    content = {"role": "model", "parts": {**call, name: "c2ln"} if alone else [{**call, name: "c2ln"}, {"text": "x"}]}
    body = {"contents": content if alone else [content]}
    assert fitted(body, foreign=False) == body
    left = {"role": "model", "parts": call if alone else [call, {"text": "x"}]}
    assert fitted(body, foreign=True) == {"contents": left if alone else [left]}


@pytest.mark.parametrize(
    ("config", "budget"), [("generationConfig", "maxOutputTokens"), ("generation_config", "max_output_tokens")]
)
def test_a_budget_above_what_the_model_writes_is_cut_in_either_spelling(config: str, budget: str) -> None:
    assert fitted({config: {budget: 100, "topK": 1}}, foreign=False) == {config: {budget: 64, "topK": 1}}
    assert fitted({config: {budget: 3}}, foreign=False) == {config: {budget: 3}}


@pytest.mark.parametrize("contents", ["hi", [None, "hi", {"parts": None}], {"parts": [{"text": "x"}, 3]}])
def test_odd_contents_are_sent_as_they_are(contents: Any) -> None:
    assert fitted({"contents": contents}, foreign=True) == {"contents": contents}
