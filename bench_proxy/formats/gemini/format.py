"""Google's Gemini API: generateContent, streamGenerateContent, countTokens.

https://ai.google.dev/api/generate-content
https://ai.google.dev/api/tokens
https://ai.google.dev/api/caching#Schema

Every field has two spellings, `maxOutputTokens` and `max_output_tokens`, and where a list is due one item may stand
alone, as Google's own parser takes it.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import groupby
from typing import Annotated, Any, Literal
from urllib.parse import parse_qs

import orjson
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel

from bench_proxy.errors import BenchError, InvalidRequest
from bench_proxy.formats import efforts, sse
from bench_proxy.formats.base import Alternative, Data, Envelope, Place, Spoken, Usage, Wish, dumps
from bench_proxy.formats.brief import LONGEST_ECHO, collection_of, is_bench_model
from bench_proxy.formats.calls import Calls
from bench_proxy.formats.chat.parts import flat, function_tool, image_part, schema_format, text_part
from bench_proxy.formats.checking import MOST_MESSAGES, MOST_PARTS, Many, Number, Whole, checked, given, refused
from bench_proxy.formats.function_names import known, renamed
from bench_proxy.formats.gemini.relay import GeminiRelaying
from bench_proxy.formats.gemini.replies import Chunks, candidate, error_body, reply, speech
from bench_proxy.formats.gemini.turns import GeminiTurn, spoken_reply
from bench_proxy.formats.request import ChatRequest, Json


def _listed(value: object) -> object:
    return value if value is None or isinstance(value, list) else [value]


def _content(value: object) -> object:
    return {"parts": [{"text": value}]} if isinstance(value, str) else value


def _part(value: object) -> object:
    return {"text": value} if isinstance(value, str) else value


ONE_OR_MANY = BeforeValidator(_listed)
TEXT_IS_CONTENT = BeforeValidator(_content)
TEXT_IS_A_PART = BeforeValidator(_part)


class Fields(BaseModel):
    """Takes both spellings, and tells what is wrong in the one that was sent."""

    model_config = ConfigDict(strict=True, alias_generator=to_camel, validate_by_alias=True, validate_by_name=True)

    @model_validator(mode="before")
    @classmethod
    def _of_two_spellings(cls, sent: Any) -> Any:
        """The one that says something counts."""
        if not isinstance(sent, dict):
            return sent
        said = {to_camel(name) for name, value in sent.items() if value is not None}
        return {name: value for name, value in sent.items() if value is not None or to_camel(name) not in said}


class Blob(Fields):
    mime_type: str
    data: str
    display_name: str | None = None


class FileData(Fields):
    file_uri: str
    mime_type: str | None = None


class FunctionCall(Fields):
    id: str | None = None
    name: str
    args: dict[str, Any] | None = None


class FunctionResponse(Fields):
    id: str | None = None
    name: str
    response: dict[str, Any] | None = None
    parts: Annotated[Many["Part"], Field(max_length=MOST_PARTS), ONE_OR_MANY] | None = None


class Part(Fields):
    model_config = ConfigDict(extra="allow")
    text: str | None = None
    thought: bool | None = None
    inline_data: Blob | None = None
    file_data: FileData | None = None
    function_call: FunctionCall | None = None
    function_response: FunctionResponse | None = None


class Content(Fields):
    role: Literal["user", "model", "function", "tool"] | None = None
    parts: Annotated[Many[Annotated[Part, TEXT_IS_A_PART]], Field(max_length=MOST_PARTS), ONE_OR_MANY]


class TextPart(Fields):
    text: str


class SystemInstruction(Fields):
    parts: Annotated[Many[Annotated[TextPart, TEXT_IS_A_PART]], Field(max_length=MOST_PARTS), ONE_OR_MANY]


def _only_text(modalities: list[str]) -> list[str]:
    for modality in modalities:
        if modality.upper() not in {"TEXT", "MODALITY_UNSPECIFIED"}:
            raise ValueError(f"a panel answers with text, not with {modality[:40]!r}; leave it out")
    return modalities


def _text_or_json(mime: str) -> str:
    if mime.lower() not in {"text/plain", "application/json"}:
        raise ValueError(f'should be "text/plain" or "application/json", not {mime[:80]!r}')
    return mime.lower()


def _effort(level: str) -> str | None:
    if level.lower() == "thinking_level_unspecified":
        return None
    if level.lower() not in {"minimal", "low", "medium", "high"}:
        raise ValueError(f"should be MINIMAL, LOW, MEDIUM or HIGH, not {level[:40]!r}")
    return level.lower()


def _mode(mode: str) -> str:
    if mode.upper() not in {"MODE_UNSPECIFIED", "AUTO", "ANY", "NONE", "VALIDATED"}:
        raise ValueError(f"should be AUTO, ANY, NONE or VALIDATED, not {mode[:40]!r}")
    return mode.upper()


class ThinkingConfig(Fields):
    """`include_thoughts` is for route mode: a panel shows answers."""

    include_thoughts: bool | None = None
    thinking_budget: Annotated[Whole, Field(ge=-1)] | None = None
    thinking_level: Annotated[str, AfterValidator(_effort)] | None = None


class GenerationConfig(Fields):
    temperature: Number | None = None
    top_p: Number | None = None
    top_k: Annotated[Whole, Field(ge=0)] | None = None
    max_output_tokens: Annotated[Whole, Field(ge=1)] | None = None
    stop_sequences: Annotated[Many[str], ONE_OR_MANY] | None = None
    candidate_count: Annotated[Whole, Field(ge=1)] | None = None
    seed: Whole | None = None
    presence_penalty: Number | None = None
    frequency_penalty: Number | None = None
    response_logprobs: bool | None = None
    logprobs: Whole | None = None
    response_mime_type: Annotated[str, AfterValidator(_text_or_json)] | None = None
    response_schema: dict[str, Any] | None = None
    response_json_schema: dict[str, Any] | None = None
    response_modalities: Annotated[Many[str], ONE_OR_MANY, AfterValidator(_only_text)] | None = None
    thinking_config: ThinkingConfig | None = None


class FunctionDeclaration(Fields):
    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    parameters_json_schema: dict[str, Any] | None = None


class Tool(Fields):
    """What is not a list of functions is run by Google alone."""

    model_config = ConfigDict(extra="allow")
    function_declarations: Annotated[Many[FunctionDeclaration], ONE_OR_MANY] | None = None


class FunctionCallingConfig(Fields):
    mode: Annotated[str, AfterValidator(_mode)] | None = None
    allowed_function_names: Annotated[Many[str], ONE_OR_MANY] | None = None


class ToolConfig(Fields):
    function_calling_config: FunctionCallingConfig | None = None


class Asked(Fields):
    """All other fields are left out: `safetySettings`, `labels`, `serviceTier` and the like are Google's own."""

    contents: Annotated[
        Many[Annotated[Content, TEXT_IS_CONTENT]], Field(min_length=1, max_length=MOST_MESSAGES), ONE_OR_MANY
    ]
    system_instruction: Annotated[SystemInstruction, TEXT_IS_CONTENT] | None = None
    generation_config: GenerationConfig | None = None
    tools: Annotated[Many[Tool], ONE_OR_MANY] | None = None
    tool_config: ToolConfig | None = None
    cached_content: Annotated[
        str | None, refused("nothing is stored here; send the whole content with each request")
    ] = None


