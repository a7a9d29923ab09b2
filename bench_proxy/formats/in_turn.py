"""Alternatives one after the other, for the formats whose clients follow only one at a time."""

from abc import ABC, abstractmethod


class InTurn(ABC):
    """The alternatives of a format whose clients take them one after the other, whatever order their text comes in.

    The first one that is not done streams; the others wait in memory. Answers have a longest length, so this has too.
    """

    def __init__(self) -> None:
        self._current = 0
        self._held: list[list[str]] = []
        self._done: set[int] = set()

    @abstractmethod
    def _open(self, index: int) -> bytes: ...

    @abstractmethod
    def _piece(self, text: str, index: int) -> bytes: ...

    @abstractmethod
    def _close(self, index: int) -> bytes: ...

    def begin(self, index: int = 0) -> bytes:
        self._held.append([])
        return self._open(index) if index == self._current else b""

    def text(self, text: str, index: int = 0) -> bytes:
        if index == self._current:
            return self._piece(text, index)
        self._held[index].append(text)
        return b""

    def done(self, index: int = 0) -> bytes:
        self._done.add(index)
        return self._go_on()

    def _finish(self) -> bytes:
        """What is left of all alternatives that have begun."""
        self._done.update(range(len(self._held)))
        return self._go_on()

    def _go_on(self) -> bytes:
        written: list[bytes] = []
        while self._current in self._done and self._current < len(self._held):
            written.append(self._close(self._current))
            self._current += 1
            if self._current < len(self._held):
                written.append(self._open(self._current))
                # In one piece: an event costs some 200 bytes, and nobody watches these words arrive.
                if held := "".join(self._held[self._current]):
                    written.append(self._piece(held, self._current))
                self._held[self._current] = []
        return b"".join(written)
