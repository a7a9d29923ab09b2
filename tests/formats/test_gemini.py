"""Gemini's generateContent: which addresses and bodies are taken, what a chat makes of them, and what goes back."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from google.genai import errors, types
from google.genai._api_client import HttpResponse
from hypothesis import given
from hypothesis import strategies as st

from bench_proxy.errors import BenchError, Denied, InvalidRequest, PanelFailed, UnknownModel
from bench_proxy.formats.base import Alternative, Envelope, Place, Spoken, ToolCall, Usage
from bench_proxy.formats.gemini.format import ARRAY, COUNT, EVENTS, WHOLE, GeminiFormat
from bench_proxy.formats.places import place
from bench_proxy.formats.request import ToolName
from bench_proxy.panel.refusals import refuse
from bench_proxy.size import size
from tests.anything import JSON, TEXT

Json = dict[str, Any]

PANEL = "p20260301-120005-abcdefghijklmnop"
ENVELOPE = Envelope(PANEL, "bench/core", 1_772_366_405)
USAGE = Usage(30, 12)
HELLO = {"role": "user", "parts": [{"text": "Hello."}]}
ASKED = {"role": "user", "content": "Hello."}
PIXEL = "iVBORw0KGgo="


def body(**more: Any) -> Json:
    return {"contents": [HELLO], **more}


def refused(document: Json, format: GeminiFormat = WHOLE) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as error:
        format.read(document)
    assert error.value.status == 400
    return error.value


def messages(contents: Any, **more: Any) -> list[Json]:
    return [dict(message) for message in WHOLE.read({"contents": contents, **more})[0].messages]


def parts(*sent: Any, role: str = "user") -> Json:
    return {"role": role, "parts": list(sent)}


def content_of(*sent: Any) -> Any:
    """The chat content of one user's parts."""
    (message,) = messages([parts(*sent)])
    assert message["role"] == "user"
    return message["content"]


def settings(**more: Any) -> Json:
    return dict(WHOLE.read(body(**more))[0].settings)


def configured(**config: Any) -> Json:
    return settings(generationConfig=config)


# Addresses


def at(path: str, query: bytes = b"") -> Place:
    found = place(path, query)
    assert found is not None
    return found


@pytest.mark.parametrize("base", ["/v1beta/models/", "/v1/models/", "/models/"])
@pytest.mark.parametrize(
    "model", ["bench/core", "bench/core:merged", "bench/core:latest", "BENCH/core", "bench", "bench/", "bench/a:b:c"]
)
def test_the_address_names_the_model_and_after_its_last_colon_what_is_asked_for(base: str, model: str) -> None:
    assert at(f"{base}{model}:generateContent").model == model
    assert at(f"{base}{model}:streamGenerateContent").model == model
    assert at(f"{base}{model}:countTokens").model == model


def test_the_prefix_of_a_model_may_be_there_twice() -> None:
    assert at("/v1beta/models/models/bench/core:merged:generateContent").model == "bench/core:merged"


@pytest.mark.parametrize(
    "path",
    [
        "/v1beta/models/gemini-3-pro:generateContent",
        "/v1beta/models/bench-mark:generateContent",
        "/v1beta/models/other/bench/core:generateContent",
        "/v1beta/models/bench/core:embedContent",
        "/v1beta/models/bench/core",
        "/v1beta/models/bench/core:generateContent/",
        "/v1beta/models/:generateContent",
        "/v1/models/bench/core:GenerateContent",
        "/v1beta2/models/bench/core:generateContent",
        "/gemini/v1beta/models/bench/core:generateContent",
    ],
)
def test_other_addresses_are_not_ours(path: str) -> None:
    assert place(path) is None


def test_how_the_reply_should_come_is_said_by_the_address() -> None:
    def manner(path: str, query: bytes = b"") -> tuple[bool, str]:
        format = at(path, query).format
        return format.read(body())[1].stream, format.stream_content_type

    stream = "/v1beta/models/bench/core:streamGenerateContent"
    assert manner("/v1beta/models/bench/core:generateContent", b"alt=sse")[0] is False
    assert manner(stream) == manner(stream, b"alt=json") == (True, "application/json")
    assert manner(stream, b"alt=sse") == manner(stream, b"key=x&alt=sse") == (True, "text/event-stream; charset=utf-8")


def test_only_a_count_counts() -> None:
    count = at("/v1beta/models/bench/core:countTokens").count
    assert count is not None
    assert count(42) == b'{"totalTokens":42,"bench":{"estimate":true}}'
    assert at("/v1beta/models/bench/core:generateContent").count is None
    assert at("/v1beta/models/bench/core:streamGenerateContent").count is None


@pytest.mark.parametrize("action", ["generateContent", "streamGenerateContent", "countTokens"])
def test_litellm_is_asked_about_a_path_that_it_knows_and_that_names_the_collection_alone(action: str) -> None:
    known = "/v1beta/models/bench/core:generateContent"
    assert at(f"/v1/models/bench/core:merged:{action}").host_path == known
    assert at(f"/models/models/bench/core:{action}").host_path == known


def test_a_long_address_that_is_none_costs_little() -> None:
    assert place("/" + "models/" * 100_000 + "bench/core:nothing") is None


# Reading


@pytest.mark.parametrize(
    ("document", "field"),
    [
        ({}, "contents"),
        ({"contents": [{"role": "user"}]}, "contents.0.parts"),
        ({"contents": [HELLO, {"parts": [{"inlineData": {"data": PIXEL}}]}]}, "contents.1.parts.0.inlineData.mimeType"),
        ({"contents": [parts({"functionCall": {"args": {}}}, role="model")]}, "contents.0.parts.0.functionCall.name"),
        (body(tools=[{"functionDeclarations": [{"description": "x"}]}]), "tools.0.functionDeclarations.0.name"),
        (body(systemInstruction={"parts": [{}]}), "systemInstruction.parts.0.text"),
    ],
)
def test_a_field_that_is_missing_is_named_by_its_path(document: Json, field: str) -> None:
    error = refused(document)
    assert error.param == field
    assert error.message == f'"{field}" is required'


