"""Anthropic Messages.

https://platform.claude.com/docs/en/api/messages
https://platform.claude.com/docs/en/api/messages-count-tokens
https://platform.claude.com/docs/en/build-with-claude/streaming
https://platform.claude.com/docs/en/api/errors
"""

import secrets
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any, Literal

import orjson
from pydantic import ConfigDict, Discriminator, Field, Tag

from bench_proxy.errors import BenchError, InvalidRequest, NotFound
from bench_proxy.formats import efforts, sse
from bench_proxy.formats.anthropic import replies, turns
from bench_proxy.formats.anthropic.turns import MessagesTurn
from bench_proxy.formats.base import Alternative, Data, Envelope, Spoken, Usage, Wish, dumps
from bench_proxy.formats.chat.parts import flat, function_call, function_tool, image_part, schema_format, text_part
from bench_proxy.formats.checking import MOST_MESSAGES, MOST_PARTS, Many, Number, Strict, Whole, checked, given
from bench_proxy.formats.in_turn import InTurn
from bench_proxy.formats.request import ChatRequest, Json

# Reading. Each block says what it is in a chat completion. The tags of unions are in brackets, since they are no
# places in a body. What is not declared is not read, as cache marks.


class Block(Strict):
    """A piece of a message's content."""

    def parts(self) -> list[Json]:
        """Its parts in chat; none for what does not stand in a message's content there."""
        return []


class Text(Block):
    text: str

    def parts(self) -> list[Json]:
        return [text_part(self.text)]


class InlineSource(Strict):
    media_type: str
    data: str

    def part(self) -> Json:
        return image_part(f"data:{self.media_type};base64,{self.data}")


class UrlSource(Strict):
    url: str

    def part(self) -> Json:
        return image_part(self.url)


class OtherSource(Strict):
    """An uploaded file, which only Anthropic can look up."""

    type: str

    def part(self) -> Json:
        # The image within is for whoever counts tokens; what refuses the part repeats its type.
        return {"type": f"image by {self.type}", "image": {"type": "image"}}


SOURCES = frozenset({"base64", "url"})


def _source(source: object) -> str:
    kind = source.get("type") if isinstance(source, dict) else None
    return f"[{kind}]" if isinstance(kind, str) and kind in SOURCES else "[other]"


Source = Annotated[
    Annotated[InlineSource, Tag("[base64]")]
    | Annotated[UrlSource, Tag("[url]")]
    | Annotated[OtherSource, Tag("[other]")],
    Discriminator(_source),
]


class Image(Block):
    source: Source

    def parts(self) -> list[Json]:
        return [self.source.part()]


PDF = "application/pdf"


class Document(Block):
    """Plain text is text wherever it stands, and a PDF that was sent is a file. What is to be cited is neither."""

    source: dict[str, Any]
    title: str | None = None
    context: str | None = None
    citations: dict[str, Any] | None = None

    def parts(self) -> list[Json]:
        kind, data = self.source.get("type"), self.source.get("data")
        cited = (self.citations or {}).get("enabled")
        if isinstance(data, str) and not cited:
            if kind == "text":
                return [text_part(text) for text in (self.title, self.context, data) if text]
            if kind == "base64" and self.source.get("media_type") == PDF:
                return [*([text_part(self.context)] if self.context else ()), self._file(data)]
        return [{"type": "document", "source": self.source}]

    def _file(self, data: str) -> Json:
        """OpenAI wants a name with each file, which need not be one that was there before.

        https://platform.openai.com/docs/guides/pdf-files
        """
        return {
            "type": "file",
            "file": {"file_data": f"data:{PDF};base64,{data}", "filename": self.title or "document.pdf"},
        }


class Thinking(Block):
    """Reasoning is signed or encrypted by the model that did it, and no other one may see it."""


class ToolUse(Block):
    id: str
    name: str
    input: dict[str, Any]

    def call(self) -> Json:
        return function_call(self.id, self.name, orjson.dumps(self.input).decode())


class ToolReference(Block):
    """A tool that a search of the client's own has found. Models here know it from the start: they get all tools.

    https://platform.claude.com/docs/en/agents-and-tools/tool-use/tool-search-tool
    """

    tool_name: str

    def parts(self) -> list[Json]:
        return [text_part(f"Found the tool {self.tool_name}.")]