class Counted(Fields):
    """How a whole request is counted; contents alone are counted by their own."""

    generate_content_request: Asked


Manner = Literal["whole", "events", "array", "count"]

# Possessive, so that a long address that is none costs one pass.
_ADDRESS = re.compile(
    r"/(?:v1beta/|v1/)?models/(?:models/)*+(?P<model>.+):(?P<action>generateContent|streamGenerateContent|countTokens)"
)


def place(path: str, query: bytes) -> Place | None:
    """What a POST to this path asks for; None when it is not for one of our models. The path is already decoded."""
    address = _ADDRESS.fullmatch(path)
    if address is None or not is_bench_model(model := address["model"]):
        return None
    # LiteLLM knows no /v1 here, and takes `?key=` only where content is generated.
    host_path = f"/v1beta/models/{f'bench/{collection_of(model)}'.rstrip('/')}:generateContent"
    match address["action"]:
        case "generateContent":
            return Place(WHOLE, model, host_path=host_path, native=NATIVE)
        case "countTokens":
            return Place(COUNT, model, count=_count, host_path=host_path)
        case _:
            events = parse_qs(query.decode("latin-1")).get("alt", [""])[-1] == "sse"
            return Place(EVENTS if events else ARRAY, model, host_path=host_path, native=NATIVE)


def _count(tokens: int) -> bytes:
    return dumps({"totalTokens": tokens, "bench": {"estimate": True}})