def holding(part: Json) -> Json:
    return {"contents": [{"parts": [part]}]}


def thinking(**config: Any) -> Json:
    return {"generationConfig": {"thinkingConfig": config}}


WRONG: list[tuple[Json, str]] = [
    ({"contents": None}, "contents"),
    ({"contents": []}, "contents"),
    ({"contents": 5}, "contents.0"),
    ({"contents": [5]}, "contents.0"),
    ({"contents": [{"role": "system", "parts": [{"text": "x"}]}]}, "contents.0.role"),
    ({"contents": [{"role": 5, "parts": [{"text": "x"}]}]}, "contents.0.role"),
    ({"contents": [{"parts": None}]}, "contents.0.parts"),
    ({"contents": [{"parts": [5]}]}, "contents.0.parts.0"),
    (holding({"text": 5}), "contents.0.parts.0.text"),
    ({"contents": [{"parts": {"text": ["x"]}}]}, "contents.0.parts.0.text"),
    (holding({"text": "x", "thought": "yes"}), "contents.0.parts.0.thought"),
    (holding({"inlineData": "x"}), "contents.0.parts.0.inlineData"),
    (holding({"inline_data": {"mime_type": 5, "data": ""}}), "contents.0.parts.0.inline_data.mime_type"),
    (holding({"fileData": {"fileUri": 5}}), "contents.0.parts.0.fileData.fileUri"),
    (holding({"functionCall": {"name": "f", "args": "{}"}}), "contents.0.parts.0.functionCall.args"),
    (holding({"functionResponse": {"name": "f", "response": "x"}}), "contents.0.parts.0.functionResponse.response"),
    ({"systemInstruction": 5}, "systemInstruction"),
    ({"system_instruction": {"parts": [{"text": 5}]}}, "system_instruction.parts.0.text"),
    ({"generationConfig": []}, "generationConfig"),
    ({"generationConfig": {"temperature": "hot"}}, "generationConfig.temperature"),
    ({"generationConfig": {"temperature": True}}, "generationConfig.temperature"),
    ({"generationConfig": {"temperature": float("inf")}}, "generationConfig.temperature"),
    ({"generationConfig": {"topP": []}}, "generationConfig.topP"),
    ({"generationConfig": {"topK": "40"}}, "generationConfig.topK"),
    ({"generationConfig": {"topK": -1}}, "generationConfig.topK"),
    ({"generationConfig": {"maxOutputTokens": "100"}}, "generationConfig.maxOutputTokens"),
    ({"generationConfig": {"maxOutputTokens": 0}}, "generationConfig.maxOutputTokens"),
    ({"generation_config": {"max_output_tokens": 1.5}}, "generation_config.max_output_tokens"),
    ({"generationConfig": {"stopSequences": 5}}, "generationConfig.stopSequences.0"),
    ({"generationConfig": {"stopSequences": ["a", 5]}}, "generationConfig.stopSequences.1"),
    ({"generationConfig": {"candidateCount": 0}}, "generationConfig.candidateCount"),
    ({"generationConfig": {"seed": "lucky"}}, "generationConfig.seed"),
    ({"generationConfig": {"presencePenalty": "0"}}, "generationConfig.presencePenalty"),
    ({"generationConfig": {"frequencyPenalty": {}}}, "generationConfig.frequencyPenalty"),
    ({"generationConfig": {"responseLogprobs": "yes"}}, "generationConfig.responseLogprobs"),
    ({"generationConfig": {"logprobs": "5"}}, "generationConfig.logprobs"),
    ({"generationConfig": {"responseMimeType": 5}}, "generationConfig.responseMimeType"),
    ({"generationConfig": {"responseMimeType": "text/x.enum"}}, "generationConfig.responseMimeType"),
    ({"generationConfig": {"responseSchema": "object"}}, "generationConfig.responseSchema"),
    ({"generationConfig": {"responseJsonSchema": []}}, "generationConfig.responseJsonSchema"),
    ({"generationConfig": {"responseModalities": ["TEXT", "AUDIO"]}}, "generationConfig.responseModalities"),
    ({"generation_config": {"response_modalities": "IMAGE"}}, "generation_config.response_modalities"),
    ({"generationConfig": {"thinkingConfig": 5}}, "generationConfig.thinkingConfig"),
    (thinking(thinkingBudget="much"), "generationConfig.thinkingConfig.thinkingBudget"),
    (thinking(include_thoughts="yes"), "generationConfig.thinkingConfig.include_thoughts"),
    (thinking(thinkingLevel="deep"), "generationConfig.thinkingConfig.thinkingLevel"),
    ({"tools": ["read"]}, "tools.0"),
    ({"tools": [{"functionDeclarations": ["read"]}]}, "tools.0.functionDeclarations.0"),
    (
        {"tools": {"function_declarations": {"name": "f", "parameters": "x"}}},
        "tools.0.function_declarations.0.parameters",
    ),
    ({"toolConfig": "auto"}, "toolConfig"),
    ({"toolConfig": {"functionCallingConfig": {"mode": "SOMETIMES"}}}, "toolConfig.functionCallingConfig.mode"),
    ({"cachedContent": "cachedContents/abc"}, "cachedContent"),
    ({"cached_content": "cachedContents/abc"}, "cached_content"),
]


@pytest.mark.parametrize(("wrong", "field"), WRONG)
def test_a_value_of_the_wrong_type_is_refused_by_its_path_in_the_spelling_that_was_sent(
    wrong: Json, field: str
) -> None:
    error = refused(body(**wrong))
    assert error.param == field
    assert error.message.startswith(f'"{field}": ')


def test_what_is_wrong_with_a_field_is_said_in_words() -> None:
    cached = refused(body(cachedContent="cachedContents/abc"))
    assert cached.message == '"cachedContent": nothing is stored here; send the whole content with each request'
    spoken = refused(body(generationConfig={"responseModalities": ["AUDIO"]}))
    assert spoken.message.endswith("a panel answers with text, not with 'AUDIO'; leave it out")