class Other(Block):
    """What only Anthropic runs or reads; a panel refuses it by its type."""

    model_config = ConfigDict(strict=True, extra="allow")
    type: str

    def parts(self) -> list[Json]:
        return [{**(self.model_extra or {}), "type": self.type}]


BLOCKS = frozenset({"text", "image", "document", "thinking", "redacted_thinking", "tool_use", "tool_result"})
INNER_BLOCKS = frozenset({"text", "image", "document", "tool_reference"})
"""Those that may stand in the result of a tool."""


def _kind(known: frozenset[str]) -> Callable[[object], str]:
    def kind_of(block: object) -> str:
        kind = block.get("type") if isinstance(block, dict) else None
        return f"[{kind}]" if isinstance(kind, str) and kind in known else "[other]"

    return kind_of


InnerBlock = Annotated[
    Annotated[Text, Tag("[text]")]
    | Annotated[Image, Tag("[image]")]
    | Annotated[Document, Tag("[document]")]
    | Annotated[ToolReference, Tag("[tool_reference]")]
    | Annotated[Other, Tag("[other]")],
    Discriminator(_kind(INNER_BLOCKS)),
]


FAILED = "The tool call failed."


class ToolResult(Block):
    tool_use_id: str
    content: str | Annotated[Many[InnerBlock], Field(max_length=MOST_PARTS)] | None = None
    is_error: bool | None = None

    def message(self) -> Json:
        content = _content(self.content or "")
        return {
            "role": "tool",
            "tool_call_id": self.tool_use_id,
            "content": _failed(content) if self.is_error else content,
        }


AnyBlock = Annotated[
    Annotated[Text, Tag("[text]")]
    | Annotated[Image, Tag("[image]")]
    | Annotated[Document, Tag("[document]")]
    | Annotated[Thinking, Tag("[thinking]")]
    | Annotated[Thinking, Tag("[redacted_thinking]")]
    | Annotated[ToolUse, Tag("[tool_use]")]
    | Annotated[ToolResult, Tag("[tool_result]")]
    | Annotated[Other, Tag("[other]")],
    Discriminator(_kind(BLOCKS)),
]
Content = str | Annotated[Many[AnyBlock], Field(max_length=MOST_PARTS)]


class Message(Strict):
    role: Literal["user", "assistant", "system"]
    """`system` is what Claude Code sends in the middle of a conversation."""

    content: Content

    def chat(self) -> Iterator[Json]:
        """In chat, results of tools are messages of their own, and stand right behind the calls."""
        if isinstance(self.content, str):
            yield {"role": self.role, "content": self.content}
            return
        yield from (block.message() for block in self.content if isinstance(block, ToolResult))
        said = _content(_without_blanks(self.content))
        calls = [block.call() for block in self.content if isinstance(block, ToolUse)]
        if calls:
            yield {"role": self.role, "content": said or None, "tool_calls": calls}
        elif said or all(isinstance(block, Text) for block in self.content):
            yield {"role": self.role, "content": said}


class ClientTool(Strict):
    """A tool that the caller runs. It has no type, or `custom`."""

    name: str
    description: str | None = None
    input_schema: dict[str, Any] | None = None
    strict: bool | None = None

    def chat(self) -> Json:
        parameters = self.input_schema or {"type": "object", "properties": {}}
        return function_tool(self.name, self.description, parameters, self.strict)


class VendorTool(Strict):
    """A tool of Anthropic's own making, which stays what it is."""

    model_config = ConfigDict(strict=True, extra="allow")
    type: str

    def chat(self) -> Json:
        return {**(self.model_extra or {}), "type": self.type}


def _maker(tool: object) -> str:
    kind = tool.get("type") if isinstance(tool, dict) else None
    return "[client]" if kind is None or kind == "custom" else "[vendor]"


Tool = Annotated[Annotated[ClientTool, Tag("[client]")] | Annotated[VendorTool, Tag("[vendor]")], Discriminator(_maker)]


class McpServer(Strict):
    """Its tools are run by Anthropic. Its address and its token are not read."""

    name: str


