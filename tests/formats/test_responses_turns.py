"""OpenAI Responses in route mode: an agent's request as it is read, and one model's answer as it is written."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai._streaming import SSEDecoder
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from bench_proxy.errors import BenchError, ContextOverflow, InvalidRequest, Overloaded, TurnFailed
from bench_proxy.formats.base import Envelope, Spoken, ToolCall, Usage
from bench_proxy.formats.request import ChatRequest, ToolName
from bench_proxy.formats.responses.format import ResponsesFormat
from bench_proxy.formats.responses.turns import ResponsesTurn
from tests.anything import TEXT

Json = dict[str, Any]

RESPONSES = ResponsesFormat()
ID = "r20260301-120005-abcdefghijklmnop.1"
TOOLS = {
    "agents__spawn": ToolName("spawn", "agents"),
    "apply_patch": ToolName("apply_patch", custom=True),
    "files__patch": ToolName("patch", "files", custom=True),
}
ENVELOPE = Envelope(ID, "bench/core:route", 1_772_366_405, tools=TOOLS)
USAGE = Usage(30, 12, cached_tokens=20, cache_write_tokens=4, reasoning_tokens=5)
DATA = {"collection": "bench/core", "reply": "route"}
USER = {"role": "user", "content": "Hello."}
PIXEL = "data:image/png;base64,iVBORw0KGgo="
CODEX = json.loads((Path(__file__).parent / "codex_first_turn.json").read_text())

LS = ToolCall("call_1", "exec_command", '{"cmd": "ls"}')
SPAWN = ToolCall("call_2", "agents__spawn", '{"message": "Look."}')
PATCH = ToolCall("call_3", "apply_patch", "*** Begin Patch\n")


def parsed(*packets: bytes) -> list[Json]:
    """The events as OpenAI's SDK reads them, each under the name that its data repeats."""
    read = list(SSEDecoder().iter_bytes(iter(packets)))
    data: list[Json] = [event.json() for event in read]
    assert [event.event for event in read] == [event["type"] for event in data]
    return data


def called(turn: ResponsesTurn, call: ToolCall, *, pieces: int = 2) -> bytes:
    """A call whose arguments come in so many pieces."""
    written = [turn.call(ToolCall(call.id, call.name))]
    size = -(-len(call.arguments) // pieces) or 1
    written += [turn.arguments(call.arguments[at : at + size]) for at in range(0, len(call.arguments), size)]
    return b"".join([*written, turn.call_done()])


def told(spoken: Spoken) -> bytes:
    """A whole stream of that answer."""
    turn = RESPONSES.turn(ENVELOPE)
    written = [turn.begin()]
    if spoken.thoughts:
        written += [turn.thought(spoken.thoughts[:1]), turn.thought(spoken.thoughts[1:] or " ")]
    if spoken.text:
        written += [turn.text(letter) for letter in spoken.text]
    written += [called(turn, call) for call in spoken.calls]
    return b"".join([*written, turn.end(spoken.finish_reason, USAGE, DATA)])


def whole(spoken: Spoken) -> Json:
    read: Json = json.loads(RESPONSES.spoken(ENVELOPE, spoken, USAGE, DATA))
    return read


# What goes wrong


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ContextOverflow(200_000, 128_000), "context_length_exceeded"),
        (TurnFailed("busy", status=429, retry_after=7), "rate_limit_exceeded"),
        (TurnFailed("broken", status=502), "server_error"),
        (TurnFailed("late", status=504), "server_error"),
        (InvalidRequest("no"), "invalid_prompt"),
        (BenchError("internal"), "server_error"),
    ],
)
def test_a_failed_turn_ends_with_a_failed_response_and_its_code(error: BenchError, code: str) -> None:
    turn = RESPONSES.turn(ENVELOPE)
    events = parsed(turn.begin() + turn.thought("Hm.") + turn.text("Half") + turn.error(error))
    assert [event["type"] for event in events[-2:]] == ["error", "response.failed"]
    assert events[-2]["message"] == events[-2]["error"]["message"] == error.message
    failed = events[-1]["response"]
    assert (failed["status"], failed["error"]["code"]) == ("failed", code)
    assert [event["sequence_number"] for event in events] == list(range(len(events)))


def test_a_wait_is_told_in_the_sentence_that_codex_reads_it_from() -> None:
    (*_, last) = parsed(RESPONSES.turn(ENVELOPE).error(Overloaded("busy.", retry_after=7)))
    assert last["response"]["error"]["message"] == "busy. Please try again in 7s."


