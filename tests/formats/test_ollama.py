"""Ollama's API: which bodies are taken, what the models get of them, and line by line what goes back."""

import base64
import json
from collections.abc import Iterator
from typing import Any

import httpx
import ollama
import pytest

from bench_proxy.errors import InvalidRequest, PanelFailed, UnknownModel
from bench_proxy.formats.base import Alternative, Envelope, Usage
from bench_proxy.formats.ollama.format import OllamaChat, OllamaFormat, OllamaGenerate
from bench_proxy.formats.ollama.lines import rfc3339
from bench_proxy.formats.request import ToolName
from bench_proxy.panel.refusals import refuse
from tests.anything import SEPARATORS

Json = dict[str, Any]

NOW = 1_772_366_405
CHAT = OllamaChat(now=lambda: NOW + 0.7)
GENERATE = OllamaGenerate(now=lambda: NOW + 0.7)
PANEL = "p20260301-120005-abcdefghijklmnop"
ENVELOPE = Envelope(PANEL, "bench/core", NOW)
USAGE = Usage(30, 12)
USER = {"role": "user", "content": "Hello."}
DATA: Json = {
    "panel": PANEL,
    "seats": [{"seconds": 1.5, "first_token_seconds": 0.25}, {"seconds": 0.5, "first_token_seconds": 0.5}],
}

PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x01").decode()
JPEG = base64.b64encode(b"\xff\xd8\xff\xe0\x00\x10JFIF\x00\x01\x01\x00\x00\x01\x00\x01").decode()
GIF = base64.b64encode(b"GIF89a\x01\x00\x01\x00\x80\x00\x00\xff\xff\xff\x00\x00\x00!").decode()
WEBP = base64.b64encode(b"RIFF\x24\x00\x00\x00WEBPVP8 \x18\x00\x00\x00").decode()
WAVE = base64.b64encode(b"RIFF\x24\x00\x00\x00WAVEfmt \x10\x00\x00\x00").decode()

TOOL = {"type": "function", "function": {"name": "read", "parameters": {"type": "object", "properties": {}}}}


def chat(**more: Any) -> Json:
    return {"model": "bench/core", "messages": [USER], **more}


def generate(**more: Any) -> Json:
    return {"model": "bench/core", "prompt": "Hello.", **more}


def refused(format: OllamaFormat, document: Json) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as error:
        format.read(document)
    assert error.value.status == 400
    return error.value


def messages(*sent: Json) -> list[Any]:
    return list(CHAT.read(chat(messages=list(sent)))[0].messages)


def settings(**more: Any) -> Json:
    """What both routes make of fields that both have."""
    read = dict(CHAT.read(chat(**more))[0].settings)
    assert dict(GENERATE.read(generate(**more))[0].settings) == read
    return read


# Reading


