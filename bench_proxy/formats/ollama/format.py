"""Ollama's own API: `/api/chat` and `/api/generate`.

https://docs.ollama.com/api, and https://github.com/ollama/ollama/blob/main/docs/api.md for loading and unloading.
"""

import base64
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, Field

from bench_proxy.errors import BenchError
from bench_proxy.formats import efforts
from bench_proxy.formats.base import Alternative, Data, Envelope, Spoken, Usage, Wish, dumps
from bench_proxy.formats.calls import Calls
from bench_proxy.formats.chat.parts import flat, image_part, schema_format, text_part
from bench_proxy.formats.checking import (
    MOST_MESSAGES,
    MOST_PARTS,
    NO_GAPS,
    Many,
    Number,
    Strict,
    Whole,
    checked,
    given,
    refused,
)
from bench_proxy.formats.function_names import known, renamed
from bench_proxy.formats.ollama.lines import head, last, line, piece
from bench_proxy.formats.ollama.turns import OllamaTurn, spoken_reply
from bench_proxy.formats.request import ChatRequest, Json

LEVELS = ("low", "medium", "high", "max")

MOST_CALLS = 128
"""Tool calls of one message."""

SIGNATURES = ((b"\x89PNG", "png"), (b"\xff\xd8\xff", "jpeg"), (b"GIF8", "gif"), (b"RIFF", "webp"))
HEAD = 24
"""Characters of base64 that hold an image's whole signature."""
BASE64 = re.compile(r"[A-Za-z0-9+/]+={0,2}")
NO_TIME = re.compile(r"0+(?:\.0*)?[a-zµ]*")


def _data_url(image: str) -> str:
    """Ollama takes bare base64, of which the first bytes say what it is; some clients send whole data URLs."""
    if image.startswith("data:image/"):
        return image
    data = image.replace("\n", "").replace("\r", "")
    encoded = len(data) % 4 == 0 and BASE64.fullmatch(data)
    kind = _kind(base64.b64decode(data[:HEAD])) if encoded else None
    if kind is None:
        raise ValueError("is no picture that can be shown to the models; send a PNG, JPEG, GIF or WebP file as base64")
    return f"data:image/{kind};base64,{data}"


def _kind(head: bytes) -> str | None:
    kind = next((kind for signature, kind in SIGNATURES if head.startswith(signature)), None)
    return None if kind == "webp" and head[8:12] != b"WEBP" else kind


def _response_format(wanted: Any) -> Json | None:
    if wanted is None or wanted == "":
        return None
    if wanted == "json":
        return {"type": "json_object"}
    if isinstance(wanted, dict):
        return schema_format(wanted)
    raise ValueError('should be "json" or a JSON schema')


def _think(think: Any) -> bool | str | None:
    if think is None or isinstance(think, bool) or (isinstance(think, str) and think in LEVELS):
        return think
    raise ValueError(f"should be true, false, or one of: {', '.join(LEVELS)}")


def _effort(think: bool | str | None) -> str | None:
    """Only a level says how much; without one each model thinks as it does by itself."""
    return efforts.of_level(think) if isinstance(think, str) else None


def _unloads(keep_alive: Any) -> bool:
    """Whether the model is to be forgotten at once: 0, as a number or as a duration such as "0s"."""
    if keep_alive is None:
        return False
    if isinstance(keep_alive, bool) or not isinstance(keep_alive, int | float | str):
        raise ValueError('should be seconds, or a duration such as "5m"')
    return NO_TIME.fullmatch(keep_alive) is not None if isinstance(keep_alive, str) else keep_alive == 0


def _arguments(given: Any) -> str:
    """The chat holds them as text."""
    if isinstance(given, str):
        return given
    if given is None or isinstance(given, dict):
        return dumps(given or {}).decode()
    raise ValueError("should be an object")


Images = Annotated[Many[Annotated[str, AfterValidator(_data_url)]], Field(max_length=MOST_PARTS)]