def test_an_error_before_anything_else_begins_the_stream() -> None:
    events = parsed(RESPONSES.turn(ENVELOPE).error(TurnFailed("broken", status=502)))
    assert [event["type"] for event in events] == [
        *("response.created", "response.in_progress"),
        *("error", "response.failed"),
    ]


@pytest.mark.parametrize(("reason", "why"), [("length", "max_output_tokens"), ("content_filter", "content_filter")])
@pytest.mark.parametrize(
    ("spoken", "kinds"),
    [
        (Spoken("Half", "Hm."), ["reasoning", "message"]),
        (Spoken(thoughts="Hm, "), ["reasoning"]),
        (
            Spoken("I look.", calls=[LS, ToolCall("call_9", "read", '{"pa')]),
            ["message", "function_call", "function_call"],
        ),
    ],
)
def test_an_answer_that_was_cut_is_incomplete_and_so_is_its_last_item_alone(
    spoken: Spoken, kinds: list[str], reason: str, why: str
) -> None:
    cut = Spoken(spoken.text, spoken.thoughts, spoken.calls, reason)
    events = parsed(told(cut))
    last = events[-1]
    assert last["type"] == "response.incomplete"
    response = last["response"]
    assert (response["status"], response["incomplete_details"]) == ("incomplete", {"reason": why})
    assert [item["type"] for item in response["output"]] == kinds
    statuses = [item["status"] for item in response["output"]]
    assert statuses == ["completed"] * (len(statuses) - 1) + ["incomplete"]
    done = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    assert done == response["output"]
    assert [item["status"] for item in whole(cut)["output"]] == statuses


@pytest.mark.parametrize("reason", ["stop", "length"])
def test_an_answer_of_nothing_has_no_items(reason: str) -> None:
    turn = RESPONSES.turn(ENVELOPE)
    events = parsed(turn.begin() + turn.end(reason, USAGE, DATA))
    assert len(events) == 3
    assert events[-1]["response"] == whole(Spoken(finish_reason=reason))
    assert events[-1]["response"]["output"] == []


# The events of a turn


def test_an_answer_that_is_text_is_one_message_byte_by_byte() -> None:
    turn = RESPONSES.turn(ENVELOPE)
    begun = turn.begin()
    written = turn.text("Hel") + turn.text("lo")
    ended = turn.end("stop", USAGE, DATA)
    place = f'"item_id":"msg_{ID}-0","output_index":0,"content_index":0'
    item = f'{{"id":"msg_{ID}-0","type":"message","status":"%s","role":"assistant","content":[%s]}}'
    part = '{"type":"output_text","text":"%s","annotations":[],"logprobs":[]}'
    done = [
        ("output_text.done", f'{place},"text":"Hello","logprobs":[]'),
        ("content_part.done", f'{place},"part":{part % "Hello"}'),
        ("output_item.done", f'"output_index":0,"item":{item % ("completed", part % "Hello")}'),
    ]
    assert [event["type"] for event in parsed(begun)] == ["response.created", "response.in_progress"]
    assert written == events_from(
        2,
        ("output_item.added", f'"output_index":0,"item":{item % ("in_progress", "")}'),
        ("content_part.added", f'{place},"part":{part % ""}'),
        ("output_text.delta", f'{place},"delta":"Hel","logprobs":[]'),
        ("output_text.delta", f'{place},"delta":"lo","logprobs":[]'),
    )
    last = f'"response":{RESPONSES.spoken(ENVELOPE, Spoken("Hello"), USAGE, DATA).decode()}'
    assert ended == events_from(6, *done, ("completed", last))


def events_from(number: int, *events: tuple[str, str]) -> bytes:
    return b"".join(
        f'event: response.{kind}\ndata: {{"type":"response.{kind}","sequence_number":{number + n},{rest}}}\n\n'.encode()
        for n, (kind, rest) in enumerate(events)
    )


def shown(events: Sequence[Json]) -> list[tuple[Any, ...]]:
    """Of each event its kind, its item's place, and the text in it."""
    return [
        (
            event["type"].removeprefix("response."),
            event.get("output_index"),
            *(event[name] for name in ("delta", "text", "arguments", "input") if name in event),
        )
        for event in events
    ]


