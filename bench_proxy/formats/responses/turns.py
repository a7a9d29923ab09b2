"""One model's answer in OpenAI Responses: what it thinks, says and calls are items, in the order in which they come.

https://platform.openai.com/docs/api-reference/responses-streaming
"""

from bench_proxy.formats.base import Data, Envelope, Spoken, ToolCall, Usage
from bench_proxy.formats.responses.items import COMPLETED, Json, MessageItem, OutputItem, ReasoningItem, call_item
from bench_proxy.formats.responses.replies import ReplyStream, ended, status_of


def answered(envelope: Envelope, spoken: Spoken, usage: Usage, data: Data) -> Json:
    """The response that a streamed turn ends with, of an answer that came whole."""
    items: list[OutputItem] = []
    if spoken.thoughts:
        items.append(ReasoningItem(envelope, len(items), spoken.thoughts))
    if spoken.text:
        items.append(MessageItem(envelope, len(items), spoken.text))
    for call in spoken.calls:
        items.append(call_item(envelope, len(items), call, call.arguments))
    output = [item.told(COMPLETED) for item in items[:-1]]
    # What cuts an answer short cuts its last item.
    output += [item.told(status_of(spoken.finish_reason)) for item in items[-1:]]
    return ended(envelope, spoken.finish_reason, output, usage, data)


class ResponsesTurn(ReplyStream):
    """An item is closed when the next thing comes: only then, or at the end, is it known whether it is whole."""

    def __init__(self, envelope: Envelope) -> None:
        super().__init__(envelope)
        self._item: OutputItem | None = None
        self._output: list[Json] = []

    def begin(self) -> bytes:
        return self._start()

    def thought(self, text: str) -> bytes:
        return self._said(ReasoningItem, text)

    def text(self, text: str) -> bytes:
        return self._said(MessageItem, text)

    def call(self, call: ToolCall) -> bytes:
        closed = self._close(COMPLETED)
        opened = self._open(call_item(self._envelope, len(self._output), call))
        return closed + opened + (self.arguments(call.arguments) if call.arguments else b"")

    def arguments(self, text: str) -> bytes:
        return self._write(self._item.piece(text)) if self._item else b""

    def call_done(self) -> bytes:
        return b""

    def end(self, finish_reason: str, usage: Usage, data: Data) -> bytes:
        closed = self._start() + self._close(status_of(finish_reason))
        return closed + self._end(ended(self._envelope, finish_reason, self._output, usage, data))

    def _said(self, kind: type[MessageItem] | type[ReasoningItem], text: str) -> bytes:
        if isinstance(self._item, kind):
            return self._write(self._item.piece(text))
        closed = self._close(COMPLETED)
        item = kind(self._envelope, len(self._output))
        return closed + self._open(item) + self._write(item.piece(text))

    def _open(self, item: OutputItem) -> bytes:
        self._item = item
        return self._write(item.opening())

    def _close(self, status: str) -> bytes:
        if self._item is None:
            return b""
        item, self._item = self._item, None
        self._output.append(item.told(status))
        return self._write(item.closing(status))
