"""What holds for every format: bounds, any text, any JSON, and the parts of it that are OpenAI's."""

import base64
import json
import tracemalloc
from collections.abc import Iterator
from typing import Any

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import BaseModel

from bench_proxy.errors import InvalidRequest, PanelFailed, UnknownModel
from bench_proxy.formats import completions
from bench_proxy.formats.anthropic import format as anthropic
from bench_proxy.formats.base import Alternative, Envelope, Format, Usage
from bench_proxy.formats.chat import format as chat
from bench_proxy.formats.gemini import format as gemini
from bench_proxy.formats.ollama import format as ollama
from bench_proxy.formats.places import place
from bench_proxy.formats.responses import format as responses
from tests.anything import JSON, SEPARATORS, TEXT

Json = dict[str, Any]

CHAT, COMPLETIONS, RESPONSES = "/v1/chat/completions", "/v1/completions", "/v1/responses"
MESSAGES, COUNT = "/v1/messages", "/v1/messages/count_tokens"
OLLAMA_CHAT, GENERATE = "/api/chat", "/api/generate"
GEMINI = "/v1beta/models/bench/core:generateContent"
GEMINI_COUNT = "/v1beta/models/bench/core:countTokens"
GEMINI_ARRAY = "/v1beta/models/bench/core:streamGenerateContent"
GEMINI_EVENTS = f"{GEMINI_ARRAY}?alt=sse"

USER = {"role": "user", "content": "Hello."}
ASKING: dict[str, Json] = {
    CHAT: {"messages": [USER]},
    COMPLETIONS: {"prompt": "Hello."},
    RESPONSES: {"input": "Hello."},
    MESSAGES: {"messages": [USER], "max_tokens": 100},
    COUNT: {"messages": [USER]},
    GEMINI: {"contents": "Hello."},
    GEMINI_ARRAY: {"contents": "Hello."},
    GEMINI_EVENTS: {"contents": "Hello."},
    GEMINI_COUNT: {"contents": "Hello."},
    OLLAMA_CHAT: {"messages": [USER]},
    GENERATE: {"prompt": "Hello."},
}
BODIES: dict[str, type[BaseModel]] = {
    CHAT: chat.Body,
    COMPLETIONS: completions.Body,
    RESPONSES: responses.Body,
    MESSAGES: anthropic.Body,
    COUNT: anthropic.Conversation,
    GEMINI: gemini.Asked,
    GEMINI_COUNT: gemini.Counted,
    OLLAMA_CHAT: ollama.ChatBody,
    GENERATE: ollama.GenerateBody,
}
PANEL = "p20260301-120005-abcdefghijklmnop"
ENVELOPE = Envelope(PANEL, "BENCH/core:latest", 1_772_366_405)
USAGE = Usage(30, 12)

every_format = pytest.mark.parametrize("address", ASKING)


def format_at(address: str) -> Format:
    path, _, query = address.partition("?")
    found = place(path, query.encode())
    assert found is not None
    return found.format


def settings(address: str, **more: Any) -> Json:
    return dict(format_at(address).read({**ASKING[address], **more})[0].settings)


def refused(address: str, **more: Any) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as error:
        format_at(address).read({**ASKING[address], **more})
    assert error.value.status == 400
    return error.value


# Where each is spoken


@pytest.mark.parametrize(
    ("paths", "kind", "host_path"),
    [
        (("/v1/chat/completions", "/chat/completions"), chat.ChatFormat, None),
        (("/v1/completions", "/completions"), completions.CompletionsFormat, None),
        (("/v1/responses", "/responses"), responses.ResponsesFormat, None),
        (("/v1/messages", "/v1/messages/count_tokens"), anthropic.MessagesFormat, None),
        (("/api/chat",), ollama.OllamaChat, "/v1/chat/completions"),
        (("/api/generate",), ollama.OllamaGenerate, "/v1/chat/completions"),
    ],
)
def test_a_format_is_spoken_where_its_clients_look_for_it(
    paths: tuple[str, ...], kind: type[Format], host_path: str | None
) -> None:
    for path in paths:
        found = place(path)
        assert found is not None
        assert isinstance(found.format, kind)
        assert found.host_path == host_path


# Bounds

MANY = [1] * 100_000


def named(name: str, value: Any, **more: Any) -> Json:
    """A message, or an item of one, that holds a value in one of its fields."""
    return {"messages": [{"role": "user", **more, name: value}]}


OUTPUT = {"type": "function_call_output", "call_id": "call_1"}
RESULT = {"type": "tool_result", "tool_use_id": "x"}