@pytest.mark.parametrize(
    "contents",
    [
        "Hello.",
        ["Hello."],
        HELLO,
        [HELLO],
        {"parts": {"text": "Hello."}},
        {"parts": "Hello."},
        [{"parts": ["Hello."]}],
        [{"role": None, "parts": [{"text": "Hello.", "inlineData": None}]}],
    ],
)
def test_one_text_may_be_sent_in_many_ways(contents: Any) -> None:
    assert messages(contents) == [ASKED]


def test_several_parts_stay_apart_and_those_without_anything_are_left_out() -> None:
    assert content_of("One.", {"text": ""}, {}, {"thoughtSignature": "c2ln"}, {"text": "Two."}) == [
        {"type": "text", "text": "One."},
        {"type": "text", "text": "Two."},
    ]


@pytest.mark.parametrize(
    "contents", [parts(), parts({"text": ""}), parts({"text": "Hm.", "thought": True}, role="model")]
)
def test_contents_without_anything_in_them_are_refused(contents: Json) -> None:
    assert refused({"contents": contents, "systemInstruction": "Be brief."}).param == "contents"


@pytest.mark.parametrize("name", ["systemInstruction", "system_instruction"])
@pytest.mark.parametrize(
    "sent", ["Be brief.", {"parts": {"text": "Be brief."}}, {"role": "user", "parts": [{"text": "Be brief."}, ""]}]
)
def test_the_system_instruction_comes_first(name: str, sent: Any) -> None:
    assert messages([HELLO], **{name: sent}) == [{"role": "system", "content": "Be brief."}, ASKED]


def test_a_system_instruction_of_several_parts_keeps_them() -> None:
    system, _ = messages([HELLO], systemInstruction={"parts": [{"text": "Be brief."}, {"text": "Be kind."}]})
    assert system["content"] == [{"type": "text", "text": "Be brief."}, {"type": "text", "text": "Be kind."}]


def test_an_empty_system_instruction_is_none() -> None:
    assert messages([HELLO], systemInstruction={"parts": []}) == [ASKED]


def test_what_the_model_said_in_pieces_is_one_message_and_thoughts_are_left_out() -> None:
    """As Google's SDKs keep a streamed answer in the history of a chat: a content for each chunk."""
    history = [
        HELLO,
        parts({"text": "A secret.", "thought": True, "thoughtSignature": "c2ln"}, role="model"),
        parts({"text": "I am "}, role="model"),
        parts({"text": ""}, role="model"),
        parts({"text": "here.", "thoughtSignature": "c2ln"}, role="model"),
        HELLO,
        HELLO,
    ]
    assert messages(history) == [ASKED, {"role": "assistant", "content": "I am here."}, ASKED, ASKED]


@pytest.mark.parametrize(("name", "mime"), [("inlineData", "mimeType"), ("inline_data", "mime_type")])
def test_an_inline_image_is_a_data_url(name: str, mime: str) -> None:
    image = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}}
    assert content_of({name: {mime: "image/PNG", "data": PIXEL}}, "What?") == [image, {"type": "text", "text": "What?"}]


def test_base64_in_the_alphabet_for_addresses_is_written_in_the_standard_one() -> None:
    part = types.Part.from_bytes(data=b"\xff\xef\xbe" * 3, mime_type="image/png").model_dump(
        mode="json", exclude_none=True
    )
    assert part["inline_data"]["data"] == "_---_---_---"
    (image,) = content_of(part)
    assert image["image_url"]["url"] == "data:image/png;base64,/+++/+++/+++"


@pytest.mark.parametrize(
    ("file", "image"),
    [
        ({"fileUri": "https://example.org/cat", "mimeType": "image/png"}, True),
        ({"file_uri": "https://example.org/cat.JPG?size=2"}, True),
        ({"fileUri": "http://example.org/cat.webp", "mimeType": ""}, True),
        ({"fileUri": "https://example.org/cat"}, False),
        ({"fileUri": "https://example.org/film?poster=cat.png"}, False),
        ({"fileUri": "https://www.youtube.com/watch?v=x"}, False),
        ({"fileUri": "https://example.org/paper.pdf", "mimeType": "application/pdf"}, False),
        ({"fileUri": "gs://bucket/cat.png", "mimeType": "image/png"}, False),
        ({"fileUri": "https://generativelanguage.googleapis.com/v1beta/files/abc", "mimeType": "image/png"}, False),
    ],
)
def test_an_image_at_an_address_is_taken_and_other_files_are_refused(file: Json, image: bool) -> None:
    request, _ = WHOLE.read({"contents": parts({"fileData": file})})
    if image:
        (part,) = request.parts()
        assert part == {"type": "image_url", "image_url": {"url": file.get("fileUri") or file["file_uri"]}}
        refuse(request)
    else:
        with pytest.raises(InvalidRequest, match='a content part of type "file" is not taken by a panel'):
            refuse(request)


@pytest.mark.parametrize(
    ("part", "kind"),
    [
        ({"inlineData": {"mimeType": "audio/mp3", "data": PIXEL}}, "input_audio"),
        ({"inlineData": {"mimeType": "video/mp4", "data": PIXEL}}, "file"),
        ({"inlineData": {"mimeType": "application/pdf", "data": PIXEL, "displayName": "a.pdf"}}, "file"),
        ({"inlineData": {"mimeType": "text/plain", "data": PIXEL}}, "file"),
        ({"text": None, "executableCode": {"language": "PYTHON", "code": "1"}}, "executableCode"),
        ({"code_execution_result": {"outcome": "OUTCOME_OK"}}, "code_execution_result"),
        ({"videoMetadata": {"fps": 1}, "partOfTomorrow": {}}, "partOfTomorrow"),
        ({"type": "text"}, "type"),
    ],
)
@pytest.mark.parametrize("role", ["user", "model"])
def test_a_part_that_only_some_models_take_is_kept_and_refused_by_a_panel(part: Json, kind: str, role: str) -> None:
    request, _ = WHOLE.read({"contents": [parts(part, role=role), HELLO]})
    with pytest.raises(InvalidRequest, match=f'a content part of type "{kind}" is not taken by a panel'):
        refuse(request)