BOTH: list[tuple[Json, str]] = [
    ({"stream": "yes"}, "stream"),
    ({"stream": 0}, "stream"),
    ({"options": []}, "options"),
    ({"options": {"temperature": "hot"}}, "options.temperature"),
    ({"options": {"temperature": True}}, "options.temperature"),
    ({"options": {"temperature": float("inf")}}, "options.temperature"),
    ({"options": {"top_p": []}}, "options.top_p"),
    ({"options": {"top_k": 1.5}}, "options.top_k"),
    ({"options": {"top_k": True}}, "options.top_k"),
    ({"options": {"num_predict": "100"}}, "options.num_predict"),
    ({"options": {"seed": "lucky"}}, "options.seed"),
    ({"options": {"stop": 5}}, "options.stop"),
    ({"options": {"stop": ["a", 5]}}, "options.stop.1"),
    ({"options": {"presence_penalty": "0"}}, "options.presence_penalty"),
    ({"options": {"frequency_penalty": {}}}, "options.frequency_penalty"),
    ({"format": "xml"}, "format"),
    ({"format": ["json"]}, "format"),
    ({"format": True}, "format"),
    ({"think": "hard"}, "think"),
    ({"think": ""}, "think"),
    ({"think": 1}, "think"),
    ({"keep_alive": {}}, "keep_alive"),
    ({"keep_alive": False}, "keep_alive"),
    ({"logprobs": 5}, "logprobs"),
    ({"top_logprobs": "5"}, "top_logprobs"),
]
OF_A_CHAT: list[tuple[Json, str]] = [
    ({"messages": "Hello."}, "messages"),
    ({"messages": {"role": "user"}}, "messages"),
    ({"messages": ["Hello."]}, "messages.0"),
    ({"messages": [{"content": "Hello."}]}, "messages.0.role"),
    ({"messages": [USER, {"role": 5}]}, "messages.1.role"),
    ({"messages": [{"role": "user", "content": ["Hello."]}]}, "messages.0.content"),
    ({"messages": [{"role": "user", "images": PNG}]}, "messages.0.images"),
    ({"messages": [{"role": "user", "images": [5]}]}, "messages.0.images.0"),
    ({"messages": [{"role": "user", "images": [PNG, "not base64"]}]}, "messages.0.images.1"),
    ({"messages": [{"role": "assistant", "tool_calls": {}}]}, "messages.0.tool_calls"),
    ({"messages": [{"role": "assistant", "tool_calls": [{}]}]}, "messages.0.tool_calls.0.function"),
    ({"messages": [{"role": "assistant", "tool_calls": [{"function": {}}]}]}, "messages.0.tool_calls.0.function.name"),
    (
        {"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": 5}}]}]},
        "messages.0.tool_calls.0.function.arguments",
    ),
    ({"messages": [{"role": "tool", "tool_name": 5}]}, "messages.0.tool_name"),
    ({"tools": TOOL}, "tools"),
    ({"tools": ["read"]}, "tools.0"),
]
OF_A_PROMPT: list[tuple[Json, str]] = [
    ({"prompt": ["Hello."]}, "prompt"),
    ({"system": 5}, "system"),
    ({"images": PNG}, "images"),
    ({"images": [WAVE]}, "images.0"),
    ({"context": [1, 2, 3]}, "context"),
    ({"context": "abc"}, "context"),
    ({"suffix": "return x"}, "suffix"),
    ({"suffix": 5}, "suffix"),
    ({"template": "{{ .Prompt }}"}, "template"),
    ({"raw": True}, "raw"),
    ({"raw": "yes"}, "raw"),
]


@pytest.mark.parametrize(("wrong", "field"), [*BOTH, *OF_A_CHAT])
def test_what_a_chat_cannot_be_asked_is_refused_by_its_path(wrong: Json, field: str) -> None:
    error = refused(CHAT, chat(**wrong))
    assert error.param == field
    assert error.message.startswith(f'"{field}"')


@pytest.mark.parametrize(("wrong", "field"), [*BOTH, *OF_A_PROMPT])
def test_what_a_prompt_cannot_be_asked_is_refused_by_its_path(wrong: Json, field: str) -> None:
    error = refused(GENERATE, generate(**wrong))
    assert error.param == field
    assert error.message.startswith(f'"{field}"')


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"context": [1]}, '"context": is not kept here: send the whole conversation, as messages, to /api/chat'),
        ({"think": "hard"}, '"think": should be true, false, or one of: low, medium, high, max'),
        ({"images": ["A" * 40]}, "send a PNG, JPEG, GIF or WebP file as base64"),
    ],
)
def test_a_refusal_says_what_to_do(wrong: Json, told: str) -> None:
    assert told in refused(GENERATE, generate(**wrong)).message


def test_messages_reach_the_models_as_a_chat() -> None:
    system, assistant = {"role": "system", "content": "Be brief."}, {"role": "assistant", "content": "Hi."}
    assert messages(system, USER, assistant, USER) == [system, USER, assistant, USER]


def test_a_message_without_content_is_empty() -> None:
    assert messages({"role": "user"}, {"role": "user", "content": None}) == [{"role": "user", "content": ""}] * 2


def test_what_a_model_thought_does_not_travel_to_others() -> None:
    assert messages({"role": "assistant", "content": "Hi.", "thinking": "Say hi."}) == [
        {"role": "assistant", "content": "Hi."}
    ]


