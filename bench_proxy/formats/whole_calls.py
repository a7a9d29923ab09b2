"""Tool calls for the formats that have one in a single piece: its arguments wait here until it is done."""

from abc import ABC, abstractmethod

from bench_proxy.formats.base import ToolCall


class WholeCalls(ABC):
    """The part of a `base.TurnStream` that is about calls."""

    def __init__(self) -> None:
        self._open: ToolCall | None = None
        self._arguments: list[str] = []

    @abstractmethod
    def called(self, call: ToolCall) -> bytes:
        """Write a call that is done."""

    def call(self, call: ToolCall) -> bytes:
        self._open, self._arguments = call, [call.arguments]
        return b""

    def arguments(self, text: str) -> bytes:
        self._arguments.append(text)
        return b""

    def call_done(self) -> bytes:
        if self._open is None:
            return b""
        done = ToolCall(self._open.id, self._open.name, "".join(self._arguments))
        self._open, self._arguments = None, []
        return self.called(done)