@pytest.mark.parametrize(
    ("blob", "part"),
    [
        (
            {"mimeType": "application/pdf", "data": "_-4="},
            {"type": "file", "file": {"file_data": "data:application/pdf;base64,/+4="}},
        ),
        (
            {"mime_type": "application/pdf", "data": PIXEL, "display_name": "a.pdf"},
            {"type": "file", "file": {"file_data": f"data:application/pdf;base64,{PIXEL}", "filename": "a.pdf"}},
        ),
        (
            {"mimeType": "audio/mpeg", "data": "_-4="},
            {"type": "input_audio", "input_audio": {"data": "/+4=", "format": "mp3"}},
        ),
        (
            {"mimeType": "audio/x-wav", "data": PIXEL},
            {"type": "input_audio", "input_audio": {"data": PIXEL, "format": "wav"}},
        ),
        (
            {"mimeType": "audio/ogg", "data": PIXEL},
            {"type": "input_audio", "input_audio": {"data": PIXEL, "format": "ogg"}},
        ),
    ],
)
def test_a_file_or_a_sound_is_the_part_that_a_chat_has_for_it(blob: Json, part: Json) -> None:
    assert content_of({"inlineData": blob}) == [part]


def test_the_data_of_a_file_is_not_counted_as_text() -> None:
    request, _ = COUNT.read({"contents": parts({"inlineData": {"mimeType": "application/pdf", "data": "A" * 100_000}})})
    assert size(request.messages, request.settings).tokens < 100


def test_a_part_that_holds_two_things_loses_neither() -> None:
    image = {"inlineData": {"mimeType": "image/png", "data": PIXEL}}
    seen = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}}
    assert content_of({"text": "", **image}) == [seen]
    assert content_of({"text": "Look.", **image}) == [{"type": "text", "text": "Look."}, seen]


def test_notes_beside_a_part_are_left_out() -> None:
    notes = {"videoMetadata": {}, "mediaResolution": {"level": "x"}, "partMetadata": {"a": 1}, "cache_control": {}}
    assert content_of({"text": "Hello.", **notes}) == "Hello."


# Function calls

CALL = {"functionCall": {"name": "read", "args": {"path": "é\u2028"}}, "thoughtSignature": "c2ln"}


def call(id: str, name: str, arguments: str) -> Json:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def result(id: str, content: Any) -> Json:
    return {"role": "tool", "tool_call_id": id, "content": content}


def test_calls_and_results_are_those_of_a_chat_with_ids_that_agree() -> None:
    history = [
        HELLO,
        parts({"text": "I read."}, CALL, CALL, {"functionCall": {"name": "list"}}, role="model"),
        parts(
            {"text": "Here."},
            {"functionResponse": {"name": "list", "response": {"output": []}}},
            {"functionResponse": {"name": "read", "response": {"result": "ü"}}},
            {"functionResponse": {"name": "read"}},
        ),
    ]
    read = '{"path":"é\u2028"}'
    assert messages(history) == [
        ASKED,
        {
            "role": "assistant",
            "content": "I read.",
            "tool_calls": [call("call_1", "read", read), call("call_2", "read", read), call("call_3", "list", "{}")],
        },
        result("call_3", '{"output":[]}'),
        result("call_1", '{"result":"ü"}'),
        result("call_2", "{}"),
        {"role": "user", "content": "Here."},
    ]


def test_ids_that_were_sent_are_kept_and_one_that_is_missing_is_found_by_its_name() -> None:
    called = parts(
        {"function_call": {"id": "a", "name": "f"}}, {"function_call": {"id": "b", "name": "f"}}, role="model"
    )
    first, *results = messages(
        [
            called,
            parts({"function_response": {"id": "b", "name": "f"}}, role="function"),
            parts({"function_response": {"name": "f"}}, role="tool"),
            parts({"function_response": {"id": "stray", "name": "f"}}),
            parts({"function_response": {"name": "f"}}),
        ]
    )
    assert first == {"role": "assistant", "content": None, "tool_calls": [call("a", "f", "{}"), call("b", "f", "{}")]}
    assert [message["tool_call_id"] for message in results] == ["b", "a", "stray", "call_1"]


def test_a_result_may_hold_an_image() -> None:
    image = {"inlineData": {"mimeType": "image/png", "data": PIXEL}}
    (said,) = messages([parts({"functionResponse": {"id": "a", "name": "look", "response": {}, "parts": [image]}})])
    assert said["content"] == [
        {"type": "text", "text": "{}"},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}},
    ]


@pytest.mark.parametrize(
    "contents", [parts(CALL, role="model"), parts(CALL), parts({"functionResponse": {"name": "f"}})]
)
def test_a_conversation_with_calls_is_refused_by_a_panel(contents: Json) -> None:
    request, _ = WHOLE.read({"contents": [HELLO, contents]})
    with pytest.raises(InvalidRequest, match="holds a tool call"):
        refuse(request)


# Settings

SENT = {
    "temperature": 0,
    "topP": 0.5,
    "topK": 40.0,
    "maxOutputTokens": 100,
    "stopSequences": ["\n", "END"],
    "candidateCount": 1,
    "seed": -7,
    "presencePenalty": -1,
    "frequencyPenalty": 2,
    "responseLogprobs": True,
    "logprobs": 5,
}
REACHED = {
    "temperature": 0,
    "top_p": 0.5,
    "top_k": 40,
    "max_tokens": 100,
    "stop": ["\n", "END"],
    "n": 1,
    "seed": -7,
    "presence_penalty": -1,
    "frequency_penalty": 2,
    "logprobs": True,
    "top_logprobs": 5,
}
SNAKE = {
    "topP": "top_p",
    "topK": "top_k",
    "maxOutputTokens": "max_output_tokens",
    "stopSequences": "stop_sequences",
    "candidateCount": "candidate_count",
    "presencePenalty": "presence_penalty",
    "frequencyPenalty": "frequency_penalty",
    "responseLogprobs": "response_logprobs",
}