class GeminiFormat:
    """Google says in the address, not in the body, how the reply should come."""

    content_type = "application/json"

    def __init__(self, manner: Manner) -> None:
        self._manner = manner
        self.stream_content_type = sse.CONTENT_TYPE if manner == "events" else "application/json"

    def read(self, body: Data) -> tuple[ChatRequest, Wish]:
        asked = self._asked(body)
        messages = _messages(asked)
        if not any(message["role"] != "system" for message in messages):
            raise InvalidRequest('"contents": there is no text and no image in them', param="contents")
        thinking = (asked.generation_config or GenerationConfig()).thinking_config or ThinkingConfig()
        # Google shows no thoughts unless it is told to.
        wish = Wish(stream=self._manner in {"events", "array"}, thoughts=thinking.include_thoughts is True)
        return ChatRequest(messages, _settings(asked), renamed(f.name for f in _declared(asked))), wish

    def _asked(self, body: Data) -> Asked:
        wrapped = ("generateContentRequest", "generate_content_request")
        if self._manner == "count" and any(body.get(name) is not None for name in wrapped):
            return checked(Counted, body).generate_content_request
        return checked(Asked, body)

    def whole(self, envelope: Envelope, answers: Sequence[Alternative], usage: Usage, data: Data) -> bytes:
        candidates = [candidate([speech(a.text)], index, a.finish_reason) for index, a in enumerate(answers)]
        return dumps(reply(envelope, candidates, usage, data))

    def stream(self, envelope: Envelope) -> "GeminiStream":
        return GeminiStream(envelope, events=self._manner == "events")

    def spoken(self, envelope: Envelope, spoken: Spoken, usage: Usage, data: Data) -> bytes:
        return spoken_reply(envelope, spoken, usage, data)

    def turn(self, envelope: Envelope) -> GeminiTurn:
        return GeminiTurn(envelope, events=self._manner == "events")

    def error(self, error: BenchError) -> bytes:
        return dumps(error_body(error))


WHOLE, EVENTS, ARRAY, COUNT = (GeminiFormat(manner) for manner in ("whole", "events", "array", "count"))
NATIVE = GeminiRelaying()


class GeminiStream:
    """A panel's answers as chunks that are replies of their own."""

    def __init__(self, envelope: Envelope, *, events: bool) -> None:
        self._envelope = envelope
        self._chunks = Chunks(events=events)

    def begin(self, index: int = 0) -> bytes:
        return b""

    def text(self, text: str, index: int = 0) -> bytes:
        return self._chunks.chunk(reply(self._envelope, [candidate([speech(text)], index)]))

    def done(self, index: int = 0) -> bytes:
        return b""

    def end(self, finish_reasons: Sequence[str], usage: Usage, data: Data) -> bytes:
        last = [candidate([speech("")], index, reason) for index, reason in enumerate(finish_reasons)]
        return self._chunks.chunk(reply(self._envelope, last, usage, data)) + self._chunks.close()

    def keep_alive(self) -> bytes:
        # Google's SDKs take nothing but data for an event: a comment ends the reply with an error.
        return self.text("")

    def error(self, error: BenchError) -> bytes:
        return self._chunks.chunk(error_body(error)) + self._chunks.close()


def _messages(asked: Asked) -> list[Json]:
    """The contents as chat messages. What a model said in many pieces, as a stream leaves it in a history, is one."""
    messages: list[Json] = []
    if asked.system_instruction is not None:
        parts = [text_part(part.text) for part in asked.system_instruction.parts if part.text]
        if parts:
            messages.append({"role": "system", "content": flat(parts)})
    calls = Calls()
    for by_model, contents in groupby(asked.contents, _is_by_model):
        if by_model:
            messages += _said(calls, [part for content in contents for part in content.parts])
        else:
            messages += [message for content in contents for message in _sent(calls, content.parts)]
    return messages


def _is_by_model(content: Content) -> bool:
    return content.role == "model"


def _called(calls: Calls, parts: Sequence[Part]) -> list[Json]:
    called = (part.function_call for part in parts if part.function_call)
    return calls.made((call.id, known(call.name), orjson.dumps(call.args or {}).decode()) for call in called)


def _results(calls: Calls, parts: Sequence[Part]) -> list[Json]:
    return [_result(calls, part.function_response) for part in parts if part.function_response]


def _result(calls: Calls, result: FunctionResponse) -> Json:
    content = flat([text_part(orjson.dumps(result.response or {}).decode()), *_parts(result.parts or ())])
    return {"role": "tool", "tool_call_id": calls.answered(result.id, known(result.name)), "content": content}


def _said(calls: Calls, parts: Sequence[Part]) -> list[Json]:
    """What the model said and called."""
    said = _parts(parts)
    if all(part["type"] == "text" for part in said):
        said = [text_part("".join(part["text"] for part in said))] if said else []
    message: dict[str, Any] = {"role": "assistant", "content": flat(said) if said else None}
    if called := _called(calls, parts):
        message["tool_calls"] = called
    return [*([message] if said or called else []), *_results(calls, parts)]