class Options(Strict):
    """The options that other vendors have too. Those of the machine which runs a model (`num_ctx`, `num_gpu`,
    `mirostat`…) are left out: a member has its own.
    """

    num_predict: Whole | None = None
    temperature: Number | None = None
    top_p: Number | None = None
    top_k: Whole | None = None
    seed: Whole | None = None
    stop: str | Many[str] | None = None
    presence_penalty: Number | None = None
    frequency_penalty: Number | None = None

    def settings(self) -> dict[str, Any]:
        settings = {**self.model_dump(exclude={"num_predict"}), "stop": self.stop or None}
        # Ollama's -1 and -2 are no limit.
        limit = self.num_predict if self.num_predict is not None and self.num_predict > 0 else None
        return {**settings, "max_tokens": limit}


class Asked(Strict):
    """What both routes take. Unknown fields are left out."""

    stream: bool | None = None
    format: Annotated[Any, AfterValidator(_response_format)] = None
    think: Annotated[Any, AfterValidator(_think)] = None
    keep_alive: Annotated[Any, AfterValidator(_unloads)] = False
    options: Options | None = None
    logprobs: bool | None = None
    top_logprobs: Whole | None = None

    def settings(self) -> dict[str, Any]:
        said = {
            **(self.options or Options()).settings(),
            "response_format": self.format,
            "reasoning_effort": _effort(self.think),
            "logprobs": self.logprobs or None,
            "top_logprobs": self.top_logprobs if self.logprobs else None,
        }
        return given(said)


class CalledFunction(BaseModel):
    name: str
    arguments: Annotated[Any, AfterValidator(_arguments)] = "{}"


class ToolCall(BaseModel):
    id: str | None = None
    function: CalledFunction


class Message(BaseModel):
    role: str
    content: str | None = None
    images: Images | None = None
    tool_calls: Annotated[Many[ToolCall], Field(max_length=MOST_CALLS)] | None = None
    tool_name: str | None = None
    tool_call_id: str | None = None


class ChatBody(Asked):
    messages: Annotated[Many[Message], Field(max_length=MOST_MESSAGES)] | None = None
    tools: Many[dict[str, Any]] | None = None


class GenerateBody(Asked):
    prompt: str | None = None
    system: str | None = None
    images: Images | None = None
    context: Annotated[
        Any, refused("is not kept here: send the whole conversation, as messages, to /api/chat instead")
    ] = None
    suffix: Annotated[str | None, NO_GAPS] = None
    template: Annotated[str | None, refused("each model here has its own template; leave it out")] = None
    raw: Annotated[
        bool | None, refused("the models here take messages and no finished prompt; leave raw and its marks out")
    ] = None


class OllamaFormat(ABC):
    """What the two routes have in common: all but the body, and where a line has its text."""

    content_type = "application/json"
    stream_content_type = "application/x-ndjson"

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        """`now` in Unix seconds: when a model was loaded."""
        self._now = now

    @abstractmethod
    def read(self, body: Data) -> tuple[ChatRequest, Wish]: ...

    @abstractmethod
    def said(self, text: str, thinking: str = "", calls: Sequence[Data] = ()) -> Data:
        """What a line holds for a piece of text, one of thinking, and whole calls."""

    def whole(self, envelope: Envelope, answers: Sequence[Alternative], usage: Usage, data: Data) -> bytes:
        # There is one, since this format says that it has no room for more.
        text = "".join(answer.text for answer in answers)
        return dumps(last(envelope, self.said(text), answers[-1].finish_reason, usage, data))

    def stream(self, envelope: Envelope) -> "OllamaStream":
        return OllamaStream(envelope, self.said)

    def spoken(self, envelope: Envelope, spoken: Spoken, usage: Usage, data: Data) -> bytes:
        return spoken_reply(envelope, self.said, spoken, usage, data)

    def turn(self, envelope: Envelope) -> OllamaTurn:
        return OllamaTurn(envelope, self.said)

    def error(self, error: BenchError) -> bytes:
        return dumps({"error": error.message})

    def _nothing_asked(self, body: Data, asked: Asked) -> tuple[ChatRequest, Wish]:
        """Clients load a model before they use it, and unload it afterwards; here it is always there."""
        envelope = Envelope("", str(body.get("model", "")), int(self._now()))
        reason = "unload" if asked.keep_alive else "load"
        ready = dumps({**head(envelope), **self.said(""), "done": True, "done_reason": reason})
        return ChatRequest([], {}), Wish(stream=False, alternatives=False, ready=ready)


