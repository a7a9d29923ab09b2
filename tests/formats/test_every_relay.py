"""Whatever a member's server or a caller sends: a relay takes it."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench_proxy.formats import sse
from bench_proxy.formats.anthropic.relay import MessagesRelaying
from bench_proxy.formats.anthropic.turns import MessagesTurn
from bench_proxy.formats.base import Envelope
from bench_proxy.formats.gemini.relay import GeminiRelaying
from bench_proxy.formats.gemini.turns import GeminiTurn
from bench_proxy.formats.relays import MOST_BEHIND, Relaying, as_sent
from bench_proxy.formats.responses.relay import ResponsesRelaying
from bench_proxy.formats.responses.turns import ResponsesTurn
from tests.hearing import hear

ENVELOPE = Envelope("r1-1", "bench/core:route", 1_772_366_405)
RELAYS: list[tuple[Relaying, Any]] = [
    (MessagesRelaying(), lambda: MessagesTurn(ENVELOPE)),
    (ResponsesRelaying(), lambda: ResponsesTurn(ENVELOPE)),
    (GeminiRelaying(), lambda: GeminiTurn(ENVELOPE, events=True)),
]
NAMES = (  # noqa: SIM905  two dozen words
    "type message usage content content_block delta text thinking signature role stop_reason input_tokens model"
    " response output item sequence_number status error code summary id candidates parts finishReason functionCall"
    " usageMetadata modelVersion thoughtSignature thought promptTokenCount messages input contents"
    " max_tokens generationConfig"
).split()
WORDS = (  # noqa: SIM905
    "message_start content_block_start content_block_delta message_delta message_stop text_delta tool_use thinking text"
    " response.created response.output_text.delta response.output_item.added response.completed reasoning message"
    " assistant STOP"
).split()
LEAVES = st.one_of(st.none(), st.booleans(), st.integers(), st.sampled_from(WORDS), st.text(max_size=5))
JSON = st.recursive(
    LEAVES,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(NAMES), inner, max_size=5)),
    max_leaves=20,
)
BODY = st.dictionaries(st.sampled_from(NAMES), JSON, max_size=6)


@pytest.mark.parametrize(("relaying", "turn"), RELAYS)
@given(bodies=st.lists(BODY, min_size=1, max_size=4))
def test_whatever_comes_is_passed_on(relaying: Relaying, turn: Any, bodies: list[Any]) -> None:
    hearing, relay = relaying.hearing(), relaying.relay(turn(), "bench/core:route")
    passed = hear(hearing, *(json.dumps(body).encode() for body in bodies))
    for event in passed:
        assert relay.write(event).count(b"\n\n") == 1
    if hearing.last:
        assert b'"bench":{"reply":"route"}' in relay.end(hearing.last, {"reply": "route"})
    assert len(passed) + len(hearing.last) == len(bodies)


@pytest.mark.parametrize(("relaying", "turn"), RELAYS)
@given(body=BODY)
def test_whatever_comes_whole_has_bench(relaying: Relaying, turn: Any, body: Any) -> None:
    data = json.dumps(body).encode()
    relaying.hearing().whole(body)
    written = json.loads(relaying.whole(data, "bench/core:route", {"reply": "route"}))
    assert written.pop("bench") == {"reply": "route"}
    changed = {"model", "modelVersion"}
    left = {name: value for name, value in written.items() if name not in changed}
    assert left == {name: value for name, value in body.items() if name not in changed}


@pytest.mark.parametrize(("relaying", "turn"), RELAYS)
@pytest.mark.parametrize("foreign", [False, True])
@given(body=BODY)
def test_whatever_is_sent_is_never_changed_in_place(relaying: Relaying, turn: Any, foreign: bool, body: Any) -> None:
    before = json.dumps(body)
    relaying.fitted(as_sent(body), foreign=foreign, most_output=10)
    assert json.dumps(body) == before


@pytest.mark.parametrize("name", ["a\nevent: message_stop", "a\r", "\ud800", "", "a b"])
def test_a_name_that_is_none_begins_no_other_event(name: str) -> None:
    assert sse.relayed(b"{}", name) == b"data: {}\n\n"


@pytest.mark.parametrize(
    ("relaying", "end"),
    [
        (MessagesRelaying(), {"type": "message_delta", "delta": {"stop_reason": "end_turn"}}),
        (GeminiRelaying(), {"candidates": [{"content": {"parts": [{"text": "Yes."}]}, "finishReason": "STOP"}]}),
    ],
)
def test_what_comes_behind_the_end_is_kept_back_to_a_limit(relaying: Relaying, end: Any) -> None:
    hearing, flood = relaying.hearing(), json.dumps({"type": "ping", "padding": "x" * (MOST_BEHIND // 3)}).encode()
    hear(hearing, json.dumps(end).encode(), *[flood] * 10)
    assert hearing.over
    assert sum(len(event.data) for event in hearing.last) <= MOST_BEHIND
