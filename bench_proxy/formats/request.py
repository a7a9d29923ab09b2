"""A request as the panel and the models need it, whatever the format it came in."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import orjson

from bench_proxy.config import ReplyMode, StreamMode

Json = Mapping[str, Any]


MANY_MESSAGES = 40
LONG_TEXT = 50_000
"""Characters."""


@dataclass(frozen=True, slots=True)
class ToolName:
    """How the caller knows a tool: its own name for it, the namespace that it stands in, whether it takes plain text
    (`custom`) and not a JSON object, whether it is one of the `functions` that chat completions had before tools
    (`legacy`).
    """

    name: str
    namespace: str | None = None
    custom: bool = False
    legacy: bool = False


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """What reaches every model: the caller's messages and settings, as they were sent.

    `settings` holds all other fields of the body that are the model's business (sampling, structured output,
    vendor extras); never `model`, `stream` or anything of bench-proxy's own. `tools` has those that the caller knows
    by another name than models do, by the models' name.
    """

    messages: Sequence[Json]
    settings: Json
    tools: Mapping[str, ToolName] = field(default_factory=dict)
    _encoded: list[bytes] = field(default_factory=list, compare=False, repr=False)

    @property
    def encoded_messages(self) -> bytes:
        """The messages as JSON, encoded once however many models they go to."""
        if not self._encoded:
            self._encoded.append(orjson.dumps(self.messages))
        return self._encoded[0]

    @property
    def large(self) -> bool:
        """Whether encoding the messages costs more than comparing them: there are many, or one is long."""
        return len(self.messages) > MANY_MESSAGES or any(_length(m.get("content")) > LONG_TEXT for m in self.messages)

    def parts(self) -> list[Json]:
        """The content parts of all messages, in order; plain text content counts as one part."""
        found: list[Json] = []
        for message in self.messages:
            content = message.get("content")
            if isinstance(content, str):
                found.append({"type": "text", "text": content})
            elif isinstance(content, list):
                found.extend(content)
        return found

    @property
    def has_images(self) -> bool:
        return any(part.get("type") == "image_url" for part in self.parts())

    def asked(self, limit: int = 20_000) -> str:
        """The last user message as text, images as placeholders, at most `limit` characters."""
        for message in reversed(self.messages):
            if message.get("role") == "user":
                return as_text(message.get("content"))[:limit]
        return ""


@dataclass(frozen=True, slots=True)
class Brief:
    """What the caller asked of bench-proxy itself; None where the collection decides. Seconds throughout."""

    model: str
    collection: str
    reply: ReplyMode
    stream: bool = False
    include_usage: bool = False
    guests: tuple[str, ...] = ()
    shape: str | None = None
    explorers: int | None = None
    quorum: int | None = None
    deadline: float | None = None
    stream_mode: StreamMode | None = None
    blind: bool = False
    partial: Literal["accept", "refuse"] = "accept"
    conversation: str | None = None
    conversation_by: Literal["header", "bench.conversation"] = "bench.conversation"
    session: str | None = None
    """The id that a client gives its session by itself (`formats/sessions.py`)."""


def _length(content: object) -> int:
    """Characters of the longest piece."""
    if isinstance(content, str):
        return len(content)
    if not isinstance(content, list):
        return 0
    urls = [u.get("url") if isinstance(u := part.get("image_url"), dict) else u for part in content]
    texts = [part.get("text") for part in content]
    return max((len(piece) for piece in (*urls, *texts) if isinstance(piece, str)), default=0)


def as_text(content: object) -> str:
    """Message content as text: image data never appears, only what it was and how large."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    return "\n".join(_part_text(part) for part in content)


def _part_text(part: Json) -> str:
    if part.get("type") == "text":
        return str(part.get("text") or "")
    if part.get("type") == "image_url":
        return image_placeholder(part.get("image_url"))
    return f"[{part.get('type', 'part')}]"


def image_placeholder(image: object) -> str:
    """`[image: image/png, 14 kB]` for inline data, `[image: by URL]` for an address."""
    url = image.get("url") if isinstance(image, Mapping) else image
    if isinstance(url, str) and url.startswith("data:"):
        head, _, data = url.partition(",")
        return f"[image: {head[5:].partition(';')[0]}, {max(1, len(data) * 3 // 4 // 1000)} kB]"
    return "[image: by URL]"