def test_settings_are_those_of_a_chat_in_either_spelling() -> None:
    assert configured(**SENT) == REACHED
    assert settings(generation_config={SNAKE.get(name, name): value for name, value in SENT.items()}) == REACHED
    assert type(configured(topK=40.0)["top_k"]) is int


def test_settings_of_googles_own_are_left_out() -> None:
    theirs = {
        "model": "models/bench/core",
        "safetySettings": [{"category": "HARM_CATEGORY_HATE_SPEECH", "threshold": "BLOCK_NONE"}],
        "labels": {"a": "b"},
        "serviceTier": "flex",
        "cachedContent": "",
        "bench": {"reply": "all"},
        "with": ["gpt"],
    }
    config = {
        "speechConfig": {},
        "mediaResolution": "MEDIA_RESOLUTION_LOW",
        "responseModalities": ["TEXT"],
        "responseMimeType": "text/plain",
        "thinkingConfig": {"includeThoughts": True, "thinkingBudget": -1},
        "stopSequences": [],
        "ofTomorrow": [{"deep": None}],
    }
    assert settings(generationConfig=config, **theirs) == {}


def test_a_setting_that_is_null_is_one_that_was_not_sent() -> None:
    assert settings(generationConfig=None, tools=None, toolConfig=None, systemInstruction=None) == {}
    assert configured(temperature=None, responseSchema=None, thinkingConfig=None, stopSequences=None) == {}


@pytest.mark.parametrize(
    ("thinking", "effort"),
    [
        ({}, None),
        ({"thinkingBudget": -1}, None),
        ({"thinkingBudget": 0}, None),
        ({"thinking_budget": 1024}, "low"),
        ({"thinkingBudget": 1025}, "medium"),
        ({"thinkingBudget": 8192}, "medium"),
        ({"thinkingBudget": 24576, "includeThoughts": True}, "high"),
        ({"thinkingLevel": "MINIMAL"}, "minimal"),
        ({"thinking_level": "low"}, "low"),
        ({"thinkingLevel": "THINKING_LEVEL_UNSPECIFIED"}, None),
        ({"thinkingLevel": "HIGH", "thinkingBudget": 5}, "high"),
    ],
)
def test_thinking_is_an_effort(thinking: Json, effort: str | None) -> None:
    assert configured(thinkingConfig=thinking) == ({} if effort is None else {"reasoning_effort": effort})


@pytest.mark.parametrize(
    ("config", "wanted"),
    [
        ({}, False),
        ({"generationConfig": {}}, False),
        (thinking(thinkingBudget=5), False),
        (thinking(includeThoughts=None), False),
        (thinking(includeThoughts=False), False),
        (thinking(includeThoughts=True), True),
        ({"generation_config": {"thinking_config": {"include_thoughts": True}}}, True),
    ],
)
@pytest.mark.parametrize("format", [WHOLE, EVENTS, ARRAY])
def test_thoughts_are_shown_only_to_those_who_ask_for_them(format: GeminiFormat, config: Json, wanted: bool) -> None:
    assert format.read(body(**config))[1].thoughts is wanted


def test_json_without_a_schema_is_asked_for() -> None:
    assert configured(responseMimeType="application/json") == {"response_format": {"type": "json_object"}}


SCHEMA = {
    "type": "OBJECT",
    "title": "Out",
    "propertyOrdering": ["name", "kind"],
    "required": ["name"],
    "properties": {
        "name": {"type": "STRING", "minLength": "1", "max_length": 5, "example": "x", "nullable": False},
        "kind": {"type": "STRING", "format": "enum", "enum": ["a", "b"], "nullable": True},
        "type": {"type": "ARRAY", "items": {"type": "INTEGER", "format": "int32"}, "minItems": "2"},
        "any_of": {"any_of": [{"type": "NUMBER"}, {"type": "BOOLEAN"}], "nullable": True},
        "free": {"type": "OBJECT", "additionalProperties": {"type": "TYPE_UNSPECIFIED"}},
        "more": {"type": "OBJECT", "additional_properties": False, "default": {"property_ordering": None}},
        "other": {"ref": "#/defs/x"},
    },
    "defs": {"x": {"type": "NULL"}},
}
JSON_SCHEMA = {
    "type": "object",
    "title": "Out",
    "required": ["name"],
    "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 5, "examples": ["x"]},
        "kind": {"type": ["string", "null"], "enum": ["a", "b", None]},
        "type": {"type": "array", "items": {"type": "integer", "format": "int32"}, "minItems": 2},
        "any_of": {"anyOf": [{"type": "number"}, {"type": "boolean"}, {"type": "null"}]},
        "free": {"type": "object", "additionalProperties": {}},
        "more": {"type": "object", "additionalProperties": False, "default": {"property_ordering": None}},
        "other": {"$ref": "#/defs/x"},
    },
    "$defs": {"x": {"type": "null"}},
}


@pytest.mark.parametrize("name", ["responseSchema", "response_schema"])
def test_a_schema_in_geminis_dialect_is_json_schema(name: str) -> None:
    asked = configured(responseMimeType="application/json", **{name: SCHEMA})
    assert asked == {
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "answer", "schema": JSON_SCHEMA, "strict": False},
        }
    }


@pytest.mark.parametrize("name", ["responseJsonSchema", "response_json_schema"])
def test_a_json_schema_is_passed_as_it_is(name: str) -> None:
    schema = {"type": "object", "properties": {"a": {"type": ["string", "null"], "nullable": True}}, "x-mine": None}
    assert configured(**{name: schema})["response_format"]["json_schema"]["schema"] == schema


# Tools

READ = {
    "name": "read",
    "description": "Reads.",
    "parameters": {"type": "OBJECT", "properties": {"p": {"type": "STRING"}}},
}
WRITE = {"name": "write", "parametersJsonSchema": {"type": "object", "propertyOrdering": []}}
LIST = {"name": "list", "parameters_json_schema": {"type": "object"}, "response": {"type": "STRING"}}