def test_what_a_model_thinks_says_and_calls_are_items_in_the_order_in_which_they_come() -> None:
    turn = RESPONSES.turn(ENVELOPE)
    written = turn.begin() + turn.thought("H") + turn.thought("m.") + turn.text("I look.")
    written += called(turn, LS) + called(turn, SPAWN) + called(turn, PATCH, pieces=1)
    written += turn.thought("So.") + turn.text("Done.") + turn.end("tool_calls", USAGE, DATA)
    events = parsed(written)
    assert shown(events) == [
        ("created", None),
        ("in_progress", None),
        ("output_item.added", 0),
        ("reasoning_summary_part.added", 0),
        ("reasoning_summary_text.delta", 0, "H"),
        ("reasoning_summary_text.delta", 0, "m."),
        ("reasoning_summary_text.done", 0, "Hm."),
        ("reasoning_summary_part.done", 0),
        ("output_item.done", 0),
        ("output_item.added", 1),
        ("content_part.added", 1),
        ("output_text.delta", 1, "I look."),
        ("output_text.done", 1, "I look."),
        ("content_part.done", 1),
        ("output_item.done", 1),
        ("output_item.added", 2),
        ("function_call_arguments.delta", 2, '{"cmd":'),
        ("function_call_arguments.delta", 2, ' "ls"}'),
        ("function_call_arguments.done", 2, LS.arguments),
        ("output_item.done", 2),
        ("output_item.added", 3),
        ("function_call_arguments.delta", 3, '{"message"'),
        ("function_call_arguments.delta", 3, ': "Look."}'),
        ("function_call_arguments.done", 3, SPAWN.arguments),
        ("output_item.done", 3),
        ("output_item.added", 4),
        ("custom_tool_call_input.delta", 4, PATCH.arguments),
        ("custom_tool_call_input.done", 4, PATCH.arguments),
        ("output_item.done", 4),
        ("output_item.added", 5),
        ("reasoning_summary_part.added", 5),
        ("reasoning_summary_text.delta", 5, "So."),
        ("reasoning_summary_text.done", 5, "So."),
        ("reasoning_summary_part.done", 5),
        ("output_item.done", 5),
        ("output_item.added", 6),
        ("content_part.added", 6),
        ("output_text.delta", 6, "Done."),
        ("output_text.done", 6, "Done."),
        ("content_part.done", 6),
        ("output_item.done", 6),
        ("completed", None),
    ]
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    done = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    assert events[-1]["response"]["output"] == done
    ids = [item["id"] for item in done]
    assert [id.partition("_")[0] for id in ids] == ["rs", "msg", "fc", "fc", "ctc", "rs", "msg"]
    assert len(set(ids)) == len(ids)
    placed = {event["output_index"]: event["item_id"] for event in events if "item_id" in event}
    assert placed == dict(enumerate(ids))


def test_an_item_is_added_without_what_it_is_going_to_hold() -> None:
    turn = RESPONSES.turn(ENVELOPE)
    events = parsed(
        turn.begin() + turn.thought("Hm.") + turn.text("Hi.") + called(turn, LS) + called(turn, PATCH)
        + turn.end("tool_calls", USAGE, DATA)
    )  # fmt: skip
    added = [event["item"] for event in events if event["type"] == "response.output_item.added"]
    assert [item["status"] for item in added] == ["in_progress"] * 4
    reasoning, message, function, custom = added
    assert (reasoning["summary"], message["content"], function["arguments"], custom["input"]) == ([], [], "", "")
    assert (function["call_id"], function["name"]) == ("call_1", "exec_command")
    assert (custom["call_id"], custom["name"]) == ("call_3", "apply_patch")


def test_calls_have_the_names_and_the_kinds_that_the_caller_knows() -> None:
    inner = ToolCall("call_4", "files__patch", "x")
    output = whole(Spoken(calls=[LS, SPAWN, PATCH, inner], finish_reason="tool_calls"))["output"]
    assert [{name: value for name, value in item.items() if name not in {"id", "status"}} for item in output] == [
        {"type": "function_call", "arguments": LS.arguments, "call_id": "call_1", "name": "exec_command"},
        {
            "type": "function_call",
            "arguments": SPAWN.arguments,
            "call_id": "call_2",
            "name": "spawn",
            "namespace": "agents",
        },
        {"type": "custom_tool_call", "input": PATCH.arguments, "call_id": "call_3", "name": "apply_patch"},
        {"type": "custom_tool_call", "input": "x", "call_id": "call_4", "name": "patch", "namespace": "files"},
    ]