@pytest.mark.parametrize(
    ("address", "many", "field"),
    [
        *((address, {"messages": MANY}, "messages.0") for address in (CHAT, MESSAGES, OLLAMA_CHAT)),
        *((address, named("content", MANY), "messages.0.content.0") for address in (CHAT, MESSAGES)),
        *((address, {"tools": MANY}, "tools.0") for address in (CHAT, COMPLETIONS, RESPONSES)),
        *((address, {"tools": MANY}, "tools.0") for address in (MESSAGES, GEMINI, OLLAMA_CHAT)),
        *((address, {"stop": MANY}, "stop.0") for address in (CHAT, COMPLETIONS, RESPONSES)),
        (CHAT, {"functions": MANY}, "functions.0"),
        (CHAT, {"modalities": MANY}, "modalities.0"),
        (CHAT, {"logit_bias": {str(n): "" for n in range(100_000)}}, "logit_bias"),
        (RESPONSES, {"input": MANY}, "input.0"),
        (RESPONSES, {"input": [{"role": "user", "content": MANY}]}, "input.0.content.0"),
        (RESPONSES, {"input": [{**OUTPUT, "output": MANY}]}, "input.0.output.0"),
        (RESPONSES, {"tools": [{"type": "namespace", "name": "n", "tools": MANY}]}, "tools.0.tools.0"),
        (MESSAGES, named("content", [{**RESULT, "content": MANY}]), "messages.0.content.0.content.0"),
        (MESSAGES, {"system": MANY}, "system.0"),
        (MESSAGES, {"stop_sequences": MANY}, "stop_sequences.0"),
        (MESSAGES, {"mcp_servers": MANY}, "mcp_servers.0"),
        (GEMINI, {"contents": MANY}, "contents.0"),
        (GEMINI, {"contents": [{"parts": MANY}]}, "contents.0.parts.0"),
        (GEMINI, {"systemInstruction": {"parts": MANY}}, "systemInstruction.parts.0"),
        (GEMINI, {"generationConfig": {"stopSequences": MANY}}, "generationConfig.stopSequences.0"),
        (GEMINI, {"tools": [{"functionDeclarations": MANY}]}, "tools.0.functionDeclarations.0"),
        (OLLAMA_CHAT, named("images", MANY), "messages.0.images.0"),
        (OLLAMA_CHAT, named("tool_calls", MANY), "messages.0.tool_calls.0"),
        (OLLAMA_CHAT, {"options": {"stop": MANY}}, "options.stop.0"),
    ],
)
def test_a_body_of_many_faults_is_refused_for_the_first_and_costs_no_memory(
    address: str, many: Json, field: str
) -> None:
    tracemalloc.start()
    error = refused(address, **many)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert error.param == field
    assert most < 10_000_000


TEXT_PARTS = [{"type": "text", "text": "x"}] * 5_001


@pytest.mark.parametrize(
    ("address", "many", "field"),
    [
        *((address, {"messages": [USER] * 20_001}, "messages") for address in (CHAT, MESSAGES, OLLAMA_CHAT)),
        *((address, named("content", TEXT_PARTS), "messages.0.content") for address in (CHAT, MESSAGES)),
        (MESSAGES, {"system": TEXT_PARTS}, "system"),
        (RESPONSES, {"input": [USER] * 20_001}, "input"),
        (RESPONSES, {"input": [{"role": "user", "content": TEXT_PARTS}]}, "input.0.content"),
        (GEMINI, {"contents": ["x"] * 20_001}, "contents"),
        (GEMINI, {"contents": [{"parts": ["x"] * 5_001}]}, "contents.0.parts"),
        (OLLAMA_CHAT, named("tool_calls", [{"function": {"name": "f"}}] * 129), "messages.0.tool_calls"),
    ],
)
def test_more_than_any_model_has_room_for_is_refused(address: str, many: Json, field: str) -> None:
    error = refused(address, **many)
    assert error.param == field
    assert "at most" in error.message


@every_format
def test_a_body_of_very_many_fields_is_refused(address: str) -> None:
    assert "send at most 1000" in refused(address, **{f"field_{n}": 1 for n in range(1001)}).message


# Whole numbers