def function(name: str, **more: Any) -> Json:
    return {"type": "function", "function": {"name": name, **more}}


FUNCTIONS = {
    "read": function(
        "read", description="Reads.", parameters={"type": "object", "properties": {"p": {"type": "string"}}}
    ),
    "write": function("write", parameters={"type": "object", "propertyOrdering": []}),
    "list": function("list", parameters={"type": "object"}),
    "stop": function("stop"),
}


@pytest.mark.parametrize(
    ("tool", "declarations"), [("functionDeclarations", [READ, WRITE]), ("function_declarations", [READ, WRITE])]
)
def test_functions_are_those_of_a_chat_wherever_their_schema_stands(tool: str, declarations: list[Json]) -> None:
    sent = settings(tools=[{tool: declarations}, {tool: LIST}, {tool: [{"name": "stop", "parameters": None}]}])
    assert sent == {"tools": [FUNCTIONS[name] for name in ("read", "write", "list", "stop")]}
    with pytest.raises(InvalidRequest, match="tools cannot be used on a panel"):
        refuse(WHOLE.read(body(tools=[{tool: declarations}]))[0])


@pytest.mark.parametrize(
    "tool",
    ["googleSearch", "google_search", "codeExecution", "urlContext", "googleSearchRetrieval", "computerUse", "type"],
)
def test_a_tool_that_google_runs_is_kept_and_refused_by_a_panel(tool: str) -> None:
    request, _ = WHOLE.read(body(tools=[{tool: {}}]))
    (kept,) = request.settings["tools"]
    name = "googleSearch" if tool == "google_search" else tool
    assert kept == {name: {}, "type": name}
    with pytest.raises(InvalidRequest, match="tools cannot be used on a panel"):
        refuse(request)


@pytest.mark.parametrize("tools", [[], [{}], [{"functionDeclarations": []}], [{"googleSearch": None}]])
def test_an_empty_list_of_tools_is_no_tools_and_takes_what_steers_them_along(tools: list[Json]) -> None:
    assert settings(tools=tools, toolConfig={"functionCallingConfig": {"mode": "ANY"}}) == {}


@pytest.mark.parametrize(
    ("config", "choice", "names"),
    [
        ({}, None, ["read", "write"]),
        ({"mode": "MODE_UNSPECIFIED"}, None, ["read", "write"]),
        ({"mode": "AUTO"}, "auto", ["read", "write"]),
        ({"mode": "none"}, "none", ["read", "write"]),
        ({"mode": "ANY"}, "required", ["read", "write"]),
        ({"mode": "ANY", "allowedFunctionNames": ["write"]}, function("write"), ["write"]),
        ({"mode": "ANY", "allowed_function_names": ["read", "write"]}, "required", ["read", "write"]),
        ({"mode": "ANY", "allowed_function_names": ["of tomorrow", "write"]}, function("write"), ["write"]),
        ({"mode": "ANY", "allowedFunctionNames": []}, "required", ["read", "write"]),
        ({"mode": "VALIDATED", "allowedFunctionNames": ["read"]}, "auto", ["read"]),
        ({"mode": "AUTO", "allowedFunctionNames": ["read"]}, "auto", ["read", "write"]),
    ],
)
@pytest.mark.parametrize(
    "spelling", [("toolConfig", "functionCallingConfig"), ("tool_config", "function_calling_config")]
)
def test_which_functions_may_be_called(config: Json, choice: Any, names: list[str], spelling: tuple[str, str]) -> None:
    sent = settings(tools=[{"functionDeclarations": [READ, WRITE]}], **{spelling[0]: {spelling[1]: config}})
    assert sent.get("tool_choice") == choice
    assert [tool["function"]["name"] for tool in sent["tools"]] == names


@pytest.mark.parametrize("mode", ["ANY", "VALIDATED"])
def test_a_choice_among_functions_that_are_not_there_is_refused(mode: str) -> None:
    chosen = {"functionCallingConfig": {"mode": mode, "allowedFunctionNames": ["delete"]}}
    error = refused(body(tools=[{"functionDeclarations": [READ, WRITE]}], toolConfig=chosen))
    assert error.param == "toolConfig.functionCallingConfig.allowedFunctionNames"
    assert error.message.endswith("names none of the functions that are declared: read, write")


def test_a_name_that_only_google_takes_is_another_for_the_models_wherever_it_stands() -> None:
    chosen = {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["fs:read.all"]}}
    request, _ = WHOLE.read(
        {
            "contents": [
                HELLO,
                parts({"functionCall": {"name": "read"}}, {"functionCall": {"name": "fs:read.all"}}, role="model"),
                parts({"functionResponse": {"name": "fs:read.all"}}),
            ],
            "tools": [{"functionDeclarations": [READ, {"name": "fs:read.all"}]}],
            "toolConfig": chosen,
        }
    )
    (told,) = request.tools
    assert told.startswith("fs_read_all_")
    assert request.tools == {told: ToolName("fs:read.all")}
    assert request.settings["tools"] == [function(told)]
    assert request.settings["tool_choice"] == function(told)
    _, made, answered = request.messages
    assert [c["function"]["name"] for c in made["tool_calls"]] == ["read", told]
    assert answered["tool_call_id"] == made["tool_calls"][1]["id"]
    spoken = Spoken(calls=[ToolCall("a", told)])
    reply = json.loads(WHOLE.spoken(Envelope(PANEL, "x", 1, tools=request.tools), spoken, USAGE, {}))
    assert reply["candidates"][0]["content"]["parts"][0]["functionCall"]["name"] == "fs:read.all"


def test_one_function_of_one_is_not_forced_unless_it_is_named() -> None:
    chosen = {"functionCallingConfig": {"mode": "ANY"}}
    assert settings(tools=[{"functionDeclarations": READ}], toolConfig=chosen)["tool_choice"] == "required"


# Counting