@pytest.mark.parametrize(("image", "kind"), [(PNG, "png"), (JPEG, "jpeg"), (GIF, "gif"), (WEBP, "webp")])
def test_an_image_says_by_its_first_bytes_what_it_is(image: str, kind: str) -> None:
    part = {"type": "image_url", "image_url": {"url": f"data:image/{kind};base64,{image}"}}
    text = {"type": "text", "text": "What?"}
    assert messages({"role": "user", "content": "What?", "images": [image]}) == [
        {"role": "user", "content": [text, part]}
    ]
    request, _ = GENERATE.read({"model": "bench/core", "images": [image]})
    assert request.messages == [{"role": "user", "content": [part]}]
    assert request.has_images
    refuse(request)


@pytest.mark.parametrize(
    "image",
    [
        "",
        "A",
        WAVE,
        PNG[:-1],
        f"{PNG}!!!!",
        f"===={PNG}",
        PNG[:4],
        "https://example.org/cat.png",
        "/home/me/cat.png",
        "ä" * 40,
    ],
)
def test_what_is_no_image_is_refused(image: str) -> None:
    assert refused(CHAT, chat(messages=[{"role": "user", "images": [image]}])).param == "messages.0.images.0"


def test_an_image_may_be_a_data_url_and_base64_may_have_line_ends() -> None:
    url = f"data:image/png;base64,{PNG}"
    broken = "\r\n".join(PNG[start : start + 7] for start in range(0, len(PNG), 7))
    ((only,),) = [messages({"role": "user", "images": [url, broken]})]
    assert [part["image_url"]["url"] for part in only["content"]] == [url, url]


def test_no_images_are_no_parts() -> None:
    assert messages({**USER, "images": []}, {**USER, "images": None}) == [USER, USER]


def call(name: str, **more: Any) -> Json:
    return {"function": {"name": name, "arguments": {"path": "a\u2028b"}}, **more}


def test_tool_calls_and_their_results_find_each_other() -> None:
    result = {"role": "tool", "content": "text"}
    made, *answered = messages(
        {"role": "assistant", "content": "", "tool_calls": [call("read"), call("list"), call("read"), call("stat")]},
        {**result, "tool_name": "read"},
        {**result, "tool_name": "read"},
        {**result, "tool_name": "nobody's"},
        result,
        result,
    )
    assert made == {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {
                "id": f"call_{number}",
                "type": "function",
                "function": {"name": name, "arguments": '{"path":"a\\u2028b"}'},
            }
            for number, name in enumerate(("read", "list", "read", "stat"), 1)
        ],
    }
    ids = ["call_1", "call_3", "call_2", "call_4", "call_5"]
    assert answered == [{"role": "tool", "tool_call_id": id, "content": "text"} for id in ids]


def test_ids_that_a_client_gives_are_kept() -> None:
    made, *answered = messages(
        {"role": "assistant", "content": "Wait.", "tool_calls": [call("read", id="x"), call("read", id="y")]},
        {"role": "tool", "tool_call_id": "y", "content": ""},
        {"role": "tool", "tool_name": "read", "content": ""},
    )
    assert made["content"] == "Wait."
    assert [c["id"] for c in made["tool_calls"]] == ["x", "y"]
    assert [message["tool_call_id"] for message in answered] == ["y", "x"]


@pytest.mark.parametrize(
    ("arguments", "text"), [({}, "{}"), (None, "{}"), ({"a": [1, None]}, '{"a":[1,null]}'), ('{"a": 1}', '{"a": 1}')]
)
def test_arguments_become_text(arguments: object, text: str) -> None:
    function = {"name": "f", "arguments": arguments}
    (made,) = messages({"role": "assistant", "tool_calls": [{"function": function}]})
    assert made["tool_calls"][0]["function"] == {"name": "f", "arguments": text}


def test_tools_are_given_on_for_the_panel_to_refuse() -> None:
    request, _ = CHAT.read(chat(tools=[TOOL, {"function": {"name": "f"}}, {"type": "web_search"}]))
    assert request.settings == {
        "tools": [TOOL, {"type": "function", "function": {"name": "f"}}, {"type": "web_search"}]
    }
    with pytest.raises(InvalidRequest, match=":route"):
        refuse(request)