def test_a_call_without_arguments_is_one_all_the_same() -> None:
    turn = RESPONSES.turn(ENVELOPE)
    events = parsed(turn.begin() + called(turn, ToolCall("c", "get_goal")) + turn.end("tool_calls", USAGE, DATA))
    assert shown(events)[2:-1] == [
        ("output_item.added", 0),
        ("function_call_arguments.done", 0, ""),
        ("output_item.done", 0),
    ]


def test_arguments_that_are_there_when_a_call_begins_are_its_first_piece() -> None:
    turn = RESPONSES.turn(ENVELOPE)
    written = turn.begin() + turn.call(LS) + turn.call_done() + turn.end("tool_calls", USAGE, DATA)
    assert parsed(written)[-1]["response"] == whole(Spoken(calls=[LS], finish_reason="tool_calls"))


def test_a_sign_of_life_is_a_lifecycle_event_that_breaks_no_item() -> None:
    turn = RESPONSES.turn(ENVELOPE)
    begun = parsed(turn.keep_alive())
    assert [event["type"] for event in begun] == ["response.created", "response.in_progress"]
    assert turn.begin() == b""
    turn.text("One ")
    (alive,) = parsed(turn.keep_alive())
    assert alive == {**begun[1], "sequence_number": 5}
    assert shown(parsed(turn.text("two."))) == [("output_text.delta", 0, "two.")]


def test_the_last_event_has_the_members_usage_and_what_is_ours() -> None:
    turn = RESPONSES.turn(ENVELOPE)
    *others, last = parsed(turn.begin() + turn.text("Hi.") + turn.end("stop", USAGE, DATA))
    assert last["response"]["usage"] == {
        "input_tokens": 30,
        "input_tokens_details": {"cached_tokens": 20, "cache_write_tokens": 4},
        "output_tokens": 12,
        "output_tokens_details": {"reasoning_tokens": 5},
        "total_tokens": 42,
    }
    assert last["response"]["bench"] == DATA
    assert last["response"]["model"] == "bench/core:route"
    assert not any("bench" in event.get("response", event) for event in others)


# What OpenAI's SDK makes of it

EVERYTHING = Spoken("I look.", "Hm. 😀\u2028", [LS, SPAWN, PATCH], "tool_calls")


def test_every_event_is_what_openais_sdk_declares_it_to_be() -> None:
    declared: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
    failing = RESPONSES.turn(ENVELOPE)
    failed = failing.begin() + failing.text("x") + failing.error(TurnFailed("broken", status=502, data=DATA))
    cut = told(Spoken("x", finish_reason="length"))
    kinds = set()
    for event in parsed(told(EVERYTHING), failed, cut):
        read = declared.validate_python(event)
        assert read.type == event["type"]
        # Whatever the SDK does not know lands among the extras.
        assert set(read.model_extra or {}) <= {"bench", "error", "name"}
        kinds.add(event["type"])
    assert {"response.completed", "response.incomplete", "response.failed", "error"} < kinds
    response = Response.model_validate_json(RESPONSES.spoken(ENVELOPE, EVERYTHING, USAGE, DATA))
    assert [type(item).__name__ for item in response.output] == [
        *("ResponseReasoningItem", "ResponseOutputMessage"),
        *("ResponseFunctionToolCall", "ResponseFunctionToolCall", "ResponseCustomToolCall"),
    ]
    assert [getattr(item, "namespace", None) for item in response.output[2:]] == [None, "agents", None]


def test_openais_sdk_puts_a_stream_together_to_the_whole_reply() -> None:
    def answer(_: httpx.Request) -> httpx.Response:
        return httpx.Response(200, content=told(EVERYTHING), headers={"content-type": RESPONSES.stream_content_type})

    http = httpx.Client(transport=httpx.MockTransport(answer))
    # The SDK takes clients of both httpx and its successor, and declares only the latter.
    client = openai.OpenAI(base_url="http://test/v1", api_key="x", http_client=http, max_retries=0)  # type: ignore[arg-type]
    with client, client.responses.stream(model="bench/core:route", input="x") as stream:
        heard = list(stream)
        final = stream.get_final_response()
    snapshots = {
        event.output_index: event.snapshot for event in heard if event.type == "response.function_call_arguments.delta"
    }
    assert snapshots == {2: LS.arguments, 3: SPAWN.arguments}
    expected = whole(EVERYTHING)
    assert final.output_text == "I look."
    assert [item.id for item in final.output] == [item["id"] for item in expected["output"]]
    assert [getattr(item, "call_id", None) for item in final.output[2:]] == ["call_1", "call_2", "call_3"]