class OllamaChat(OllamaFormat):
    def read(self, body: Data) -> tuple[ChatRequest, Wish]:
        asked = checked(ChatBody, body)
        if not asked.messages:
            return self._nothing_asked(body, asked)
        settings = asked.settings()
        if asked.tools:
            settings["tools"] = [_tool(tool) for tool in asked.tools]
        names = renamed(name for tool in asked.tools or () if (name := _name(tool)) is not None)
        return ChatRequest(_conversation(asked.messages), settings, names), _wish(asked)

    def said(self, text: str, thinking: str = "", calls: Sequence[Data] = ()) -> Data:
        message: dict[str, Any] = {"role": "assistant", "content": text}
        if thinking:
            message["thinking"] = thinking
        if calls:
            message["tool_calls"] = calls
        return {"message": message}


class OllamaGenerate(OllamaFormat):
    def read(self, body: Data) -> tuple[ChatRequest, Wish]:
        asked = checked(GenerateBody, body)
        if not asked.prompt and not asked.images:
            return self._nothing_asked(body, asked)
        system = [{"role": "system", "content": asked.system}] if asked.system else []
        user = {"role": "user", "content": _content(asked.prompt, asked.images)}
        return ChatRequest([*system, user], asked.settings()), _wish(asked)

    def said(self, text: str, thinking: str = "", calls: Sequence[Data] = ()) -> Data:
        # A prompt is sent without tools, and its answer has no place for a call.
        return {"response": text, **({"thinking": thinking} if thinking else {})}


class OllamaStream:
    """A panel's reply, line by line. Only one alternative ever begins."""

    def __init__(self, envelope: Envelope, said: Callable[[str], Data]) -> None:
        self._envelope = envelope
        self._said = said

    def begin(self, index: int = 0) -> bytes:
        return self.text("")

    def text(self, text: str, index: int = 0) -> bytes:
        return piece(self._envelope, self._said(text))

    def done(self, index: int = 0) -> bytes:
        return b""

    def end(self, finish_reasons: Sequence[str], usage: Usage, data: Data) -> bytes:
        return line(last(self._envelope, self._said(""), finish_reasons[-1], usage, data))

    def keep_alive(self) -> bytes:
        # Clients read every line as JSON, an empty one too.
        return self.text("")

    def error(self, error: BenchError) -> bytes:
        return line({"error": error.message})


def _name(tool: Data) -> str | None:
    function = tool.get("function")
    name = function.get("name") if isinstance(function, dict) else None
    return name if isinstance(name, str) else None


def _tool(tool: Data) -> Data:
    told = {**tool, "type": tool.get("type") or "function"}
    if (name := _name(tool)) is not None:
        told["function"] = {**tool["function"], "name": known(name)}
    return told


def _wish(asked: Asked) -> Wish:
    """Ollama's models think, and show it, unless they are told not to."""
    return Wish(stream=asked.stream is not False, alternatives=False, thoughts=asked.think is not False)


def _conversation(messages: Sequence[Message]) -> list[Data]:
    calls = Calls()
    return [_message(message, calls) for message in messages]


def _message(message: Message, calls: Calls) -> Data:
    content = _content(message.content, message.images)
    if message.role == "tool":
        return {
            "role": "tool",
            "tool_call_id": calls.answered(message.tool_call_id, known(message.tool_name or "")),
            "content": content,
        }
    if message.tool_calls:
        made = calls.made((call.id, known(call.function.name), call.function.arguments) for call in message.tool_calls)
        # Some vendors refuse empty text beside a call.
        return {"role": message.role, "content": content or None, "tool_calls": made}
    return {"role": message.role, "content": content}


def _content(text: str | None, images: Sequence[str] | None) -> Any:
    return flat([*([text_part(text)] if text else []), *(image_part(url) for url in images or ())])
