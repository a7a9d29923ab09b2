"""How many tokens a request is, without a tokenizer: an estimate that errs high (pure)."""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

ASCII_PER_TOKEN = 4 / 1.1
"""Characters. English has 4.8 of them in a token, code between 2.6 and 4.3."""

ASTRAL_TOKENS = 3
"""What a character outside the basic plane counts, mostly an emoji: tokenizers take up to three tokens for one."""

MESSAGE_TOKENS = 4
"""What frames a message: its role and the marks around it."""

IMAGE_TOKENS = 2500
LOW_DETAIL_TOKENS = 300

OPAQUE_PER_TOKEN = 4
"""Characters of what is passed on and not understood."""

IMAGE_PARTS = frozenset({"image_url", "input_image", "image"})
DATA_KEYS = frozenset({"data", "file_data", "b64_json", "url", "image_url", "input_audio"})
"""Where parts keep what is no text: base64 data, addresses."""

IMAGE_KEYS = frozenset({"type", "image", "source", "detail"}) | DATA_KEYS
"""What an image part is made of."""

KIND_KEYS = ("mimeType", "mime_type", "media_type")
"""Where a part says, beside its data, of what kind that is."""

WRITTEN_SETTINGS = ("tools", "functions", "response_format")
"""Settings that a vendor writes into the prompt, and counts."""

WRITTEN_FIELDS = ("tool_calls", "function_call", "reasoning_content", "thinking_blocks", "refusal")
"""Fields of a message, beside its content, that a vendor writes into the prompt."""

MESSAGE_KEYS = frozenset({"role", "content", *WRITTEN_FIELDS})


@dataclass(frozen=True, slots=True)
class Size:
    """`text`, `pictures` and `opaque` in tokens, `images` counted. What is opaque are the data of files and sound, and
    all that is passed on and not understood: a model may read it, and nobody can say how many tokens that is.
    """

    text: float
    pictures: int
    images: int
    opaque: int

    @property
    def tokens(self) -> int:
        """What surely is in the prompt: it has to fit into a context window."""
        return round(self.text) + self.pictures

    @property
    def in_budget(self) -> int:
        """Tokens, with those of what is opaque."""
        return self.tokens + self.opaque


@dataclass(slots=True)
class _Beside:
    """What a request has beside its text: its pictures in tokens, and characters of what is opaque."""

    pictures: list[int] = field(default_factory=list)
    opaque: int = 0


def size(messages: Sequence[Mapping[str, Any]], settings: Mapping[str, Any]) -> Size:
    """The size of a whole request: text, images, tools and tool calls. Image data is never counted as text."""
    text: float = MESSAGE_TOKENS * len(messages)
    text += sum(text_tokens(_json(settings[name])) for name in WRITTEN_SETTINGS if settings.get(name))
    beside = _Beside(opaque=_unknown(settings, WRITTEN_SETTINGS))
    text += sum(_message(message, beside) for message in messages)
    return Size(text, sum(beside.pictures), len(beside.pictures), beside.opaque // OPAQUE_PER_TOKEN)


def text_tokens(text: str) -> float:
    """ASCII characters / 4 x 1.1, and each other character one; those outside the basic plane more."""
    if text.isascii():
        return len(text) / ASCII_PER_TOKEN
    plain = len(text.encode("ascii", "ignore"))
    # Two bytes a character, four for those outside the basic plane: counted without looking at each.
    astral = len(text.encode("utf-16-le", "surrogatepass")) // 2 - len(text)
    return plain / ASCII_PER_TOKEN + (len(text) - plain - astral) + astral * ASTRAL_TOKENS


def _message(message: Mapping[str, Any], beside: _Beside) -> float:
    content = message.get("content")
    if isinstance(content, str) and len(message) == 2 and "role" in message:  # most, in a long conversation
        return text_tokens(content)
    beside.opaque += _unknown(message, MESSAGE_KEYS)
    written = sum(text_tokens(_json(message[name])) for name in WRITTEN_FIELDS if message.get(name))
    return written + _text(content if isinstance(content, list) else [content], beside)


def _text(value: object, beside: _Beside) -> float:
    """The tokens of all text in a part of a message, and of the parts within it; all else goes to `beside`."""
    if isinstance(value, str):
        return text_tokens(value)
    if isinstance(value, list):
        return sum(_text(item, beside) for item in value)
    if not isinstance(value, Mapping):
        return 0.0
    kind = value.get("type")
    if isinstance(kind, str) and kind in IMAGE_PARTS:
        beside.pictures.append(_image(value))
        beside.opaque += _unknown(value, IMAGE_KEYS)
        return 0.0
    beside.opaque += _data(value)
    return sum(_text(inner, beside) for key, inner in value.items() if key not in DATA_KEYS and key != "type")


def _data(part: Mapping[str, Any]) -> int:
    """Characters of a part's data; those of an image say nothing, it counts as one."""
    found = [part[key] for key in DATA_KEYS if key in part]
    if found and any(str(part.get(key)).startswith("image/") for key in KIND_KEYS):
        return IMAGE_TOKENS * OPAQUE_PER_TOKEN
    return sum(_length(data) for data in found)


def _unknown(fields: Mapping[str, Any], known: Collection[str]) -> int:
    """Characters of the fields that are not known."""
    return sum(_length(value) for name, value in fields.items() if name not in known)


def _length(value: object) -> int:
    """Characters; numbers and switches by themselves have none, such as those for sampling."""
    return len(_json(value)) if isinstance(value, str | list | Mapping) else 0


def _image(part: Mapping[str, Any]) -> int:
    image = part.get("image_url")
    detail = image.get("detail") if isinstance(image, Mapping) else part.get("detail")
    return LOW_DETAIL_TOKENS if detail == "low" else IMAGE_TOKENS


def _json(value: object) -> str:
    """As vendors write it; text that is JSON already, such as the arguments of a call, is written as text."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