STEPS = st.one_of(
    st.tuples(st.just("thought"), TEXT.filter(bool)),
    st.tuples(st.just("text"), TEXT.filter(bool)),
    st.tuples(st.just("call"), TEXT),
    st.tuples(st.just("alive"), st.just("")),
)
OF_STEP = {"thought": "reasoning", "text": "message", "call": "function_call"}


def said_in(item: Json) -> str:
    held = item.get("summary") or item.get("content")
    return str(held[0]["text"] if held else item["arguments"])


@given(st.lists(STEPS))
def test_nothing_is_changed_or_lost_in_whatever_order_it_comes(steps: list[tuple[str, str]]) -> None:
    turn = RESPONSES.turn(ENVELOPE)
    written = [turn.begin()]
    expected: list[list[str]] = []
    for step, text in steps:
        if step == "alive":
            written.append(turn.keep_alive())
        elif step == "call":
            written.append(called(turn, ToolCall(f"call_{len(expected)}", "read", text)))
            expected.append(["function_call", text])
        else:
            written.append(turn.thought(text) if step == "thought" else turn.text(text))
            if expected and expected[-1][0] == OF_STEP[step]:
                expected[-1][1] += text
            else:
                expected.append([OF_STEP[step], text])
    written.append(turn.end("stop", USAGE, DATA))
    events = parsed(*written)
    deltas = ["" for _ in expected]
    for event in events:
        if "delta" in event:
            deltas[event["output_index"]] += event["delta"]
    assert deltas == [text for _, text in expected]
    assert [[item["type"], said_in(item)] for item in events[-1]["response"]["output"]] == expected
    assert [event["sequence_number"] for event in events] == list(range(len(events)))


@given(TEXT, TEXT, st.lists(TEXT, max_size=2), st.sampled_from(["stop", "tool_calls", "length", "content_filter"]))
def test_a_stream_ends_with_the_whole_reply(text: str, thoughts: str, calls: list[str], reason: str) -> None:
    made = [ToolCall(f"call_{n}", "read", arguments) for n, arguments in enumerate(calls)]
    turn = RESPONSES.turn(ENVELOPE)
    written = [turn.begin()]
    written += [turn.thought(thoughts)] if thoughts else []
    written += [turn.text(text)] if text else []
    written += [called(turn, call) for call in made]
    written.append(turn.end(reason, USAGE, DATA))
    expected = whole(Spoken(text, thoughts, made, reason))
    last = parsed(*written)[-1]
    assert last["type"] == f"response.{expected['status']}"
    assert last["response"] == expected


# An agent's request


def read(*items: Json, **more: Any) -> ChatRequest:
    return RESPONSES.read({"model": "bench/core:route", "input": list(items) or "Hello.", **more})[0]


def test_codexs_tools_are_read_with_the_names_that_it_knows() -> None:
    request, wish = RESPONSES.read(CODEX)
    assert (wish.stream, wish.thoughts) == (True, True)
    assert len(CODEX["tools"]) == 9
    agents = ("spawn_agent", "send_input", "resume_agent", "wait_agent", "close_agent")
    assert request.tools == {f"multi_agent_v1__{name}": ToolName(name, "multi_agent_v1") for name in agents}
    names = [tool["function"]["name"] for tool in request.settings["tools"] if tool["type"] == "function"]
    assert len(names) == 7 + len(agents)
    assert set(request.tools) < set(names)
    assert request.settings["tools"][-1] == {"type": "web_search", "external_web_access": False}
    assert request.settings["tool_choice"] == "auto"
    assert request.settings["parallel_tool_calls"] is True


def test_a_tool_in_no_namespace_has_one_name() -> None:
    request = read(tools=[{"type": "function", "name": "read"}, {"type": "custom", "name": "apply_patch"}])
    assert request.tools == {}
    assert read().tools == {}


def test_a_custom_tool_in_a_namespace_is_known_as_one() -> None:
    inner = [{"type": "custom", "name": "patch"}, {"type": "function", "name": "read"}, {"type": "tool_search"}]
    request = read(tools=[{"type": "namespace", "name": "files", "tools": inner}])
    assert request.tools == {
        "files__patch": ToolName("patch", "files", custom=True),
        "files__read": ToolName("read", "files"),
    }