def test_a_count_takes_contents_or_a_whole_request() -> None:
    wrapped = {"model": "models/bench/core", "contents": "Hello.", "systemInstruction": "Be brief."}
    plain, _ = COUNT.read({"contents": "Hello."})
    assert list(plain.messages) == [ASKED]
    for name in ("generateContentRequest", "generate_content_request"):
        whole, _ = COUNT.read({name: wrapped})
        assert list(whole.messages) == [{"role": "system", "content": "Be brief."}, ASKED]
    error = refused({"generateContentRequest": {"contents": [{"parts": [{"text": 5}]}]}}, COUNT)
    assert error.param == "generateContentRequest.contents.0.parts.0.text"
    assert refused({"generateContentRequest": wrapped}, WHOLE).param == "contents"


FIELDS = sorted({name for wrong, _ in WRONG for name in wrong} | {"model", "bench", "generateContentRequest"})


def names_in(value: object) -> set[str]:
    if isinstance(value, dict):
        return set(value) | names_in(list(value.values()))
    return {name for inner in value for name in names_in(inner)} if isinstance(value, list | tuple) else set()


KEYS = st.sampled_from(sorted(names_in([WRONG, SCHEMA, SENT, READ, WRITE, CALL])))
LIKELY = st.recursive(
    JSON | st.sampled_from(["user", "model", "OBJECT", "image/png", "ANY", "application/json", "12"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)


@pytest.mark.parametrize("format", [WHOLE, COUNT])
@given(st.dictionaries(st.sampled_from(FIELDS) | st.text(max_size=5), LIKELY))
def test_any_object_is_a_request_or_refused_with_words(format: GeminiFormat, document: Json) -> None:
    try:
        request, _ = format.read(document)
    except InvalidRequest as error:
        assert error.param  # noqa: PT017  it may be refused and need not be
    else:
        assert request.messages
        assert request.encoded_messages
        assert json.dumps(request.settings)


# Writing

TAIL = b'"modelVersion":"bench/core","responseId":"p20260301-120005-abcdefghijklmnop"'
COUNTS = b'"usageMetadata":{"promptTokenCount":30,"candidatesTokenCount":12,"totalTokenCount":42},'
BENCH = b',"bench":{"panel":"p20260301-120005-abcdefghijklmnop"}}'


def candidate(text: bytes, index: int = 0, reason: bytes = b"") -> bytes:
    ended = b'"finishReason":"%b",' % reason if reason else b""
    return b'{"content":{"role":"model","parts":[{"text":"%b"}]},%b"index":%d}' % (text, ended, index)


def chunk(*candidates: bytes) -> bytes:
    return b'{"candidates":[' + b",".join(candidates) + b"]," + TAIL + b"}"


def last(*candidates: bytes) -> bytes:
    return b'{"candidates":[' + b",".join(candidates) + b"]," + COUNTS + TAIL + BENCH


def test_a_whole_reply_byte_by_byte() -> None:
    written = WHOLE.whole(ENVELOPE, [Alternative("# Hello\n")], USAGE, {"panel": PANEL})
    assert written == last(candidate(b"# Hello\\n", reason=b"STOP"))


def test_alternatives_are_candidates_each_with_its_own_end() -> None:
    ends = ["stop", "length", "content_filter", "tool_calls", "of tomorrow"]
    written = WHOLE.whole(ENVELOPE, [Alternative("x", end) for end in ends], USAGE, {"panel": PANEL})
    words = [b"STOP", b"MAX_TOKENS", b"SAFETY", b"STOP", b"OTHER"]
    assert written == last(*(candidate(b"x", index, word) for index, word in enumerate(words)))


def stream(format: GeminiFormat) -> list[bytes]:
    written = format.stream(ENVELOPE)
    return [
        written.begin(),
        written.text("# Hello\n"),
        written.keep_alive(),
        written.done(),
        written.end(["stop"], USAGE, {"panel": PANEL}),
    ]


CHUNKS = [chunk(candidate(b"# Hello\\n")), chunk(candidate(b"")), last(candidate(b"", reason=b"STOP"))]


def test_a_stream_of_events_byte_by_byte() -> None:
    assert b"".join(stream(EVENTS)) == b"".join(b"data: " + chunk + b"\n\n" for chunk in CHUNKS)


def test_a_stream_that_is_an_array_byte_by_byte() -> None:
    assert b"".join(stream(ARRAY)) == b"[" + b",\n".join(CHUNKS) + b"]\n"


def test_a_keep_alive_is_a_chunk_without_text_also_before_the_first_word() -> None:
    assert EVENTS.stream(ENVELOPE).keep_alive() == b"data: " + chunk(candidate(b"")) + b"\n\n"
    assert ARRAY.stream(ENVELOPE).keep_alive() == b"[" + chunk(candidate(b""))


def test_alternatives_interleave_by_their_index_and_end_together() -> None:
    written = EVENTS.stream(ENVELOPE)
    pieces = [written.begin(0), written.begin(1), written.text("b", 1), written.text("a", 0), written.done(1)]
    pieces.append(written.end(["stop", "length"], USAGE, {"panel": PANEL}))
    ends = last(candidate(b"", 0, b"STOP"), candidate(b"", 1, b"MAX_TOKENS"))
    chunks = [chunk(candidate(b"b", 1)), chunk(candidate(b"a", 0)), ends]
    assert b"".join(pieces) == b"".join(b"data: " + chunk + b"\n\n" for chunk in chunks)


# Errors


def test_an_error_has_googles_shape() -> None:
    error = UnknownModel('there is no collection "x"', param="model", code="model_not_found")
    assert WHOLE.error(error) == (
        b'{"error":{"code":404,"message":"there is no collection \\"x\\"","status":"NOT_FOUND"}}'
    )


@pytest.mark.parametrize(
    ("status", "word"),
    [
        (400, "INVALID_ARGUMENT"),
        (401, "UNAUTHENTICATED"),
        (403, "PERMISSION_DENIED"),
        (404, "NOT_FOUND"),
        (408, "DEADLINE_EXCEEDED"),
        (413, "INVALID_ARGUMENT"),
        (415, "INVALID_ARGUMENT"),
        (429, "RESOURCE_EXHAUSTED"),
        (500, "INTERNAL"),
        (502, "UNAVAILABLE"),
        (503, "UNAVAILABLE"),
        (504, "DEADLINE_EXCEEDED"),
        (529, "INTERNAL"),
    ],
)
def test_an_error_has_googles_word_for_its_status(status: int, word: str) -> None:
    error = json.loads(WHOLE.error(Denied("no", status=status, type="x")))["error"]
    assert error == {"code": status, "message": "no", "status": word}


def test_how_long_to_wait_is_said_where_googles_clients_look() -> None:
    error = PanelFailed("no seat answered", status=429, retry_after=7)
    assert json.loads(WHOLE.error(error))["error"]["details"] == [
        {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "7s"}
    ]


def test_an_error_of_a_panel_carries_its_data() -> None:
    error = PanelFailed("no seat answered", status=502, data={"panel": PANEL})
    assert json.loads(WHOLE.error(error)) == {
        "error": {"code": 502, "message": "no seat answered", "status": "UNAVAILABLE"},
        "bench": {"panel": PANEL},
    }


ERROR = b'{"error":{"code":500,"message":"broken","status":"INTERNAL"}}'


def test_an_error_in_a_stream_is_a_chunk_that_ends_it() -> None:
    assert EVENTS.stream(ENVELOPE).error(BenchError("broken")) == b"data: " + ERROR + b"\n\n"
    assert ARRAY.stream(ENVELOPE).error(BenchError("broken")) == b"[" + ERROR + b"]\n"
    begun = ARRAY.stream(ENVELOPE)
    assert json.loads(begun.text("x") + begun.error(BenchError("broken")))[1] == json.loads(ERROR)


# Any text, any packets


def google_reads(packets: list[bytes]) -> list[Json]:
    """The chunks of a stream of events as Google's own SDK takes them off the wire."""

    def sent() -> Iterator[bytes]:
        yield from packets

    response = httpx.Response(200, content=sent())
    return list(HttpResponse({}, response).segments())


def array_reads(packets: list[bytes]) -> list[Json]:
    """The items of an array, each taken as soon as it is whole, as a reader of a streamed array does."""
    decoder, rest, items = json.JSONDecoder(), b"", []
    for packet in packets:
        rest += packet
        while (text := rest.lstrip(b"[,\n ")) and not text.startswith(b"]"):
            try:
                item, end = decoder.raw_decode(text.decode("utf-8", "surrogateescape"))
            except ValueError:
                break
            items.append(item)
            rest = text[len(text.decode("utf-8", "surrogateescape")[:end].encode("utf-8", "surrogateescape")) :]
    assert rest.strip() == b"]"
    assert items == json.loads(b"".join(packets))
    return items


LONG = '漢字 👩‍👩‍👧‍👦\u2028\u0085 e\u0301 "quoted\\" {[}] data: '


@pytest.mark.parametrize(("format", "reads"), [(EVENTS, google_reads), (ARRAY, array_reads)])
@pytest.mark.parametrize("end", ["end", "error"])
def test_a_stream_means_the_same_however_it_is_cut_into_packets(format: GeminiFormat, reads: Any, end: str) -> None:
    written = format.stream(ENVELOPE)
    whole = written.text(LONG) + written.keep_alive()
    whole += written.end(["stop"], USAGE, {}) if end == "end" else written.error(BenchError("broken"))
    expected = reads([whole])
    assert len(expected) == 3
    assert expected[0]["candidates"][0]["content"]["parts"][0]["text"] == LONG
    for cut in range(len(whole)):
        assert reads([whole[:cut], whole[cut:]]) == expected
    assert reads([whole[at : at + 1] for at in range(len(whole))]) == expected


@given(st.lists(TEXT, min_size=1, max_size=4))
def test_no_text_is_changed_and_none_breaks_a_line(texts: list[str]) -> None:
    written = EVENTS.stream(ENVELOPE)
    events = b"".join(written.text(text) for text in texts)
    assert len(events.decode().splitlines()) == 2 * len(texts)
    read = [chunk["candidates"][0]["content"]["parts"][0]["text"] for chunk in google_reads([events])]
    assert read == texts
    other = ARRAY.stream(ENVELOPE)
    array = b"".join([*(other.text(text) for text in texts), other.end(["stop"], USAGE, {})])
    items = json.loads(array)
    assert [item["candidates"][0]["content"]["parts"][0]["text"] for item in items] == [*texts, ""]
    whole = WHOLE.whole(ENVELOPE, [Alternative(text) for text in texts], USAGE, {})
    assert len(whole.decode().splitlines()) == 1
    assert [c["content"]["parts"][0]["text"] for c in json.loads(whole)["candidates"]] == texts


@given(TEXT.filter(bool))
def test_no_text_that_was_sent_is_changed(text: str) -> None:
    assert messages([parts({"text": text}), parts({"text": text}, role="model")], systemInstruction=text) == [
        {"role": "system", "content": text},
        {"role": "user", "content": text},
        {"role": "assistant", "content": text},
    ]


def test_googles_sdk_raises_its_own_error_for_ours() -> None:
    (said,) = google_reads([EVENTS.stream(ENVELOPE).error(PanelFailed("no seat answered", status=502))])
    # The SDK knows an error among chunks by how it is written, and its class by its number.
    assert json.dumps(said).startswith('{"error":')
    with pytest.raises(errors.ServerError) as raised:
        errors.APIError.raise_error(said["error"]["code"], said, None)
    assert (raised.value.code, raised.value.status) == (502, "UNAVAILABLE")


def test_a_spelling_that_is_null_does_not_hide_the_other() -> None:
    request, _ = WHOLE.read(
        {
            "contents": "x",
            "systemInstruction": None,
            "system_instruction": "KEEP",
            "generationConfig": None,
            "generation_config": {"temperature": 0.5, "topP": None, "top_p": 0.9},
        }
    )
    assert request.messages[0] == {"role": "system", "content": "KEEP"}
    assert request.settings == {"temperature": 0.5, "top_p": 0.9}
