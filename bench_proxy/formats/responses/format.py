"""OpenAI Responses.

https://platform.openai.com/docs/api-reference/responses and, for the events of a stream,
https://platform.openai.com/docs/api-reference/responses-streaming

Nothing is stored here: a request holds its whole conversation, and what points to a stored one is refused.
"""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from bench_proxy.errors import BenchError, InvalidRequest
from bench_proxy.formats import sse
from bench_proxy.formats.base import Alternative, Data, Envelope, Spoken, Usage, Wish, dumps
from bench_proxy.formats.chat.parts import flat, image_part, text_part
from bench_proxy.formats.chat.replies import error_body
from bench_proxy.formats.checking import MOST_MESSAGES, MOST_PARTS, At, Many, Number, Strict, Whole, checked, given
from bench_proxy.formats.in_turn import InTurn
from bench_proxy.formats.request import ChatRequest, ToolName
from bench_proxy.formats.responses import turns
from bench_proxy.formats.responses.items import MessageItem
from bench_proxy.formats.responses.replies import ReplyStream, ended, status_of

Chat = dict[str, Any]
"""A message, a part of one, a tool or a setting in the form of chat completions."""

STORED = ("previous_response_id", "conversation", "prompt")
NOT_STORED = "nothing is stored here; send the whole conversation as input"


# What a message holds.


class Part(Strict, ABC):
    @abstractmethod
    def in_chat(self, at: At) -> Chat:
        """The same part of a chat message; `at` is its place in the body."""


class Text(Part):
    text: str

    def in_chat(self, at: At) -> Chat:
        return text_part(self.text)


class Refusal(Part):
    refusal: str

    def in_chat(self, at: At) -> Chat:
        return {"type": "refusal", "refusal": self.refusal}


class Image(Part):
    image_url: str | None = None
    file_id: str | None = None
    detail: str | None = None

    def in_chat(self, at: At) -> Chat:
        if self.image_url is None and self.file_id is None:
            field = _path(*at, "image_url")
            raise InvalidRequest(f'"{field}" is required: http(s), or base64 as data:image/…', param=field)
        if self.image_url is None:  # a file that only OpenAI has; chat completions know no such part
            return {"type": "image_file", "image_file": {"file_id": self.file_id}}
        return image_part(self.image_url, self.detail)


class File(Part):
    file_id: str | None = None
    file_url: str | None = None
    file_data: str | None = None
    filename: str | None = None

    def in_chat(self, at: At) -> Chat:
        return {"type": "file", "file": given(vars(self))}


PARTS: Mapping[str, type[Part]] = {
    "input_text": Text,
    "output_text": Text,
    "text": Text,
    "refusal": Refusal,
    "input_image": Image,
    "input_file": File,
}


class Typed(Strict):
    type: str


Content = str | Annotated[Many[Chat], Field(max_length=MOST_PARTS)]


def _content(content: Content, at: At) -> Any:
    """Content of a chat message."""
    return content if isinstance(content, str) else flat([_part(p, (*at, index)) for index, p in enumerate(content)])


def _part(part: Chat, at: At) -> Chat:
    known = PARTS.get(checked(Typed, part, at).type)
    return checked(known, part, at).in_chat(at) if known else part


# What an input is made of.


class Item(Strict, ABC):
    @abstractmethod
    def add_to(self, messages: list[Chat], at: At) -> None:
        """Put the item behind the chat messages of the items before it; `at` is its place in the body."""


class Message(Item):
    role: Literal["user", "assistant", "system", "developer"]
    content: Content

    def add_to(self, messages: list[Chat], at: At) -> None:
        content = _content(self.content, (*at, "content"))
        last = messages[-1] if messages else {}
        if self.role == "assistant" and "tool_calls" in last:
            # In chat completions nothing may stand between calls and their results.
            last["content"] = _joined(last["content"], content)
            return
        # Every vendor knows `system`, and OpenAI's models take it for `developer`.
        messages.append({"role": "system" if self.role == "developer" else self.role, "content": content})


class Call(Item):
    """A call of a tool that the client runs. Those of one turn share a message, as they do in chat completions."""

    kind: ClassVar[str]
    argument: ClassVar[str]
    call_id: str
    name: str
    namespace: str | None = None

    def add_to(self, messages: list[Chat], at: At) -> None:
        made = {"name": _qualified(self.namespace, self.name), self.argument: getattr(self, self.argument)}
        call = {"id": self.call_id, "type": self.kind, self.kind: made}
        if not messages or messages[-1]["role"] != "assistant":
            messages.append({"role": "assistant", "content": None})
        messages[-1].setdefault("tool_calls", []).append(call)