def test_a_name_that_is_too_long_for_models_is_short_everywhere_and_the_callers_own_in_the_reply() -> None:
    namespace = "mcp__a_server_with_quite_a_name"
    first, second = (f"a_tool_whose_name_goes_on_and_on_{n}" for n in range(2))
    tools = [
        {"type": "namespace", "name": namespace, "tools": [{"type": "function", "name": n} for n in (first, second)]}
    ]
    call = {"type": "function_call", "call_id": "c", "name": first, "namespace": namespace, "arguments": "{}"}
    choice = {"type": "function", "name": first, "namespace": namespace}
    request = read(USER, call, tools=tools, tool_choice=choice)
    sent = [tool["function"]["name"] for tool in request.settings["tools"]]
    assert [len(name) for name in sent] == [64, 64]
    assert sent[0] != sent[1]
    assert list(request.tools.values()) == [ToolName(first, namespace), ToolName(second, namespace)]
    assert list(request.tools) == sent
    assert request.messages[1]["tool_calls"][0]["function"]["name"] == sent[0]
    assert request.settings["tool_choice"]["function"]["name"] == sent[0]
    envelope = Envelope(ID, "bench/core:route", 1, tools=request.tools)
    (item,) = json.loads(RESPONSES.spoken(envelope, Spoken(calls=[ToolCall("c", sent[0])]), USAGE, DATA))["output"]
    assert (item["name"], item["namespace"]) == (first, namespace)


@pytest.mark.parametrize("kind", ["web_search", "tool_search", "image_generation", "code_interpreter", "local_shell"])
def test_a_tool_that_only_its_vendor_runs_stays_as_it_is(kind: str) -> None:
    request = read(tools=[{"type": kind}, {"type": "function", "name": "read"}])
    assert [tool["type"] for tool in request.settings["tools"]] == [kind, "function"]


def test_calls_one_at_a_time_is_a_wish_that_reaches_the_model() -> None:
    request = read(tools=[{"type": "function", "name": "read"}], parallel_tool_calls=False)
    assert request.settings["parallel_tool_calls"] is False


def test_what_codex_sends_for_its_vendor_alone_is_accepted() -> None:
    extras = {
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "prompt_cache_key": "k",
        "client_metadata": {"x": "y"},
        "service_tier": "priority",
    }
    assert read(text={"verbosity": "low"}, **extras).settings == {"verbosity": "low"}


@pytest.mark.parametrize(
    ("reasoning", "wanted"),
    [
        (None, False),
        ({}, False),
        ({"effort": "high"}, False),
        ({"summary": None}, False),
        ({"summary": "none"}, False),
        ({"summary": "auto"}, True),
        ({"summary": "concise"}, True),
        ({"summary": "detailed"}, True),
        ({"generate_summary": "auto"}, True),
    ],
)
def test_what_a_model_thinks_is_shown_to_those_who_ask_for_it(reasoning: Json | None, wanted: bool) -> None:
    _, wish = RESPONSES.read({"model": "bench/core:route", "input": "Hello.", "reasoning": reasoning})
    assert wish.thoughts is wanted


def test_a_summary_that_is_no_word_is_refused_by_its_path() -> None:
    with pytest.raises(InvalidRequest) as error:
        RESPONSES.read({"model": "bench/core:route", "input": "Hello.", "reasoning": {"summary": True}})
    assert error.value.param == "reasoning.summary"


def test_the_output_of_a_turn_comes_back_as_the_turn_that_it_was() -> None:
    """What a client sends again is what it got."""
    output = whole(EVERYTHING)["output"]
    results = [
        {"type": "function_call_output", "call_id": "call_1", "output": "a.txt"},
        {
            "type": "function_call_output",
            "call_id": "call_2",
            "output": [{"type": "input_text", "text": "Seen."}, {"type": "input_image", "image_url": PIXEL}],
        },
        {"type": "custom_tool_call_output", "call_id": "call_3", "output": "Patched."},
    ]
    request = read(USER, *output, *results)
    calls = [
        *(
            {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": c.arguments}}
            for c in (LS, SPAWN)
        ),
        {"id": "call_3", "type": "custom", "custom": {"name": "apply_patch", "input": PATCH.arguments}},
    ]
    seen = [{"type": "text", "text": "Seen."}, {"type": "image_url", "image_url": {"url": PIXEL}}]
    assert request.messages == [
        USER,
        {"role": "assistant", "content": "I look.", "tool_calls": calls},
        {"role": "tool", "tool_call_id": "call_1", "content": "a.txt"},
        {"role": "tool", "tool_call_id": "call_2", "content": seen},
        {"role": "tool", "tool_call_id": "call_3", "content": "Patched."},
    ]
    assert request.has_images