class ToolChoice(Strict):
    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None

    def chat(self) -> object:
        if self.type == "tool":
            if self.name is None:
                raise InvalidRequest('"tool_choice.name" is required', param="tool_choice.name")
            return {"type": "function", "function": {"name": self.name}}
        return "required" if self.type == "any" else self.type


class ThinkingConfig(Strict):
    type: str
    budget_tokens: Whole | None = None
    display: str | None = None

    @property
    def shown(self) -> bool:
        """Whether the caller wants to see it. https://platform.claude.com/docs/en/build-with-claude/adaptive-thinking"""
        return self.type in {"enabled", "adaptive"} and self.display != "omitted"

    @property
    def effort(self) -> str | None:
        budget = self.budget_tokens if self.type == "enabled" else None
        return efforts.of_budget(budget, efforts.ANTHROPICS, "minimal")


class OutputFormat(Strict):
    type: Literal["json_schema"]
    schema_: dict[str, Any] = Field(alias="schema")


class OutputConfig(Strict):
    effort: str | None = None
    format: OutputFormat | None = None


class Conversation(Strict):
    """What both paths read of a body. All else is about one vendor's bookkeeping, and a panel has several vendors."""

    messages: Annotated[Many[Message], Field(min_length=1, max_length=MOST_MESSAGES)]
    system: str | Annotated[Many[InnerBlock], Field(max_length=MOST_PARTS)] | None = None
    stream: bool | None = None
    temperature: Number | None = None
    top_p: Number | None = None
    top_k: Whole | None = None
    stop_sequences: Many[str] | None = None
    thinking: ThinkingConfig | None = None
    output_config: OutputConfig | None = None
    output_format: OutputFormat | None = None
    tools: Many[Tool] | None = None
    mcp_servers: Many[McpServer] | None = None
    tool_choice: ToolChoice | None = None
    thread: dict[str, Any] | None = None

    def request(self) -> ChatRequest:
        if self.thread and self.thread.get("previous_message_id") is not None:
            raise NotFound(
                'a conversation cannot be continued by "thread": nothing is stored, send all of its messages',
                param="thread.previous_message_id",
                code=replies.NO_THREAD,
            )
        messages = [chat for message in self.messages for chat in message.chat()]
        if not messages:
            raise InvalidRequest('"messages" hold nothing but thinking, which no other model may see', param="messages")
        if self.system and (said := self.system if isinstance(self.system, str) else _content(self.system)):
            messages.insert(0, {"role": "system", "content": said})
        return ChatRequest(messages, given(self.settings()))

    def settings(self) -> dict[str, Any]:
        """Under their names in chat; None for what was not sent."""
        config = self.output_config or OutputConfig()
        output = config.format or self.output_format
        return {
            "temperature": self.temperature,
            "top_p": self.top_p,
            "top_k": self.top_k,
            "stop": self.stop_sequences or None,
            "reasoning_effort": efforts.of_level(config.effort) or (self.thinking.effort if self.thinking else None),
            "response_format": schema_format(output.schema_) if output else None,
            **self._tools(),
        }

    def _tools(self) -> dict[str, Any]:
        """An empty list of tools is no tools; what only steers tools goes with it, since vendors refuse it alone."""
        choice = self.tool_choice
        tools = [tool.chat() for tool in self.tools or ()]
        tools += [{"type": "mcp_server", "name": server.name} for server in self.mcp_servers or ()]
        steering = {"tool_choice": choice.chat(), "parallel_tool_calls": _parallel(choice)} if choice else {}
        return {"tools": tools, **steering} if tools else {}


class Body(Conversation):
    """Of a request that asks for an answer."""

    max_tokens: Annotated[Whole, Field(ge=1)]
    compaction: dict[str, Any] | None = None

    def request(self) -> ChatRequest:
        if self.compaction is not None:
            raise InvalidRequest(
                '"compaction" asks for a block that only Anthropic writes; ask for a summary in a message',
                param="compaction",
            )
        return super().request()

    def settings(self) -> dict[str, Any]:
        return {"max_tokens": self.max_tokens, **super().settings()}


