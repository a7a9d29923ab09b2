"""One model's answer in Ollama's form: its thinking, its text and its tool calls, whole and streamed.

https://docs.ollama.com/capabilities/thinking
https://docs.ollama.com/capabilities/tool-calling
"""

from collections.abc import Callable, Sequence
from typing import Any

from bench_proxy.errors import BenchError
from bench_proxy.formats.arguments import as_object
from bench_proxy.formats.base import Data, Envelope, Spoken, ToolCall, Usage, dumps
from bench_proxy.formats.ollama.lines import last, line, piece
from bench_proxy.formats.whole_calls import WholeCalls

Told = Callable[[str, str, Sequence[Data]], Data]
"""What a line holds for a piece of text, one of thinking, and whole calls."""


def spoken_reply(envelope: Envelope, told: Told, spoken: Spoken, usage: Usage, data: Data) -> bytes:
    calls = [_call(envelope, index, call) for index, call in enumerate(spoken.calls)]
    said = told(spoken.text, spoken.thoughts, calls)
    # All of it came at once: who divides by the time since its first piece would get an absurd speed.
    return dumps(last(envelope, said, spoken.finish_reason, usage, data, watched=False))


class OllamaTurn(WholeCalls):
    """Lines of JSON. A call is whole in one of them."""

    def __init__(self, envelope: Envelope, told: Told) -> None:
        super().__init__()
        self._envelope = envelope
        self._told = told
        self._called = 0

    def begin(self) -> bytes:
        return b""

    def thought(self, text: str) -> bytes:
        return piece(self._envelope, self._told("", text, ()))

    def text(self, text: str) -> bytes:
        return piece(self._envelope, self._told(text, "", ()))

    def called(self, call: ToolCall) -> bytes:
        written = _call(self._envelope, self._called, call)
        self._called += 1
        return piece(self._envelope, self._told("", "", (written,)))

    def end(self, finish_reason: str, usage: Usage, data: Data) -> bytes:
        return line(last(self._envelope, self._told("", "", ()), finish_reason, usage, data))

    def keep_alive(self) -> bytes:
        # Clients read every line as JSON, an empty one too.
        return self.text("")

    def error(self, error: BenchError) -> bytes:
        return line({"error": error.message})


def _call(envelope: Envelope, index: int, call: ToolCall) -> dict[str, Any]:
    known = envelope.tools.get(call.name)
    function = {"index": index, "name": known.name if known else call.name, "arguments": as_object(call.arguments)}
    return {"id": call.id, "function": function} if call.id else {"function": function}