def test_a_name_that_not_all_vendors_take_is_another_for_the_models_wherever_it_stands() -> None:
    history = [
        USER,
        {"role": "assistant", "tool_calls": [call("read"), call("wetter.für")]},
        {"role": "tool", "tool_name": "wetter.für", "content": "dry"},
    ]
    tool = {"type": None, "function": {"name": "wetter.für", "description": "Tells."}}
    request, _ = CHAT.read(chat(messages=history, tools=[TOOL, tool, {"type": "web_search", "function": 5}]))
    (told,) = request.tools
    assert told.startswith("wetter_f_r_")
    assert request.tools == {told: ToolName("wetter.für")}
    assert request.settings["tools"] == [
        TOOL,
        {"type": "function", "function": {"name": told, "description": "Tells."}},
        {"type": "web_search", "function": 5},
    ]
    _, made, answered = request.messages
    assert [c["function"]["name"] for c in made["tool_calls"]] == ["read", told]
    assert answered["tool_call_id"] == made["tool_calls"][1]["id"]


@pytest.mark.parametrize("tools", [[], None])
def test_an_empty_list_of_tools_is_no_tools(tools: list[Json] | None) -> None:
    assert CHAT.read(chat(tools=tools))[0].settings == {}


def test_options_become_settings_of_a_chat() -> None:
    options = {
        "num_predict": 100,
        "temperature": 0,
        "top_p": 0.5,
        "top_k": 40,
        "seed": -7,
        "stop": ["\n", "END"],
        "presence_penalty": -1,
        "frequency_penalty": 2,
    }
    assert settings(options=options) == {
        "max_tokens": 100,
        "temperature": 0,
        "top_p": 0.5,
        "top_k": 40,
        "seed": -7,
        "stop": ["\n", "END"],
        "presence_penalty": -1,
        "frequency_penalty": 2,
    }


@pytest.mark.parametrize("limit", [-2, -1, 0])
def test_no_limit_is_none(limit: int) -> None:
    assert settings(options={"num_predict": limit}) == {}


def test_options_of_the_machine_and_fields_that_nobody_knows_are_left_out() -> None:
    machine = {"num_ctx": 4096, "num_gpu": "many", "mirostat": 1, "repeat_penalty": 1.1, "min_p": 0.1, "x": None}
    unknown = {"truncate": True, "of_tomorrow": {"x": 1}, "bench": {"reply": "all"}, "with": ["gpt"]}
    assert settings(options=machine, keep_alive="5m", **unknown) == {}


@pytest.mark.parametrize("empty", [None, {}, {"stop": []}, {"stop": ""}, {"temperature": None}])
def test_options_that_say_nothing_are_none(empty: Json | None) -> None:
    assert settings(options=empty) == {}


SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


