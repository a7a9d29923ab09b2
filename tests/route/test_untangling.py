"""Calls come out whole and one after the other, however a member's server sends them."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count, pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench_proxy.errors import UpstreamError
from bench_proxy.formats.base import ToolCall
from bench_proxy.formats.request import ToolName
from bench_proxy.route import untangling
from bench_proxy.route.untangling import CallArguments, CallBegun, CallDone, Piece, Untangling, whole
from bench_proxy.upstream import CallPiece, Reply, Text, Thought
from tests.anything import JSON, TEXT

NAMES = frozenset({"read", "read_file", "write"})
PATCH = {"patch": ToolName("patch", custom=True)}


def new_ids() -> Callable[[], str]:
    numbers = count(1)
    return lambda: f"new{next(numbers)}"


def untangle(
    *events: Text | Thought | CallPiece, reason: str | None = "tool_calls", tools: Mapping[str, ToolName] | None = None
) -> tuple[list[Piece], str]:
    one = Untangling(tools or {}, new_ids(), NAMES)
    pieces = [piece for event in events for piece in one.heard(event)]
    left, reason = one.end(reason)
    pieces += left
    assert one.calls == sum(isinstance(piece, CallBegun) for piece in pieces)
    return pieces, reason


def in_order(pieces: Sequence[Piece]) -> list[ToolCall | str]:
    """The calls and the texts, in order; checks that one call is open at a time, and what comes in it."""
    found: list[ToolCall | str] = []
    open_call: ToolCall | None = None
    for piece in pieces:
        if isinstance(piece, CallBegun):
            assert open_call is None
            assert piece.call.arguments == ""
            open_call = piece.call
        elif isinstance(piece, CallArguments):
            assert open_call is not None
            assert piece.text
            open_call = ToolCall(open_call.id, open_call.name, open_call.arguments + piece.text)
        elif isinstance(piece, CallDone):
            assert open_call is not None
            found.append(open_call)
            open_call = None
        else:
            assert open_call is None
            found.append(piece.text)
    assert open_call is None
    return found


def came(*events: Text | Thought | CallPiece, **more: Any) -> list[ToolCall | str]:
    return in_order(untangle(*events, **more)[0])


A = ToolCall("a", "read", '{"path": "x"}')
B = ToolCall("b", "write", '{"path": "y"}')


# What is odd.


def test_a_call_without_a_name_is_left_out_and_is_no_reason_to_call_tools() -> None:
    pieces, reason = untangle(CallPiece(0, "a", None, "{}"), Text("Well."))
    assert in_order(pieces) == ["Well."]
    assert reason == "stop"


def test_a_call_without_a_name_does_not_take_those_behind_it_along() -> None:
    assert came(CallPiece(0, "n", "", '{"a": '), CallPiece(1, "a", "read", A.arguments)) == [A]


@pytest.mark.parametrize(
    ("sent", "given"),
    [
        ('{"path": "x', '{"path": "x"}'),
        ('{"path": ["x", {"y": 1', '{"path": ["x", {"y": 1}]}'),
        ('{"path": "x\\', '{"path": "x\\\\"}'),
        ('{"path": "x\\"', '{"path": "x\\""}'),
        ("{", "{}"),
        ("", "{}"),
        ("  ", "  {}"),
        (None, "{}"),
        ("null", "{}"),
        ("{}", "{}"),
    ],
)
def test_arguments_that_only_lack_their_end_get_it(sent: str | None, given: str) -> None:
    assert came(CallPiece(0, "a", "read", sent)) == [ToolCall("a", "read", given)]


@pytest.mark.parametrize(
    "sent", ['{"path": "x",,', '{"path"', "path=x", "[1]", "5", '{"a": 1}}', '{"a": "\\u00', '{"a" "b}']
)
def test_arguments_that_nothing_makes_an_object_stay_as_they_were_sent(sent: str) -> None:
    assert came(CallPiece(0, "a", "read", sent)) == [ToolCall("a", "read", sent)]


@pytest.mark.parametrize("reason", ["length", "content_filter"])
def test_arguments_of_a_cut_answer_are_not_made_to_look_whole(reason: str) -> None:
    pieces, given = untangle(CallPiece(0, "a", "write", '{"text": "half'), reason=reason)
    assert in_order(pieces) == [ToolCall("a", "write", '{"text": "half')]
    assert given == reason


def test_broken_arguments_do_not_hold_back_the_next_call_for_ever() -> None:
    broken = ToolCall("a", "read", '{"path": "x",,')
    assert came(CallPiece(0, "a", "read", broken.arguments), CallPiece(1, "b", "write", B.arguments)) == [broken, B]


@pytest.mark.parametrize("sent", [{"path": "x"}, [1], 5, True])
def test_arguments_that_are_no_text_become_json(sent: object) -> None:
    (call,) = came(CallPiece(0, "a", "read", sent))
    assert isinstance(call, ToolCall)
    assert json.loads(call.arguments) == sent


@pytest.mark.parametrize("nothing", ["{}", {}, "null"])
def test_what_stands_for_no_arguments_yet_gives_way_to_the_real_ones(nothing: object) -> None:
    assert came(CallPiece(0, "a", "read", nothing), CallPiece(0, None, None, A.arguments)) == [A]


@pytest.mark.parametrize("id", [None, ""])
def test_a_call_without_an_id_gets_one_and_keeps_it(id: str | None) -> None:
    pieces, _ = untangle(CallPiece(0, id, "read", ""), *(CallPiece(0, id, None, c) for c in A.arguments))
    assert in_order(pieces) == [ToolCall("new1", "read", A.arguments)]


def test_an_id_that_two_calls_share_stays_that_of_the_first() -> None:
    head, tail = B.arguments[:5], B.arguments[5:]
    first, second = CallPiece(0, "a", "read", A.arguments), CallPiece(1, "a", "write", head)
    both = [A, ToolCall("new1", "write", B.arguments)]
    assert came(first, second, CallPiece(1, None, None, tail)) == both
    assert came(first, second, CallPiece(1, "a", None, tail)) == both


def test_an_id_that_two_calls_share_without_indices_does_not_mix_them() -> None:
    calls = came(CallPiece(None, "a", "read", A.arguments), CallPiece(None, "a", "read", B.arguments))
    assert calls == [A, ToolCall("new1", "read", B.arguments)]


def test_a_call_that_is_sent_a_second_time_is_one() -> None:
    assert came(*[CallPiece(0, "a", "read", A.arguments)] * 2) == [A]
    assert came(CallPiece(0, "a", "read", A.arguments), CallPiece(0, None, None, A.arguments)) == [A]


def test_an_id_that_comes_behind_the_name_does_not_begin_another_call() -> None:
    pieces = [CallPiece(0, None, "write", ""), *(CallPiece(0, "late", "write", c) for c in B.arguments)]
    assert came(*pieces) == [ToolCall("new1", "write", B.arguments)]


def test_a_new_id_on_every_piece_is_one_call() -> None:
    pieces = [CallPiece(0, f"id{n}", None, c) for n, c in enumerate(A.arguments)]
    assert came(CallPiece(0, "a", "read", ""), *pieces) == [A]


def test_a_name_that_every_piece_repeats_is_one_name() -> None:
    assert came(*(CallPiece(0, "a", "read", c) for c in A.arguments)) == [A]
    assert came(*(CallPiece(0, None, "read", c) for c in A.arguments)) == [ToolCall("new1", "read", A.arguments)]


@pytest.mark.parametrize("parts", [("read", "_file"), ("re", "ad_", "file"), ("r", "ead_file")])
def test_a_name_in_pieces_is_joined_when_a_tool_has_it(parts: tuple[str, ...]) -> None:
    pieces = [CallPiece(0, "a" if n == 0 else None, part) for n, part in enumerate(parts)]
    assert came(*pieces, CallPiece(0, None, None, A.arguments)) == [ToolCall("a", "read_file", A.arguments)]


def test_a_tool_whose_name_begins_another_ones_is_called_by_its_own() -> None:
    assert came(CallPiece(0, "a", "read", ""), CallPiece(0, "a", "read", A.arguments)) == [A]
    assert came(CallPiece(0, "a", "read", "")) == [ToolCall("a", "read", "{}")]


def test_a_tool_that_the_request_has_not_is_passed_on() -> None:
    assert came(CallPiece(0, "a", "no_such_tool", "{}")) == [ToolCall("a", "no_such_tool", "{}")]


@pytest.mark.parametrize(
    "pieces",
    [
        pytest.param([(0, "a", "read", A.arguments), (0, "b", "write", B.arguments)], id="one index for all"),
        pytest.param([(None, "a", "read", A.arguments), (None, "b", "write", B.arguments)], id="no index"),
        pytest.param(
            [(0, "a", "read", ""), (0, None, None, A.arguments), (0, "b", "write", ""), (0, "b", None, B.arguments)],
            id="one index for all, in pieces",
        ),
        pytest.param(
            [
                (None, "a", "read", ""), (None, None, None, A.arguments),
                (None, "b", "write", ""), (None, "b", None, B.arguments),
            ],
            id="no index, in pieces",
        ),
        pytest.param(
            [
                (None, "a", "read", ""), (0, None, None, A.arguments),
                (1, "b", "write", ""), (None, None, None, B.arguments),
            ],
            id="an index now and then",
        ),
    ],
)  # fmt: skip
def test_calls_are_told_apart_by_what_there_is(pieces: list[tuple[int | None, str | None, str | None, str]]) -> None:
    assert came(*(CallPiece(*piece) for piece in pieces)) == [A, B]


@pytest.mark.parametrize("index", [None, 0])
@pytest.mark.parametrize(
    "arguments", [('{"path": "x"}', '{"path": "y"}'), ({"path": "x"}, {"path": "x"}), ("{}", "{}"), ("{}", '{"a": 1}')]
)
def test_whole_calls_of_one_tool_without_ids_are_as_many_as_were_sent(index: int | None, arguments: Any) -> None:
    calls = came(*(CallPiece(index, None, "read", sent) for sent in arguments))
    texts = [sent if isinstance(sent, str) else json.dumps(sent) for sent in arguments]
    assert calls == [ToolCall(f"new{n + 1}", "read", text) for n, text in enumerate(texts)]


def test_calls_without_arguments_are_told_apart_by_name() -> None:
    calls = came(CallPiece(None, None, "write"), CallPiece(None, None, "list"))
    assert calls == [ToolCall("new1", "write", "{}"), ToolCall("new2", "list", "{}")]


def test_more_than_an_answer_can_be_is_not_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(untangling, "MOST_HELD", 10_000)
    one = Untangling({}, new_ids())
    one.heard(CallPiece(0, "a", "read", '{"'))

    def flood(event: Text | CallPiece) -> None:
        for _ in range(1000):
            one.heard(event)

    with pytest.raises(UpstreamError) as error:
        flood(CallPiece(1, None, "write", "x" * 100))
    assert (error.value.kind, error.value.status) == ("bad_response", 502)
    with pytest.raises(UpstreamError):
        flood(Text("x" * 100))


def test_calls_of_nothing_have_an_end_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(untangling, "MOST_HELD", 10_000)
    one = Untangling({}, new_ids())

    def flood() -> None:
        for n in range(1000):
            one.heard(CallPiece(n, None, "read", ""))

    with pytest.raises(UpstreamError):
        flood()


# Order, and when.


def test_text_passes_at_once_when_no_call_is_open() -> None:
    one = Untangling({}, new_ids())
    for event in (Text("\n"), Thought("Hm."), Text("Yes.")):
        assert one.heard(event) == [event]


def test_the_first_calls_arguments_pass_as_they_come_and_other_calls_wait() -> None:
    one = Untangling({}, new_ids(), NAMES)
    assert one.heard(CallPiece(0, "a", "read_file", "")) == [CallBegun(ToolCall("a", "read_file"))]
    assert one.heard(CallPiece(1, "b", "write", "")) == []
    assert one.heard(CallPiece(0, None, None, '{"p": ')) == [CallArguments('{"p": ')]
    assert one.heard(CallPiece(1, None, None, '{"q"')) == []
    assert one.heard(CallPiece(0, None, None, "1}")) == [
        CallArguments("1}"), CallDone(), CallBegun(ToolCall("b", "write")), CallArguments('{"q"'),
    ]  # fmt: skip
    assert one.heard(CallPiece(1, None, None, ": 2}")) == [CallArguments(": 2}")]
    assert one.end("stop") == ([CallDone()], "tool_calls")


def test_text_behind_a_whole_call_closes_it() -> None:
    one = Untangling({}, new_ids())
    one.heard(CallPiece(0, "a", "read", A.arguments))
    assert one.heard(Text("Done.")) == [CallDone(), Text("Done.")]
    assert one.heard(Text("So.")) == [Text("So.")]


def test_text_within_a_call_follows_it_in_order() -> None:
    pieces = (
        CallPiece(0, "a", "read", '{"path"'), Text("So"), Text(" be"), Thought("Hm."), Text(" it."),
        CallPiece(1, "b", "write", B.arguments), Text("Last."), CallPiece(0, None, None, ': "x"}'),
    )  # fmt: skip
    assert came(*pieces) == [A, "So be", "Hm.", " it.", B, "Last."]


def test_what_comes_of_a_call_that_is_done_is_not_added_to_the_next() -> None:
    pieces = (CallPiece(0, "a", "read", A.arguments), Text("."), CallPiece(0, None, None, "\n"))
    assert came(*pieces, CallPiece(1, "b", "write", B.arguments)) == [A, ".", B]


def test_a_brace_in_a_string_ends_nothing() -> None:
    one = Untangling({}, new_ids())
    one.heard(CallPiece(0, "a", "write", '{"text": "\\"}'))
    assert one.heard(CallPiece(1, "b", "write", B.arguments)) == []
    assert one.heard(CallPiece(0, None, None, '{"}'))[:2] == [CallArguments('{"}'), CallDone()]


def test_a_character_that_was_cut_in_two_is_whole_again() -> None:
    halves = (CallPiece(0, "a", "read", '{"path": "\ud83d'), CallPiece(0, None, None, '\ude00"}'))
    assert came(*halves) == [ToolCall("a", "read", '{"path": "\N{GRINNING FACE}"}')]
    assert came(CallPiece(0, "a", "read", '{"path": "\ud83d')) == [
        ToolCall("a", "read", '{"path": "\N{REPLACEMENT CHARACTER}"}')
    ]


# Custom tools.


@pytest.mark.parametrize(
    ("sent", "given"),
    [
        ('{"input": "*** Begin\\nPatch"}', "*** Begin\nPatch"),
        ({"input": "text"}, "text"),
        ('{"input": "cut', "cut"),
        ("*** Begin Patch", "*** Begin Patch"),
        ('{"patch": "text"}', '{"patch": "text"}'),
        ('{"input": 5}', '{"input": 5}'),
        ("{}", ""),
        ("", ""),
    ],
)
def test_a_custom_tool_gets_its_text_in_one_piece(sent: object, given: str) -> None:
    parts = list(sent) if isinstance(sent, str) else [sent]
    pieces, _ = untangle(CallPiece(0, "a", "patch", ""), *(CallPiece(0, None, None, p) for p in parts), tools=PATCH)
    rest = [CallArguments(given)] if given else []
    assert pieces == [CallBegun(ToolCall("a", "patch")), *rest, CallDone()]


# How it ends.


@pytest.mark.parametrize(
    ("said", "given"),
    [("stop", "tool_calls"), (None, "tool_calls"), ("function_call", "tool_calls"), ("length", "length")],
)
def test_with_calls_the_reason_is_calls_unless_the_answer_was_cut(said: str | None, given: str) -> None:
    assert untangle(CallPiece(0, "a", "read", "{}"), reason=said)[1] == given


@pytest.mark.parametrize(
    ("said", "given"),
    [("tool_calls", "stop"), ("function_call", "stop"), (None, "stop"), ("", "stop"), ("length", "length"),
     ("content_filter", "content_filter")],
)  # fmt: skip
def test_without_calls_the_reason_is_none_of_calls(said: str | None, given: str) -> None:
    assert untangle(Text("Hello."), reason=said)[1] == given


# Whole replies.


def test_a_whole_reply_is_put_right_by_the_same_rules() -> None:
    pieces = (
        CallPiece(0, "a", "read", {"path": "x"}),
        CallPiece(0, "a", "read", None),
        CallPiece(None, None, "read", None),
        CallPiece(None, "n", None, "{}"),
        CallPiece(0, "p", "patch", '{"input": "text"}'),
    )
    calls, reason = whole(Reply("", finish_reason="stop", calls=pieces), PATCH, new_ids())
    assert calls == [
        ToolCall("a", "read", '{"path": "x"}'),
        ToolCall("new1", "read", "{}"),
        ToolCall("new2", "read", "{}"),
        ToolCall("p", "patch", "text"),
    ]
    assert reason == "tool_calls"


def test_a_whole_reply_of_text_stays_one() -> None:
    assert whole(Reply("Hello.", finish_reason="tool_calls"), {}, new_ids()) == ([], "stop")


# Any calls, in any pieces, in any order.

ARGUMENTS = st.dictionaries(TEXT, JSON, max_size=4).map(lambda value: json.dumps(value, ensure_ascii=False))
CALLS = st.lists(st.tuples(st.sampled_from(sorted(NAMES)), ARGUMENTS), max_size=4)


def cut(text: str, at: Sequence[int]) -> Iterator[str]:
    edges = [0, *sorted(edge % (len(text) + 1) for edge in at), len(text)]
    yield from (text[start:end] for start, end in pairwise(edges))


@given(calls=CALLS, data=st.data())
def test_calls_that_go_in_come_out(calls: list[tuple[str, str]], data: st.DataObject) -> None:
    has_ids, repeats = data.draw(st.booleans()), data.draw(st.booleans())
    queues: list[list[CallPiece]] = []
    for index, (name, arguments) in enumerate(calls):
        id = f"id{index}" if has_ids else None
        first, *others = cut(arguments, data.draw(st.lists(st.integers(0, 2000), max_size=8)))
        id_again, name_again = (id, name) if repeats else (None, None)
        more = (CallPiece(index, id_again, name_again, text) for text in others)
        queues.append([CallPiece(index, id, name, first), *more])
    events: list[Text | Thought | CallPiece] = []
    said = ""
    while left := [queue for queue in queues if queue]:
        events.append(data.draw(st.sampled_from(left)).pop(0))
        if data.draw(st.booleans()):
            between = data.draw(st.just(Text("t")) | st.just(Thought("h")))
            events.append(between)
            said += between.text
    pieces, reason = untangle(*events, reason="stop")
    found = in_order(pieces)
    came_out = [one for one in found if isinstance(one, ToolCall)]
    assert sorted((c.name, c.arguments) for c in came_out) == sorted(calls)
    assert len({call.id for call in came_out}) == len(calls)
    if has_ids:
        assert {(int(c.id[2:]), c.name, c.arguments) for c in came_out} == {(i, *c) for i, c in enumerate(calls)}
    assert "".join(one for one in found if isinstance(one, str)) == said
    assert reason == ("tool_calls" if calls else "stop")


PIECES = st.builds(
    CallPiece,
    index=st.none() | st.integers(0, 2),
    id=st.none() | st.sampled_from(["", "a", "b"]),
    name=st.none() | st.sampled_from(["", "read", "_file", "patch"]),
    arguments=st.none() | st.sampled_from(['{"input":', '"x"', "}", "{}", "{", '"', "\\", "]"]) | JSON | TEXT,
)


@given(
    st.lists(PIECES | st.builds(Text, TEXT.filter(bool)), max_size=20),
    st.sampled_from(["stop", "length", "tool_calls"]),
)
def test_any_nonsense_comes_out_well_formed(events: list[Text | CallPiece], reason: str) -> None:
    found = came(*events, reason=reason, tools=PATCH)
    ids = [call.id for call in found if isinstance(call, ToolCall)]
    assert len(set(ids)) == len(ids)
    assert "".join(one for one in found if isinstance(one, str)) == "".join(
        e.text for e in events if isinstance(e, Text)
    )


@given(CALLS)
def test_the_pieces_of_whole_calls_are_the_calls_of_a_whole_reply(calls: list[tuple[str, str]]) -> None:
    pieces = tuple(CallPiece(None, f"id{n}", name, arguments) for n, (name, arguments) in enumerate(calls))
    told, _ = whole(Reply("", calls=pieces), {}, new_ids())
    assert [*told] == came(*pieces) == [ToolCall(f"id{n}", *call) for n, call in enumerate(calls)]
