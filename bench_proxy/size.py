"""How many tokens a request is, without a tokenizer: an estimate that errs high (pure)."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

ASCII_PER_TOKEN = 4 / 1.1
"""Characters. English has 4.8 of them in a token, code between 2.6 and 4.3."""

ASTRAL_TOKENS = 3
"""What a character outside the basic plane counts, mostly an emoji: tokenizers take up to three tokens for one."""

MESSAGE_TOKENS = 4
"""What frames a message: its role and the marks around it."""

IMAGE_TOKENS = 2500
LOW_DETAIL_TOKENS = 300

IMAGE_PARTS = frozenset({"image_url", "input_image", "image"})
DATA_KEYS = frozenset({"data", "file_data", "b64_json", "url", "image_url", "input_audio"})
"""Where parts keep what is no text: base64 data, addresses."""

WRITTEN_SETTINGS = ("tools", "functions", "response_format")
"""Settings that a vendor writes into the prompt, and counts."""

WRITTEN_FIELDS = ("tool_calls", "function_call", "reasoning_content", "thinking_blocks", "refusal")
"""Fields of a message, beside its content, that a vendor writes into the prompt."""


@dataclass(frozen=True, slots=True)
class Size:
    """`text` and `pictures` in tokens, `images` counted."""

    text: float
    pictures: int
    images: int

    @property
    def tokens(self) -> int:
        return round(self.text) + self.pictures


def size(messages: Sequence[Mapping[str, Any]], settings: Mapping[str, Any]) -> Size:
    """The size of a whole request: text, images, tools and tool calls. Image data is never counted as text."""
    text: float = MESSAGE_TOKENS * len(messages)
    text += sum(text_tokens(_json(settings[name])) for name in WRITTEN_SETTINGS if settings.get(name))
    pictures: list[int] = []
    text += sum(_message(message, pictures) for message in messages)
    return Size(text, sum(pictures), len(pictures))


def text_tokens(text: str) -> float:
    """ASCII characters / 4 x 1.1, and each other character one; those outside the basic plane more."""
    if text.isascii():
        return len(text) / ASCII_PER_TOKEN
    plain = len(text.encode("ascii", "ignore"))
    # Two bytes a character, four for those outside the basic plane: counted without looking at each.
    astral = len(text.encode("utf-16-le", "surrogatepass")) // 2 - len(text)
    return plain / ASCII_PER_TOKEN + (len(text) - plain - astral) + astral * ASTRAL_TOKENS


def _message(message: Mapping[str, Any], pictures: list[int]) -> float:
    content = message.get("content")
    written = sum(text_tokens(_json(message[name])) for name in WRITTEN_FIELDS if message.get(name))
    return written + _text(content if isinstance(content, list) else [content], pictures)


def _text(value: object, pictures: list[int]) -> float:
    """The tokens of all text in a part of a message, and of the parts within it; images go to `pictures`."""
    if isinstance(value, str):
        return text_tokens(value)
    if isinstance(value, list):
        return sum(_text(item, pictures) for item in value)
    if not isinstance(value, Mapping):
        return 0.0
    kind = value.get("type")
    if isinstance(kind, str) and kind in IMAGE_PARTS:
        pictures.append(_image(value))
        return 0.0
    return sum(_text(inner, pictures) for key, inner in value.items() if key not in DATA_KEYS and key != "type")


def _image(part: Mapping[str, Any]) -> int:
    image = part.get("image_url")
    detail = image.get("detail") if isinstance(image, Mapping) else part.get("detail")
    return LOW_DETAIL_TOKENS if detail == "low" else IMAGE_TOKENS


def _json(value: object) -> str:
    """As vendors write it; text that is JSON already, such as the arguments of a call, is written as text."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