def _sent(calls: Calls, parts: Sequence[Part]) -> list[Json]:
    """What the user sent. Results come first: in a chat they follow the calls at once."""
    messages = _results(calls, parts)
    if called := _called(calls, parts):
        messages.append({"role": "assistant", "content": None, "tool_calls": called})
    if sent := _parts(parts):
        messages.append({"role": "user", "content": flat(sent)})
    return messages


_KINDS = ("text", "inline_data", "file_data", "function_call", "function_response")
"""What a part is one of. One that has none of these is of a kind that chat does not know."""

_NOTES = frozenset({"thoughtSignature", "mediaResolution", "mediaProcessing"})
"""Fields beside what a part holds; so are all whose name ends with `Metadata`."""


def _parts(parts: Iterable[Part]) -> list[Json]:
    """The parts in the chat's form. Thoughts are left out: they are their maker's."""
    return [found for part in parts if not part.thought for found in _chat_parts(part)]


def _chat_parts(part: Part) -> Iterator[Json]:
    """Mostly one; none of an empty part, and of calls and results, which are messages of their own."""
    if part.text:
        yield text_part(part.text)
    if part.inline_data is not None:
        yield _inline(part.inline_data)
    if part.file_data is not None:
        yield _file(part.file_data)
    if all(getattr(part, kind) is None for kind in _KINDS):
        for key, value in (part.model_extra or {}).items():
            if value is not None and to_camel(key) not in _NOTES and not to_camel(key).endswith("Metadata"):
                yield {key: value, "type": key}


_AUDIO = {"mpeg": "mp3", "x-wav": "wav", "wave": "wav", "vnd.wave": "wav"}
"""A kind of audio -> chat's word for it, where they differ."""

_STANDARD_ALPHABET = str.maketrans("-_", "+/")


def _inline(blob: Blob) -> Json:
    kind, _, subtype = blob.mime_type.lower().partition("/")
    # Google's Python SDK sends base64 in the alphabet for addresses, in which data: URLs are not written.
    data = blob.data.translate(_STANDARD_ALPHABET)
    if kind == "image":
        return image_part(f"data:image/{subtype};base64,{data}")
    if kind == "audio":
        return {"type": "input_audio", "input_audio": {"data": data, "format": _AUDIO.get(subtype, subtype)}}
    name = {"filename": blob.display_name} if blob.display_name else {}
    return {"type": "file", "file": {"file_data": f"data:{blob.mime_type};base64,{data}", **name}}


_IMAGE_NAME = re.compile(r"[^?#]+\.(?:png|jpe?g|gif|webp|bmp|heic|heif|avif)(?:[?#]|$)", re.IGNORECASE)
_UPLOADS = "https://generativelanguage.googleapis.com/"


def _file(file: FileData) -> Json:
    """An image at an address is one for every model; what was uploaded to Google is a file that only Google has."""
    uri = file.file_uri
    is_image = file.mime_type.lower().startswith("image/") if file.mime_type else _IMAGE_NAME.match(uri) is not None
    if is_image and uri.lower().startswith(("http://", "https://")) and not uri.lower().startswith(_UPLOADS):
        return image_part(uri)
    return {"type": "file", "file": {"file_id": uri, **({"format": file.mime_type} if file.mime_type else {})}}


def _settings(asked: Asked) -> Json:
    config = asked.generation_config or GenerationConfig()
    settings = {
        "temperature": config.temperature,
        "top_p": config.top_p,
        "top_k": config.top_k,
        "max_tokens": config.max_output_tokens,
        "stop": config.stop_sequences or None,
        "n": config.candidate_count,
        "seed": config.seed,
        "presence_penalty": config.presence_penalty,
        "frequency_penalty": config.frequency_penalty,
        "logprobs": config.response_logprobs,
        "top_logprobs": config.logprobs,
        "response_format": _response_format(config),
        "reasoning_effort": _reasoning_effort(config.thinking_config),
    }
    return given(settings) | _tool_settings(asked)


def _response_format(config: GenerationConfig) -> Json | None:
    schema: Json | None = config.response_json_schema
    if schema is None and config.response_schema is not None:
        schema = _json_schema(config.response_schema)
    if schema is not None:
        return schema_format(schema)
    return {"type": "json_object"} if config.response_mime_type == "application/json" else None


def _reasoning_effort(config: ThinkingConfig | None) -> str | None:
    if config is None:
        return None
    return config.thinking_level or efforts.of_budget(config.thinking_budget, efforts.GOOGLES)


