"""One model's answer in Gemini's form: its thoughts, its text and its function calls, whole and streamed.

https://ai.google.dev/gemini-api/docs/function-calling
https://ai.google.dev/gemini-api/docs/thinking#summaries
"""

from collections.abc import Sequence

from bench_proxy.errors import BenchError
from bench_proxy.formats.arguments import as_object
from bench_proxy.formats.base import Data, Envelope, Spoken, ToolCall, Usage, dumps
from bench_proxy.formats.gemini.replies import Chunks, candidate, error_body, reply, speech
from bench_proxy.formats.request import Json
from bench_proxy.formats.whole_calls import WholeCalls


def spoken_reply(envelope: Envelope, spoken: Spoken, usage: Usage, data: Data) -> bytes:
    parts = [
        *([_thought(spoken.thoughts)] if spoken.thoughts else []),
        *([speech(spoken.text)] if spoken.text else []),
        *(_call(envelope, call) for call in spoken.calls),
    ]
    return dumps(reply(envelope, [candidate(parts or [speech("")], 0, spoken.finish_reason)], usage, data))


class GeminiTurn(WholeCalls):
    """Chunks that are replies of their own. A call is one part of one chunk: Gemini does not stream arguments."""

    def __init__(self, envelope: Envelope, *, events: bool) -> None:
        super().__init__()
        self._envelope = envelope
        self.chunks = Chunks(events=events)

    def begin(self) -> bytes:
        return b""

    def thought(self, text: str) -> bytes:
        return self._said([_thought(text)])

    def text(self, text: str) -> bytes:
        return self._said([speech(text)])

    def called(self, call: ToolCall) -> bytes:
        return self._said([_call(self._envelope, call)])

    def end(self, finish_reason: str, usage: Usage, data: Data) -> bytes:
        last = candidate([speech("")], 0, finish_reason)
        return self.chunks.chunk(reply(self._envelope, [last], usage, data)) + self.chunks.close()

    def keep_alive(self) -> bytes:
        # Google's SDKs take nothing but data for an event: a comment ends the reply with an error.
        return self.text("")

    def error(self, error: BenchError) -> bytes:
        return self.chunks.chunk(error_body(error)) + self.chunks.close()

    def _said(self, parts: Sequence[Json]) -> bytes:
        return self.chunks.chunk(reply(self._envelope, [candidate(parts)]))


def _thought(said: str) -> Json:
    return {"text": said, "thought": True}


def _call(envelope: Envelope, call: ToolCall) -> Json:
    known = envelope.tools.get(call.name)
    named = {"id": call.id} if call.id else {}
    return {"functionCall": {**named, "name": known.name if known else call.name, "args": as_object(call.arguments)}}
