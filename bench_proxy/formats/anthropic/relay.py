"""Anthropic Messages as Anthropic's own models answer them, passed on event by event.

https://platform.claude.com/docs/en/api/messages
https://platform.claude.com/docs/en/build-with-claude/streaming
https://platform.claude.com/docs/en/build-with-claude/extended-thinking#preserving-thinking-blocks
"""

from typing import Any

from bench_proxy.formats import sse
from bench_proxy.formats.anthropic.turns import SIGNATURE, MessagesTurn
from bench_proxy.formats.base import one_line
from bench_proxy.formats.relays import Dialect, Hearing, Relayed
from bench_proxy.formats.request import Json
from bench_proxy.formats.splicing import added, read, replaced, written
from bench_proxy.formats.unchecked import inner, kind, objects

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


class MessagesHearing(Hearing):
    def event(self, body: Json) -> None:
        match kind(body):
            case "message_start":
                self._used(inner(body, "message"))
            case "content_block_start":
                self._block(inner(body, "content_block"))
            case "content_block_delta":
                self._delta(inner(body, "delta"))
            case "message_delta":
                self._stopped(inner(body, "delta"))
                self._used(body)
            case "message_stop":
                self.ended = self.over = True

    def whole(self, body: Json) -> None:
        self.ended = isinstance(body.get("content"), list)
        for block in objects(body.get("content")):
            self._block(block)
        self._stopped(body)
        self._used(body)

    def _block(self, block: Json) -> None:
        """A block as it begins, or whole."""
        match kind(block):
            case "text":
                self.said.says(block.get("text"))
            case "thinking":
                self.said.thinks(block.get("thinking"))
            case "tool_use":
                self.said.calls_for(block.get("id"), block.get("name"), block.get("input"))
            case "redacted_thinking" | "":
                pass
            case _:
                # A tool that Anthropic runs is as much of an answer as one that the caller runs.
                self.said.answers = True

    def _delta(self, delta: Json) -> None:
        match kind(delta):
            case "text_delta":
                self.said.says(delta.get("text"))
            case "thinking_delta":
                self.said.thinks(delta.get("thinking"))
            case "input_json_delta":
                self.said.argues(delta.get("partial_json"))

    def _stopped(self, at: Json) -> None:
        if isinstance(reason := at.get("stop_reason"), str):
            self.said.finish_reason = FINISH_REASONS.get(reason, "stop")

    def _used(self, by: Json) -> None:
        """At the end it may say anew what the beginning said."""
        told = {name: value for name, value in inner(by, "usage").items() if value is not None}
        self.said.usage = {**self.said.usage, **told}


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