WHOLES: dict[str, tuple[str, ...]] = {
    CHAT: ("max_tokens", "max_completion_tokens", "n", "seed", "top_logprobs"),
    COMPLETIONS: ("max_tokens", "n", "seed", "top_logprobs"),
    RESPONSES: ("max_output_tokens", "top_k", "seed"),
    MESSAGES: ("max_tokens", "top_k", "thinking.budget_tokens"),
    GEMINI: tuple(
        f"generationConfig.{name}" for name in ("topK", "maxOutputTokens", "candidateCount", "seed", "logprobs")
    ),
    OLLAMA_CHAT: ("options.num_predict", "options.top_k", "options.seed", "top_logprobs"),
    GENERATE: ("options.num_predict", "options.top_k", "options.seed", "top_logprobs"),
}
EACH_WHOLE = [(address, field) for address, fields in WHOLES.items() for field in fields]


def holding(field: str, number: float) -> Json:
    outer, _, inner = field.rpartition(".")
    if outer == "thinking":
        return {outer: {"type": "enabled", inner: number}}
    return {outer: {inner: number}} if outer else {field: number, "logprobs": None}


@pytest.mark.parametrize(("address", "field"), EACH_WHOLE)
@pytest.mark.parametrize("number", [1e300, -1e300, 2.0**53 + 2, 1.5, float("inf"), 2**63, -(2**63) - 1, 10**30])
def test_no_number_that_is_not_whole_or_is_beyond_64_bits_becomes_a_setting(
    address: str, field: str, number: float
) -> None:
    assert refused(address, **holding(field, number)).param == field


@pytest.mark.parametrize(("address", "field"), [(a, f) for a, f in EACH_WHOLE if a not in {CHAT, COMPLETIONS}])
def test_a_whole_number_may_be_written_with_a_point(address: str, field: str) -> None:
    logprobs = {"logprobs": True} if field == "top_logprobs" else {}
    with_point = settings(address, **holding(field, 5.0) | logprobs)
    assert with_point == settings(address, **holding(field, 5) | logprobs)
    assert not any(type(value) is float for value in with_point.values())


def test_a_seed_may_have_64_bits() -> None:
    for address in (CHAT, COMPLETIONS, RESPONSES):
        assert settings(address, seed=2**63 - 1) == {"seed": 2**63 - 1}
    assert settings(OLLAMA_CHAT, options={"seed": 2**63 - 1}) == {"seed": 2**63 - 1}
    assert settings(GEMINI, generationConfig={"seed": 2**63 - 1}) == {"seed": 2**63 - 1}


# Efforts and schemas


@pytest.mark.parametrize(
    ("address", "off"),
    [
        (MESSAGES, {"thinking": {"type": "disabled"}}),
        (GEMINI, {"generationConfig": {"thinkingConfig": {"thinkingBudget": 0}}}),
        (OLLAMA_CHAT, {"think": False}),
        (GENERATE, {"think": False}),
    ],
)
def test_thinking_switched_off_says_nothing_to_the_models(address: str, off: Json) -> None:
    assert "reasoning_effort" not in settings(address, **off)


@pytest.mark.parametrize(
    ("address", "most"),
    [
        (MESSAGES, {"output_config": {"effort": "max"}}),
        (MESSAGES, {"output_config": {"effort": "xhigh"}}),
        (GEMINI, {"generationConfig": {"thinkingConfig": {"thinkingLevel": "HIGH"}}}),
        (OLLAMA_CHAT, {"think": "max"}),
        (GENERATE, {"think": "max"}),
    ],
)
def test_the_most_thinking_is_the_highest_level_that_vendors_share(address: str, most: Json) -> None:
    assert settings(address, **most)["reasoning_effort"] == "high"


CLOSED = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"], "additionalProperties": False}


@pytest.mark.parametrize(
    ("schema", "strict"), [(CLOSED, True), ({**CLOSED, "required": []}, False), ({"type": "object"}, False)]
)
def test_a_schema_is_strict_where_openai_can_be_unless_the_format_says_so_itself(schema: Json, strict: bool) -> None:
    wanted = {"type": "json_schema", "schema": schema}
    for address, more in (
        (MESSAGES, {"output_config": {"format": wanted}}),
        (GEMINI, {"generationConfig": {"responseJsonSchema": schema}}),
        (OLLAMA_CHAT, {"format": schema}),
        (GENERATE, {"format": schema}),
    ):
        asked = {"name": "answer", "schema": schema, "strict": strict}
        assert settings(address, **more)["response_format"] == {"type": "json_schema", "json_schema": asked}
    said = {"name": "x", "schema": schema}
    text = {"format": {"type": "json_schema", **said}}
    assert settings(RESPONSES, text=text)["response_format"] == {"type": "json_schema", "json_schema": said}