@pytest.mark.parametrize(
    ("format", "asked"),
    [
        (None, None),
        ("", None),
        ("json", {"type": "json_object"}),
        (SCHEMA, {"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA, "strict": False}}),
    ],
)
def test_a_format_is_a_response_format(format: object, asked: Json | None) -> None:
    assert settings(format=format) == ({"response_format": asked} if asked else {})


@pytest.mark.parametrize(
    ("think", "effort"),
    [
        (None, None),
        (True, None),
        (False, None),
        ("low", "low"),
        ("medium", "medium"),
        ("high", "high"),
        ("max", "high"),
    ],
)
def test_a_level_of_thinking_is_an_effort(think: object, effort: str | None) -> None:
    assert settings(think=think) == ({"reasoning_effort": effort} if effort else {})


@pytest.mark.parametrize(
    ("sent", "read"),
    [
        ({"logprobs": True, "top_logprobs": 5}, {"logprobs": True, "top_logprobs": 5}),
        ({"logprobs": False, "top_logprobs": 5}, {}),
    ],
)
def test_probabilities_are_asked_for_as_in_a_chat(sent: Json, read: Json) -> None:
    assert settings(**sent) == read


def test_a_prompt_is_a_chat_of_one_message_below_its_system() -> None:
    request, _ = GENERATE.read(generate(system="Be brief."))
    assert request.messages == [{"role": "system", "content": "Be brief."}, USER]
    empty = {"system": "", "template": "", "suffix": "", "raw": False, "context": [], "images": []}
    assert GENERATE.read(generate(**empty))[0].messages == [USER]
    assert GENERATE.read(generate(**dict.fromkeys(empty)))[0].messages == [USER]


@pytest.mark.parametrize(("sent", "stream"), [({}, True), ({"stream": None}, True), ({"stream": True}, True)])
def test_a_reply_streams_unless_it_should_not(sent: Json, stream: bool) -> None:
    for format, body in ((CHAT, chat(**sent)), (GENERATE, generate(**sent))):
        assert format.read(body)[1].stream is stream
        assert format.read({**body, "stream": False})[1].stream is False


def test_a_reply_has_no_room_for_alternatives() -> None:
    assert not CHAT.read(chat())[1].alternatives
    assert not GENERATE.read(generate())[1].alternatives


KEEPING = [(None, "load"), ("5m", "load"), (-1, "load"), ("10s", "load"), ("0.5s", "load"), ("soon", "load")]
FORGETTING = [(value, "unload") for value in (0, 0.0, "0", "0s", "0m", "00", "0.0s")]


@pytest.mark.parametrize(("keep_alive", "reason"), [*KEEPING, *FORGETTING])
def test_a_model_is_loaded_and_unloaded_without_being_asked(keep_alive: object, reason: str) -> None:
    head = b'{"model":"bench/core","created_at":"2026-03-01T12:00:05Z",'
    tail = b',"done":true,"done_reason":"' + reason.encode() + b'"}'
    for empty in ({}, {"messages": []}, {"messages": None}):
        request, wish = CHAT.read({"model": "bench/core", "keep_alive": keep_alive, **empty})
        assert list(request.messages) == []
        assert wish.ready == head + b'"message":{"role":"assistant","content":""}' + tail
    for empty in ({}, {"prompt": ""}, {"prompt": None, "images": []}):
        _, wish = GENERATE.read({"model": "bench/core", "keep_alive": keep_alive, **empty})
        assert wish.ready == head + b'"response":""' + tail


@pytest.mark.parametrize("keep_alive", [0, "5m", None])
def test_what_is_asked_is_asked_however_long_the_model_is_kept(keep_alive: object) -> None:
    assert CHAT.read(chat(keep_alive=keep_alive))[1].ready is None
    assert GENERATE.read(generate(keep_alive=keep_alive))[1].ready is None


# Writing


HEAD = b'{"model":"bench/core","created_at":"2026-03-01T12:00:05Z",'
COUNTS = (
    b'"total_duration":1500000000,"load_duration":0,"prompt_eval_duration":250000000,"eval_duration":1250000000,'
    b'"prompt_eval_count":30,"eval_count":12,'
    b'"bench":{"panel":"p20260301-120005-abcdefghijklmnop",'
    b'"seats":[{"seconds":1.5,"first_token_seconds":0.25},{"seconds":0.5,"first_token_seconds":0.5}]}}'
)


def test_a_whole_chat_byte_by_byte() -> None:
    assert CHAT.whole(ENVELOPE, [Alternative("# Hello\n")], USAGE, DATA) == (
        HEAD + b'"message":{"role":"assistant","content":"# Hello\\n"},"done":true,"done_reason":"stop",' + COUNTS
    )


def test_a_whole_answer_to_a_prompt_byte_by_byte() -> None:
    assert GENERATE.whole(ENVELOPE, [Alternative("# Hello\n", "length")], USAGE, DATA) == (
        HEAD + b'"response":"# Hello\\n","done":true,"done_reason":"length",' + COUNTS
    )


def written(format: OllamaFormat) -> list[bytes]:
    stream = format.stream(ENVELOPE)
    return [stream.begin(), stream.text("# Hello\n"), stream.keep_alive(), stream.end(["stop"], USAGE, DATA)]


def test_a_streamed_chat_line_by_line() -> None:
    empty = HEAD + b'"message":{"role":"assistant","content":""},"done":'
    assert written(CHAT) == [
        empty + b"false}\n",
        HEAD + b'"message":{"role":"assistant","content":"# Hello\\n"},"done":false}\n',
        empty + b"false}\n",
        empty + b'true,"done_reason":"stop",' + COUNTS + b"\n",
    ]


def test_a_streamed_answer_to_a_prompt_line_by_line() -> None:
    assert written(GENERATE) == [
        HEAD + b'"response":"","done":false}\n',
        HEAD + b'"response":"# Hello\\n","done":false}\n',
        HEAD + b'"response":"","done":false}\n',
        HEAD + b'"response":"","done":true,"done_reason":"stop",' + COUNTS + b"\n",
    ]


@pytest.mark.parametrize(
    ("reason", "told"), [("stop", "stop"), ("length", "length"), ("content_filter", "stop"), ("tool_calls", "stop")]
)
def test_why_an_answer_ended_is_told_in_ollamas_words(reason: str, told: str) -> None:
    assert json.loads(CHAT.stream(ENVELOPE).end([reason], USAGE, {}))["done_reason"] == told


@pytest.mark.parametrize(
    ("data", "durations"),
    [
        ({}, (0, 0, 1)),
        ({"seats": [{"seconds": 0.0}]}, (0, 0, 1)),
        ({"seats": [{"seconds": 0.123}, {"seconds": 2}]}, (2_000_000_000, 0, 2_000_000_000)),
        ({"seats": [{"seconds": 1, "first_token_seconds": 1.001}]}, (1_000_000_000, 1_000_000_000, 1)),
        (
            {"seats": [{"seconds": 2, "first_token_seconds": 0.5}], "merger": {"seconds": 1}},
            (3_000_000_000, 500_000_000, 2_500_000_000),
        ),
    ],
)
def test_durations_are_the_panels_and_can_be_divided_by(data: Json, durations: tuple[int, int, int]) -> None:
    last = json.loads(CHAT.whole(ENVELOPE, [Alternative("")], USAGE, data))
    assert (last["total_duration"], last["prompt_eval_duration"], last["eval_duration"]) == durations


def test_times_are_written_as_ollama_writes_them() -> None:
    assert rfc3339(1) == "1970-01-01T00:00:01Z"


def test_an_error_has_ollamas_shape_and_nothing_else() -> None:
    unknown = UnknownModel('there is no collection "x"', param="model", code="model_not_found")
    failed = PanelFailed("no seat answered", status=502, data={"panel": PANEL})
    assert CHAT.error(unknown) == b'{"error":"there is no collection \\"x\\""}'
    assert CHAT.error(failed) == b'{"error":"no seat answered"}'
    assert CHAT.stream(ENVELOPE).error(failed) == b'{"error":"no seat answered"}\n'


class Wire(httpx.SyncByteStream):
    """A streamed reply whose bytes come in the parts that a test says."""

    def __init__(self, *parts: bytes) -> None:
        self._parts = parts

    def __iter__(self) -> Iterator[bytes]:
        yield from self._parts


def read_by_sdk(*parts: bytes) -> list[ollama.ChatResponse]:
    transport = httpx.MockTransport(lambda _request: httpx.Response(200, stream=Wire(*parts)))
    with ollama.Client(host="http://test", transport=transport, trust_env=False) as client:
        return list(client.chat(model="bench/core", messages=[USER], stream=True))


SAID = f"{SEPARATORS} 漢字 \N{GRINNING FACE}"


def test_a_stream_cut_anywhere_reads_the_same_in_ollamas_own_library() -> None:
    stream = CHAT.stream(ENVELOPE)
    sent = b"".join(
        [stream.begin(), stream.text(SAID), stream.keep_alive(), stream.end(["stop"], USAGE, {"note": SAID})]
    )
    whole = read_by_sdk(sent)
    assert "".join(line.message.content or "" for line in whole) == SAID
    assert [line.done for line in whole] == [False, False, False, True]
    assert (whole[-1].prompt_eval_count, whole[-1].eval_count, whole[-1].done_reason) == (30, 12, "stop")
    for cut in range(1, len(sent)):
        assert read_by_sdk(sent[:cut], sent[cut:]) == whole
    assert read_by_sdk(*(sent[at : at + 1] for at in range(len(sent)))) == whole


def test_an_error_in_a_stream_raises_in_ollamas_own_library() -> None:
    stream = CHAT.stream(ENVELOPE)
    with pytest.raises(ollama.ResponseError, match="no seat answered"):
        read_by_sdk(stream.begin(), stream.error(PanelFailed("no seat answered", status=502)))
