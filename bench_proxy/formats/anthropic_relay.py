"""Anthropic Messages as Anthropic's own models answer them, passed on event by event.

https://platform.claude.com/docs/en/api/messages
https://platform.claude.com/docs/en/build-with-claude/streaming
https://platform.claude.com/docs/en/build-with-claude/extended-thinking#preserving-thinking-blocks
"""

from typing import Any

from bench_proxy.formats import sse
from bench_proxy.formats.anthropic_turns import SIGNATURE, MessagesTurn
from bench_proxy.formats.base import one_line
from bench_proxy.formats.relays import Dialect, Relayed, Said
from bench_proxy.formats.request import Json
from bench_proxy.formats.splicing import added, read, replaced, written
from bench_proxy.formats.unchecked import count, inner, kind, length, objects

FINISH_REASONS = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "pause_turn": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "content_filter",
}

THINKING = frozenset({"thinking", "redacted_thinking"})
ENDS = frozenset({"message_delta", "message_stop"})


class MessagesRelaying:
    dialect: Dialect = "messages"

    def fitted(self, body: Json, *, foreign: bool, most_output: int | None) -> Json:
        changed: dict[str, Any] = {}
        budget = body.get("max_tokens")
        if most_output is not None and isinstance(budget, int) and budget > most_output:
            changed["max_tokens"] = most_output
        if isinstance(messages := body.get("messages"), list):
            read_by = [_message(message, foreign=foreign) for message in messages]
            changed["messages"] = [message for message in read_by if message is not None]
        return {**body, **changed}

    def hearing(self) -> "MessagesHearing":
        return MessagesHearing()

    def understood(self, data: bytes) -> Said:
        body = read(data)
        said = Said()
        for block in objects(body.get("content")):
            _block(said, block)
        _stopped(said, body.get("stop_reason"))
        _used(said, inner(body, "usage"))
        return said

    def whole(self, data: bytes, model: str, bench: Json) -> bytes:
        return added(replaced(data, read(data), "model", model), "bench", bench)

    def relay(self, stream: MessagesTurn, model: str) -> "MessagesRelay":
        return MessagesRelay(stream, model)


def _message(message: Any, *, foreign: bool) -> Any:
    """None of a message that would be empty, which Anthropic refuses."""
    content = message.get("content") if isinstance(message, dict) else None
    if not isinstance(content, list) or message.get("role") != "assistant":
        return message
    left = [block for block in content if not (_is_unreadable(block) or (foreign and kind(block) in THINKING))]
    if len(left) == len(content):
        return message
    return {**message, "content": left} if left else None


def _is_unreadable(block: object) -> bool:
    """Thinking that no model of Anthropic's has signed."""
    return (
        isinstance(block, dict) and block.get("type") == "thinking" and block.get("signature") in (None, "", SIGNATURE)
    )


class MessagesHearing:
    def __init__(self) -> None:
        self.said = Said()
        self.last: list[Relayed] = []
        self.over = False

    def heard(self, data: bytes) -> list[Relayed]:
        body = read(data)
        self._understand(body)
        event = Relayed(data, body)
        if self.last or self._ends(body):
            self.last.append(event)
            return []
        return [event]

    def ran_out(self) -> bool:
        return self.over

    def _ends(self, body: Json) -> bool:
        stopped = kind(body) == "message_delta" and self.said.finish_reason is not None
        return stopped or kind(body) == "message_stop"

    def _understand(self, body: Json) -> None:
        match kind(body):
            case "message_start":
                _used(self.said, inner(inner(body, "message"), "usage"))
            case "content_block_start":
                _block(self.said, inner(body, "content_block"))
            case "content_block_delta":
                self._delta(inner(body, "delta"))
            case "message_delta":
                _stopped(self.said, inner(body, "delta").get("stop_reason"))
                _used(self.said, inner(body, "usage"))
            case "message_stop":
                self.over = True

    def _delta(self, delta: Json) -> None:
        match kind(delta):
            case "text_delta":
                self.said.says(delta.get("text"))
            case "thinking_delta":
                self.said.thinks(delta.get("thinking"))
            case "input_json_delta":
                self.said.size += length(delta.get("partial_json"))


class MessagesRelay:
    def __init__(self, stream: MessagesTurn, model: str) -> None:
        self._stream = stream
        self._model = model
        self._unsaid: Json = {}
        """What the beginning says was used, where the reply had begun without it."""

    def write(self, event: Relayed) -> bytes:
        if kind(event.body) != "message_start":
            return sse.relayed(one_line(event.data), kind(event.body))
        if self._stream.begun:
            self._unsaid = inner(inner(event.body, "message"), "usage")
            return b""
        return sse.relayed(replaced(event.data, event.body, "model", self._model, within="message"), "message_start")

    def end(self, events: list[Relayed], data: Json) -> bytes:
        """`bench` is in the last `message_delta`."""
        places = [place for place, event in enumerate(events) if kind(event.body) == "message_delta"]
        place = places[-1] if places else len(events) - 1
        return b"".join([self._last(one, data if i == place else None) for i, one in enumerate(events)])

    def _last(self, event: Relayed, data: Json | None) -> bytes:
        if data is None:
            return self.write(event)
        encoded = event.data
        usage = inner(event.body, "usage")
        if unsaid := {name: value for name, value in self._unsaid.items() if name not in usage}:
            encoded = written({**event.body, "usage": {**unsaid, **usage}})
        return sse.relayed(added(encoded, "bench", data), kind(event.body))


def _block(said: Said, block: Json) -> None:
    """A block as it begins, or whole."""
    match kind(block):
        case "text":
            said.says(block.get("text"))
        case "thinking":
            said.thinks(block.get("thinking"))
        case "redacted_thinking" | "":
            pass
        case other:
            # A tool that Anthropic runs is as much of an answer as one that the caller runs.
            said.does(called=other == "tool_use")


def _stopped(said: Said, reason: object) -> None:
    if isinstance(reason, str):
        said.finish_reason = FINISH_REASONS.get(reason, "stop")


def _used(said: Said, usage: Json) -> None:
    """Anthropic counts what went past the cache; at the end it may say anew what the beginning said."""
    if (made := count(usage, "cache_creation_input_tokens")) is not None:
        said.cache_write_tokens = made
    if (cached := count(usage, "cache_read_input_tokens")) is not None:
        said.cached_tokens = cached
    if (past := count(usage, "input_tokens")) is not None:
        said.prompt_tokens = past + (said.cached_tokens or 0) + (said.cache_write_tokens or 0)
    if (output := count(usage, "output_tokens")) is not None:
        said.completion_tokens = output
    if (thinking := count(inner(usage, "output_tokens_details"), "thinking_tokens")) is not None:
        said.reasoning_tokens = thinking