class FunctionCall(Call):
    kind = "function"
    argument = "arguments"
    arguments: str


class CustomCall(Call):
    kind = "custom"
    argument = "input"
    input: str


class Output(Item):
    """What a tool of the client's gave back."""

    call_id: str
    output: Content

    def add_to(self, messages: list[Chat], at: At) -> None:
        content = _content(self.output, (*at, "output"))
        messages.append({"role": "tool", "tool_call_id": self.call_id, "content": content})


class Reasoning(Item):
    """What a model thought, encrypted or in short: its maker's own business, which other models cannot use."""

    def add_to(self, messages: list[Chat], at: At) -> None:
        return


class Reference(Item):
    def add_to(self, messages: list[Chat], at: At) -> None:
        raise InvalidRequest(f'"{_path(*at)}" refers to a stored item, and {NOT_STORED}', param=_path(*at))


ITEMS: Mapping[str, type[Item]] = {
    "message": Message,
    "function_call": FunctionCall,
    "function_call_output": Output,
    "custom_tool_call": CustomCall,
    "custom_tool_call_output": Output,
    "reasoning": Reasoning,
    "item_reference": Reference,
}


class Kind(Strict):
    """What says which item it is; messages and references may leave `type` out."""

    type: str | None = None
    role: str | None = None
    id: str | None = None


def _add_item(messages: list[Chat], item: Chat, at: At) -> None:
    told = checked(Kind, item, at)
    kind = told.type or ("item_reference" if told.role is None and told.id is not None else "message")
    if kind in PARTS or kind == "image_url":
        field = _path(*at, "type")
        raise InvalidRequest(
            f'"{field}": "{kind}" is a part of a message, and has to stand in its content', param=field
        )
    if known := ITEMS.get(kind):
        checked(known, item, at).add_to(messages, at)
    elif kind.endswith("_output"):
        messages.append({"role": "tool", "tool_call_id": item.get("call_id"), "content": [item]})
    else:
        # What only its vendor's tools do, or nobody knows: a part of its own type, which a panel refuses by name.
        messages.append({"role": "assistant", "content": [item]})


def _joined(first: str | list[Chat] | None, second: str | list[Chat]) -> str | list[Chat]:
    return [*_parts(first), *_parts(second)] if first and second else first or second


def _parts(content: str | list[Chat]) -> list[Chat]:
    return [text_part(content)] if isinstance(content, str) else content


# Tools.


class Function(Strict):
    name: str
    description: str | None = None
    parameters: Chat | None = None
    strict: bool | None = None


class Grammar(Strict):
    type: str
    syntax: str | None = None
    definition: str | None = None


class Custom(Strict):
    name: str
    description: str | None = None
    format: Grammar | None = None


class Namespace(Strict):
    name: str
    description: str | None = None
    tools: Many[Chat]


class Tools:
    """The tools of a request in the form of chat completions, and how the caller knows those that have another name
    there. One that only its vendor runs, or that has that form, stays as it is.
    """

    def __init__(self) -> None:
        self.told: list[Chat] = []
        self.names: dict[str, ToolName] = {}

    def add(self, tools: Sequence[Chat], at: At, namespace: Namespace | None = None) -> None:
        for index, tool in enumerate(tools):
            self._add(tool, (*at, index), namespace)

    def _add(self, tool: Chat, at: At, namespace: Namespace | None) -> None:
        kind = checked(Typed, tool, at).type
        if isinstance(tool.get(kind), dict):
            self.told.append(tool)
        elif kind == "function":
            function = checked(Function, tool, at)
            self._name(kind, function, given(vars(function)), namespace)
        elif kind == "custom":
            custom = checked(Custom, tool, at)
            self._name(kind, custom, {**given(vars(custom)), **_custom_format(custom.format)}, namespace)
        elif kind == "namespace" and namespace is None:
            inner = checked(Namespace, tool, at)
            self.add(inner.tools, (*at, "tools"), inner)
        else:
            self.told.append(tool)

    def _name(self, kind: str, tool: Function | Custom, told: Chat, namespace: Namespace | None) -> None:
        """Chat completions know no namespaces: what one says is said of each of its tools."""
        if namespace is not None:
            told["name"] = _qualified(namespace.name, tool.name)
            self.names[told["name"]] = ToolName(tool.name, namespace.name, custom=kind == "custom")
            if said := [text for text in (namespace.description, tool.description) if text]:
                told["description"] = "\n\n".join(said)
        self.told.append({"type": kind, kind: told})