# Any JSON

PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x01").decode()
WORDS = ["user", "model", "tool", "assistant", "text", "message", "json", "0s", PNG, "x"]
KEYS = ["role", "content", "type", "text", "parts", "images", "tool_calls", "function", "name", "stop", "seed", "topK"]
LIKELY = st.recursive(
    JSON | st.sampled_from(WORDS),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.parametrize("address", BODIES)
@given(data=st.data())
def test_any_object_is_a_request_or_refused_with_words(address: str, data: st.DataObject) -> None:
    fields = [*BODIES[address].model_fields, "model", "bench", "store", "metadata", "messages", "n", "stop"]
    document = data.draw(st.dictionaries(st.sampled_from(fields) | st.text(max_size=5), LIKELY))
    asked = ASKING[address] if data.draw(st.booleans()) else {}
    try:
        request, wish = format_at(address).read({**asked, **document})
    except InvalidRequest as error:
        assert error.param  # noqa: PT017  it may be refused and need not be
    else:
        assert bool(request.messages) is (wish.ready is None)
        assert all(value is not None for value in request.settings.values())
        assert request.encoded_messages
        assert orjson.dumps(request.settings)


# Any text


def lines_of(written: bytes) -> list[Any]:
    """What a stream says in JSON, of clients that end a line wherever Python does; an array's items are lines too."""
    lines = (line.removeprefix("data: ").removeprefix("[").removesuffix("]") for line in written.decode().splitlines())
    return [json.loads(line) for line in lines if line.startswith("{")]


def strings_in(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        yield from strings_in(list(value.values()))
    elif isinstance(value, list):
        for inner in value:
            yield from strings_in(inner)
    elif isinstance(value, str):
        yield value


@every_format
@given(said=TEXT)
@example(said=SEPARATORS)
def test_no_text_is_changed_and_none_breaks_a_line(address: str, said: str) -> None:
    format = format_at(address)
    whole = format.whole(ENVELOPE, [Alternative(said)], USAGE, {"note": said})
    (line,) = whole.decode().splitlines()
    assert list(strings_in(json.loads(line))).count(said) >= 2
    (line,) = format.error(InvalidRequest(said)).decode().splitlines()
    assert said in strings_in(json.loads(line))
    stream = format.stream(ENVELOPE)
    stream.begin()
    (line,) = lines_of(stream.text(said))
    assert said in strings_in(line)
    assert said in strings_in(lines_of(stream.end(["stop"], USAGE, {"note": said})))


@every_format
def test_a_reply_repeats_the_model_as_it_was_asked_for(address: str) -> None:
    format = format_at(address)
    assert ENVELOPE.model in strings_in(json.loads(format.whole(ENVELOPE, [Alternative("")], USAGE, {})))
    stream = format.stream(ENVELOPE)
    assert ENVELOPE.model in strings_in(lines_of(stream.begin() + stream.text("x"))[0])


# Alternatives one after the other


@pytest.mark.parametrize("address", [MESSAGES, RESPONSES])
def test_what_an_alternative_said_while_it_waited_is_one_event(address: str) -> None:
    stream = format_at(address).stream(ENVELOPE)
    stream.begin(0)
    stream.begin(1)
    stream.begin(2)
    waited = b"".join(stream.text(f"word {n} ", 1) for n in range(8_000))
    assert waited == b""
    replayed = stream.done(0)
    (piece,) = [line["delta"] for line in lines_of(replayed) if "delta" in line]
    assert "".join(f"word {n} " for n in range(8_000)) in strings_in([piece])
    assert len(replayed) < 100_000
    assert not [line for line in lines_of(stream.done(1)) if "delta" in line]


# Errors in OpenAI's shape


@pytest.mark.parametrize("address", [CHAT, COMPLETIONS, RESPONSES])
def test_an_error_has_openais_shape_and_a_panels_its_data(address: str) -> None:
    format = format_at(address)
    unknown = UnknownModel('there is no collection "x"', param="model", code="model_not_found")
    assert format.error(unknown) == (
        b'{"error":{"message":"there is no collection \\"x\\"","type":"invalid_request_error","param":"model",'
        b'"code":"model_not_found"}}'
    )
    failed = PanelFailed("no seat answered", status=502, data={"panel": PANEL})
    assert json.loads(format.error(failed)) == {
        "error": {"message": "no seat answered", "type": "server_error", "param": None, "code": "no_seat_answered"},
        "bench": {"panel": PANEL},
    }