def _content(content: str | Sequence[Block]) -> Any:
    """Content in chat."""
    return content if isinstance(content, str) else flat([part for block in content for part in block.parts()])


def _without_blanks(blocks: Sequence[Block]) -> Sequence[Block]:
    """Agents leave blank text beside the calls of tools and their results, and some models' servers refuse it there."""
    if not any(isinstance(block, ToolUse | ToolResult) for block in blocks):
        return blocks
    return [block for block in blocks if not isinstance(block, Text) or block.text.strip()]


def _failed(content: str | list[Json]) -> str | list[Json]:
    """Of a result of a tool: in chat only its text can tell a model that this is an error."""
    if isinstance(content, str):
        return f"{FAILED}\n{content}" if content else FAILED
    return [text_part(FAILED), *content]


def _parallel(choice: ToolChoice) -> bool | None:
    return False if choice.disable_parallel_tool_use else None


# Writing.


def request_id() -> str:
    return f"req_{secrets.token_hex(12)}"


class MessagesFormat:
    """`body` says what has to be in a request; `new_id` names one that has no panel."""

    content_type = "application/json"
    stream_content_type = sse.CONTENT_TYPE

    def __init__(self, body: type[Conversation] = Body, new_id: Callable[[], str] = request_id) -> None:
        self._body = body
        self._new_id = new_id

    def read(self, body: Data) -> tuple[ChatRequest, Wish]:
        asked = checked(self._body, given(body))
        thoughts = asked.thinking is not None and asked.thinking.shown
        return asked.request(), Wish(bool(asked.stream), thoughts=thoughts)

    def whole(self, envelope: Envelope, answers: Sequence[Alternative], usage: Usage, data: Data) -> bytes:
        content = [text_part(answer.text) for answer in answers]
        reason = stop_reason([answer.finish_reason for answer in answers])
        return dumps({**replies.message(envelope, content, reason, usage_of(usage)), "bench": data})

    def stream(self, envelope: Envelope) -> "MessagesStream":
        return MessagesStream(envelope)

    def spoken(self, envelope: Envelope, spoken: Spoken, usage: Usage, data: Data) -> bytes:
        return turns.whole(envelope, spoken, usage, data)

    def turn(self, envelope: Envelope) -> MessagesTurn:
        return MessagesTurn(envelope)

    def error(self, error: BenchError) -> bytes:
        panel = (error.data or {}).get("panel")
        return dumps(replies.error(error, f"req_{panel}" if panel else self._new_id()))


class MessagesStream(InTurn):
    """Blocks have to come one after the other: Anthropic's own SDK puts a delta to the block that was opened last."""

    def __init__(self, envelope: Envelope) -> None:
        super().__init__()
        self._envelope = envelope

    def _open(self, index: int) -> bytes:
        start = replies.message_start(self._envelope) if index == 0 else b""
        return start + replies.event("content_block_start", index=index, content_block=text_part(""))

    def _piece(self, text: str, index: int) -> bytes:
        return replies.event("content_block_delta", index=index, delta={"type": "text_delta", "text": text})

    def _close(self, index: int) -> bytes:
        return replies.event("content_block_stop", index=index)

    def end(self, finish_reasons: Sequence[str], usage: Usage, data: Data) -> bytes:
        return self._finish() + replies.message_end(stop_reason(finish_reasons), usage_of(usage), data)

    def keep_alive(self) -> bytes:
        return replies.ping()

    def error(self, error: BenchError) -> bytes:
        return replies.event(**replies.error(error, f"req_{self._envelope.id}"))


def usage_of(usage: Usage) -> dict[str, int]:
    return {"input_tokens": usage.prompt_tokens, "output_tokens": usage.completion_tokens}


def stop_reason(finish_reasons: Sequence[str]) -> str:
    """A message has one reason, also one of several answers: theirs if they share it. Each one's own is in `bench`."""
    reasons = {replies.STOP_REASONS.get(reason, "end_turn") for reason in finish_reasons}
    return reasons.pop() if len(reasons) == 1 else "end_turn"


def count(tokens: int) -> bytes:
    """The reply to a request that counts tokens."""
    return dumps({"input_tokens": tokens, "bench": {"estimate": True}})