def _custom_format(format: Grammar | None) -> Chat:
    """Chat completions have an object more around a grammar."""
    if format is None:
        return {}
    grammar = given({"syntax": format.syntax, "definition": format.definition})
    return {"format": {"type": format.type, **({format.type: grammar} if grammar else {})}}


LONGEST_NAME = 64
"""Characters of a function's name, at OpenAI and Google."""


def _qualified(namespace: str | None, name: str) -> str:
    """The name that models know. One that is too long ends in a digest, so that it is the same in each turn."""
    if not namespace:
        return name
    full = f"{namespace}__{name}"
    if len(full) <= LONGEST_NAME:
        return full
    digest = hashlib.sha256(full.encode(errors="surrogatepass")).hexdigest()[:8]
    return f"{full[: LONGEST_NAME - 9]}_{digest}"


class Choice(Strict):
    type: str
    name: str | None = None
    namespace: str | None = None
    mode: str | None = None
    tools: Many[Chat] | None = None


def _tool_choice(choice: str | Chat, at: At) -> str | Chat:
    """How to choose among tools; a word, and a tool that only its vendor runs, stay as they are."""
    if isinstance(choice, str):
        return choice
    told = checked(Choice, choice, at)
    if told.type == "allowed_tools" and told.tools is not None:
        tools = [_chosen(tool, (*at, "tools", index)) for index, tool in enumerate(told.tools)]
        return {"type": told.type, told.type: {"mode": told.mode or "auto", "tools": tools}}
    return _chosen(choice, at)


def _chosen(tool: Chat, at: At) -> Chat:
    told = checked(Choice, tool, at)
    if told.type not in {"function", "custom"} or told.name is None:
        return tool
    return {"type": told.type, told.type: {"name": _qualified(told.namespace, told.name)}}


# The body.


SUMMARIES = frozenset({"auto", "concise", "detailed"})


class Thinking(Strict):
    """`summary` was once called `generate_summary`."""

    effort: str | None = None
    summary: str | None = None
    generate_summary: str | None = None

    @property
    def aloud(self) -> bool:
        """Whether the caller wants to read what a model thinks: OpenAI shows it only to those who ask."""
        return not SUMMARIES.isdisjoint((self.summary, self.generate_summary))


class OutputFormat(Strict):
    """What the text has to be: `text`, some JSON, or JSON of one schema."""

    type: Literal["text", "json_object", "json_schema"]
    name: str | None = None
    description: str | None = None
    of: Chat | None = Field(None, alias="schema")
    strict: bool | None = None


class TextSettings(Strict):
    format: OutputFormat | None = None
    verbosity: str | None = None


class Body(Strict):
    """What is read of a request. Bookkeeping of the vendor's (`store`, `metadata`, `include`, `truncation`, cache
    keys, service tiers…) is neither checked nor passed on: a panel has several vendors.
    """

    input: str | Annotated[Many[Chat], Field(min_length=1, max_length=MOST_MESSAGES)]
    instructions: str | None = None
    stream: bool | None = None
    stream_options: Chat | None = None
    background: bool | None = None
    max_output_tokens: Annotated[Whole, Field(ge=1)] | None = None
    temperature: Number | None = None
    top_p: Number | None = None
    top_k: Whole | None = None
    presence_penalty: Number | None = None
    frequency_penalty: Number | None = None
    seed: Whole | None = None
    stop: str | Many[str] | None = None
    reasoning: Thinking | None = None
    text: TextSettings | None = None
    tools: Many[Chat] | None = None
    tool_choice: str | Chat | None = None
    parallel_tool_calls: bool | None = None


SAMPLING = ("temperature", "top_p", "top_k", "presence_penalty", "frequency_penalty", "seed", "stop")
"""Some are not of this API, but clients of chat completions send them on, and members know them."""


def _messages(body: Body) -> list[Chat]:
    messages: list[Chat] = [{"role": "system", "content": body.instructions}] if body.instructions else []
    if isinstance(body.input, str):
        return [*messages, {"role": "user", "content": body.input}]
    first = len(messages)
    for index, item in enumerate(body.input):
        _add_item(messages, item, ("input", index))
    if len(messages) == first:
        raise InvalidRequest('"input" holds nothing but reasoning; send at least one message', param="input")
    return messages