_TOOL_CHOICES = {"AUTO": "auto", "VALIDATED": "auto", "ANY": "required", "NONE": "none"}


def _tool_settings(asked: Asked) -> dict[str, Any]:
    """Functions as chat has them; which of them may be called is said by sending no others."""
    config = (asked.tool_config and asked.tool_config.function_calling_config) or FunctionCallingConfig()
    allowed = set(config.allowed_function_names or ()) if config.mode in {"ANY", "VALIDATED"} else set()
    functions = [_function(declaration) for declaration in _callable(_declared(asked), allowed)]
    theirs = [
        {to_camel(key): value, "type": to_camel(key)}
        for tool in asked.tools or ()
        for key, value in (tool.model_extra or {}).items()
        if value is not None
    ]
    if not functions and not theirs:
        return {}
    settings: dict[str, Any] = {"tools": functions + theirs}
    if config.mode == "ANY" and allowed and len(functions) == 1:
        settings["tool_choice"] = {"type": "function", "function": {"name": functions[0]["function"]["name"]}}
    elif choice := _TOOL_CHOICES.get(config.mode or ""):
        settings["tool_choice"] = choice
    return settings


def _declared(asked: Asked) -> list[FunctionDeclaration]:
    return [function for tool in asked.tools or () for function in tool.function_declarations or ()]


def _callable(declared: Sequence[FunctionDeclaration], allowed: Collection[str]) -> Sequence[FunctionDeclaration]:
    """Those that may be called: all, where none is named. Raises InvalidRequest when only others are named."""
    found = [declaration for declaration in declared if declaration.name in allowed]
    if found or not allowed or not declared:
        return found or declared
    field = "toolConfig.functionCallingConfig.allowedFunctionNames"
    there = ", ".join(declaration.name for declaration in declared)[:LONGEST_ECHO]
    raise InvalidRequest(f'"{field}": names none of the functions that are declared: {there}', param=field)


def _function(declaration: FunctionDeclaration) -> Json:
    parameters: Json | None = declaration.parameters_json_schema
    if parameters is None and declaration.parameters is not None:
        parameters = _json_schema(declaration.parameters)
    return function_tool(known(declaration.name), declaration.description, parameters)


_SCHEMA_NAMES = {"ref": "$ref", "defs": "$defs"}
_OF_NAMES = frozenset({"properties", "$defs"})
_OF_ONE = frozenset({"items", "additionalProperties"})
_OF_MANY = frozenset({"anyOf", "oneOf", "allOf", "prefixItems"})
_BOUNDS = frozenset(f"{bound}{what}" for bound in ("min", "max") for what in ("Items", "Length", "Properties"))


def _json_schema(schema: Json) -> Json:
    """A schema in Gemini's dialect of OpenAPI as JSON Schema, which knows it by lower-case types and no `nullable`."""
    found: dict[str, Any] = {}
    for name, value in schema.items():
        key = name if name.startswith("$") else to_camel(name)
        key = _SCHEMA_NAMES.get(key, key)
        if value is not None and (translated := _schema_value(key, value)) is not None:
            found[key] = translated
    found.pop("propertyOrdering", None)
    if "example" in found:
        found["examples"] = [found.pop("example")]
    return _or_null(found) if found.pop("nullable", None) is True else found


def _schema_value(key: str, value: Any) -> Any:
    """None for what says nothing in JSON Schema."""
    if key == "type" and isinstance(value, str):
        return None if value == "TYPE_UNSPECIFIED" else value.lower()
    if key == "format" and value == "enum":
        return None
    if key in _OF_NAMES and isinstance(value, dict):
        return {name: _inner(inner) for name, inner in value.items()}
    if key in _OF_ONE:
        return _inner(value)
    if key in _OF_MANY and isinstance(value, list):
        return [_inner(inner) for inner in value]
    if key in _BOUNDS and isinstance(value, str) and re.fullmatch(r"[0-9]{1,18}", value):
        return int(value)  # Google writes 64-bit integers as strings
    return value


def _inner(schema: Any) -> Any:
    return _json_schema(schema) if isinstance(schema, dict) else schema


def _or_null(schema: dict[str, Any]) -> Json:
    if isinstance(schema.get("type"), str):
        schema["type"] = [schema["type"], "null"]
    if isinstance(schema.get("enum"), list):
        schema["enum"] = [*schema["enum"], None]
    if isinstance(schema.get("anyOf"), list):
        schema["anyOf"] = [*schema["anyOf"], {"type": "null"}]
    return schema