def _settings(body: Body, tools: Sequence[Chat]) -> Chat:
    said = {name: getattr(body, name) for name in SAMPLING}
    said["max_tokens"] = body.max_output_tokens
    said["reasoning_effort"] = body.reasoning.effort if body.reasoning else None
    if body.text is not None:
        said["verbosity"] = body.text.verbosity
        said["response_format"] = _response_format(body.text.format) if body.text.format else None
    # No tools need no choice among them, and vendors refuse one alone.
    if tools:
        said["tools"] = tools
        said["tool_choice"] = _tool_choice(body.tool_choice, ("tool_choice",)) if body.tool_choice else None
        said["parallel_tool_calls"] = body.parallel_tool_calls
    return given(said)


def _response_format(format: OutputFormat) -> Chat | None:
    if format.type != "json_schema":
        return None if format.type == "text" else {"type": format.type}
    for name, value in (("name", format.name), ("schema", format.of)):
        if value is None:
            field = f"text.format.{name}"
            raise InvalidRequest(f'"{field}" is required', param=field)
    said = {"name": format.name, "description": format.description, "schema": format.of, "strict": format.strict}
    return {"type": "json_schema", "json_schema": given(said)}


def _refuse_stored(body: Data) -> None:
    for name in STORED:
        if body.get(name) is not None:
            raise InvalidRequest(f'"{name}" cannot be used: {NOT_STORED}', param=name)


def _path(*at: int | str) -> str:
    return ".".join(str(part) for part in at)


class ResponsesFormat:
    content_type = "application/json"
    stream_content_type = sse.CONTENT_TYPE

    def read(self, body: Data) -> tuple[ChatRequest, Wish]:
        _refuse_stored(body)
        asked = checked(Body, body)
        if asked.background:
            raise InvalidRequest(
                f'"background" cannot be true: {NOT_STORED}, and wait for the answer', param="background"
            )
        tools = Tools()
        tools.add(asked.tools or (), ("tools",))
        request = ChatRequest(_messages(asked), _settings(asked, tools.told), tools.names)
        return request, Wish(bool(asked.stream), thoughts=bool(asked.reasoning and asked.reasoning.aloud))

    def whole(self, envelope: Envelope, answers: Sequence[Alternative], usage: Usage, data: Data) -> bytes:
        return dumps(_answered(envelope, answers, usage, data))

    def stream(self, envelope: Envelope) -> "ResponsesStream":
        return ResponsesStream(envelope)

    def spoken(self, envelope: Envelope, spoken: Spoken, usage: Usage, data: Data) -> bytes:
        return dumps(turns.answered(envelope, spoken, usage, data))

    def turn(self, envelope: Envelope) -> turns.ResponsesTurn:
        return turns.ResponsesTurn(envelope)

    def error(self, error: BenchError) -> bytes:
        return dumps(error_body(error))


class ResponsesStream(InTurn, ReplyStream):
    """Each alternative is a message item, and one is done before the next begins: clients follow one at a time."""

    def __init__(self, envelope: Envelope) -> None:
        InTurn.__init__(self)
        ReplyStream.__init__(self, envelope)
        self._items: list[MessageItem] = []
        self._reasons: Sequence[str] = ()

    def begin(self, index: int = 0) -> bytes:
        return self._start() + super().begin(index)

    def end(self, finish_reasons: Sequence[str], usage: Usage, data: Data) -> bytes:
        self._reasons = finish_reasons
        left = self._start() + self._finish()
        answers = [Alternative(item.text, self._reason(item.index)) for item in self._items]
        return left + self._end(_answered(self._envelope, answers, usage, data))

    def _open(self, index: int) -> bytes:
        item = MessageItem(self._envelope, index)
        self._items.append(item)
        return self._write(item.opening())

    def _piece(self, text: str, index: int) -> bytes:
        return self._write(self._items[index].piece(text))

    def _close(self, index: int) -> bytes:
        return self._write(self._items[index].closing(status_of(self._reason(index))))

    def _reason(self, index: int) -> str:
        """How it ended is known only when all have ended."""
        return self._reasons[index] if index < len(self._reasons) else "stop"


def _answered(envelope: Envelope, answers: Sequence[Alternative], usage: Usage, data: Data) -> Chat:
    """The response with its answers; incomplete only when none is whole, since clients take such a one for lost."""
    statuses = [status_of(answer.finish_reason) for answer in answers]
    output = [MessageItem(envelope, i, answer.text).told(statuses[i]) for i, answer in enumerate(answers)]
    reason = "stop" if "completed" in statuses else answers[0].finish_reason
    return ended(envelope, reason, output, usage, data)
