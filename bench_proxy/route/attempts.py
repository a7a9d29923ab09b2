"""What one member is asked in a turn and what has come of it: in the form of chat, or in the caller's own."""

import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import Any

from bench_proxy.catalog import Model
from bench_proxy.characters import Characters
from bench_proxy.characters import whole as whole_text
from bench_proxy.estimate import written
from bench_proxy.formats.base import Spoken
from bench_proxy.formats.relays import Native, Relayed, Relaying
from bench_proxy.formats.unchecked import as_text
from bench_proxy.route.fitting import Prepared, fit
from bench_proxy.route.untangling import CallBegun, Piece, Untangling, whole
from bench_proxy.upstream import Call, CallPiece, Event, NativeCall, NativeUpstream, Reply, Text, Thought, Upstream

Tags = tuple[str, ...]


class Attempt(ABC):
    """Use either `stream` or `complete`, once. `since` is on the monotonic clock, `first_piece` in seconds after it."""

    relaying: Relaying | None = None
    """How the answer is passed on, where it comes in the caller's own format."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.since = time.monotonic()
        self.first_piece: float | None = None
        self.answers = False
        """Whether an answer has begun: text that says something, or a call. Thoughts are none."""

        self.over = False
        self.reply = Reply("")
        """What is known of the answer, once it is over."""

    @property
    def reported(self) -> Reply:
        """What the member's server has said of the answer's tokens, also while it is not over."""
        return self.reply

    @property
    @abstractmethod
    def said(self) -> str:
        """The text that has come."""

    @property
    @abstractmethod
    def thought(self) -> int:
        """Characters."""

    @property
    @abstractmethod
    def argued(self) -> int:
        """Characters of the arguments of its calls."""

    @property
    @abstractmethod
    def size(self) -> int:
        """Characters of what the caller has heard."""

    @property
    @abstractmethod
    def calls(self) -> int:
        """How many tools it has called."""

    @abstractmethod
    def stream(self, seconds: float, tags: Tags) -> AbstractAsyncContextManager[AsyncIterator[Any]]: ...

    @abstractmethod
    def heard(self, event: Any) -> Sequence[Piece | Relayed]:
        """What the caller hears of an event of the stream. Raises UpstreamError."""

    @abstractmethod
    async def complete(self, seconds: float, tags: Tags) -> None:
        """Get the whole answer. Raises UpstreamError."""


class ChatAttempt(Attempt):
    """`spoken` is the whole answer, where it was asked for at once."""

    def __init__(self, model: Model, upstream: Upstream, prepared: Prepared, new_id: Callable[[], str]) -> None:
        super().__init__(model)
        self.spoken = Spoken()
        self._upstream = upstream
        self._request = fit(prepared.request, model)
        self._tools = prepared.tools
        self._new_id = new_id
        self._untangling = Untangling(prepared.tools, new_id, prepared.names)
        self._characters = Characters()
        self._texts: list[str] = []
        self._size = 0
        self._thought = 0
        self._argued = 0
        self._named = 0

    @property
    def said(self) -> str:
        return "".join(self._texts)

    @property
    def thought(self) -> int:
        return self._thought

    @property
    def argued(self) -> int:
        return self._argued

    @property
    def size(self) -> int:
        return self._size + self._argued + self._named

    @property
    def calls(self) -> int:
        return self._untangling.calls or len(self.spoken.calls)

    def stream(self, seconds: float, tags: Tags) -> AbstractAsyncContextManager[AsyncIterator[Event]]:
        return self._upstream.stream(self._call(seconds, tags))

    def heard(self, event: Event) -> Sequence[Piece]:
        pieces = self._ended(event) if isinstance(event, Reply) else self._pieces(event)
        self.answers = self.answers or any(_counts(piece) for piece in pieces)
        return pieces

    async def complete(self, seconds: float, tags: Tags) -> None:
        reply = (await self._upstream.complete(self._call(seconds, tags))).sound()
        calls, finish_reason = whole(reply, self._tools, self._new_id)
        self._argued = sum(len(as_text(call.arguments)) for call in reply.calls)
        self.spoken = Spoken(reply.text, reply.thoughts, calls, finish_reason)
        self.reply = replace(reply, finish_reason=finish_reason)
        self.answers = bool(calls or reply.text.strip())
        self.over = True

    def _call(self, seconds: float, tags: Tags) -> Call:
        return Call(self.model.alias, self._request, seconds, tags)

    def _pieces(self, event: Text | Thought | CallPiece) -> Sequence[Piece]:
        """What the caller hears of this event, its characters whole."""
        if isinstance(event, Text):
            text = self._characters.take(event.text)
            if not text:
                return ()
            self._texts.append(text)
            self._size += len(text)
            return self._untangling.heard(event if text is event.text else Text(text))
        if isinstance(event, Thought):
            self._thought += len(event.text)
            return self._untangling.heard(Thought(whole_text(event.text)))
        self._argued += len(as_text(event.arguments))
        self._named += len(event.name or "")
        return self._untangling.heard(event)

    def _ended(self, reply: Reply) -> Sequence[Piece]:
        """What is left, with the reply as the caller and the record get it."""
        last = self._characters.rest()
        pieces = self._untangling.heard(Text(last)) if last else []
        left, finish_reason = self._untangling.end(reply.finish_reason)
        self.over = True
        self.reply = replace(reply.sound(), text=self.said + last, finish_reason=finish_reason)
        return [*pieces, *left]


class NativeAttempt(Attempt):
    """`foreign`: whether the conversation may hold what another maker's model has signed. `data` is the whole answer
    as it came, `last` what ends a streamed one.
    """

    def __init__(self, model: Model, upstream: NativeUpstream, native: Native, *, foreign: bool) -> None:
        super().__init__(model)
        self.relaying = native.relaying
        self.data = b""
        self._upstream = upstream
        self._native = native
        self._foreign = foreign
        self._hearing = native.relaying.hearing()
        self._asked: NativeCall | None = None

    @property
    def reported(self) -> Reply:
        """What it said of the answer before that was over may be less than has come of it since."""
        if self.over or self._asked is None:
            return self.reply
        until_now = self._upstream.reported(self._asked).sound()
        come = written(self.said, self.thought, self.argued)
        return replace(until_now, completion_tokens=max(until_now.completion_tokens or 0, come))

    @property
    def said(self) -> str:
        return self._hearing.said.text

    @property
    def thought(self) -> int:
        return self._hearing.said.thought

    @property
    def argued(self) -> int:
        return self._hearing.said.argued

    @property
    def size(self) -> int:
        return self._hearing.said.size + self.argued

    @property
    def calls(self) -> int:
        return len(self._hearing.said.calls)

    @property
    def last(self) -> list[Relayed]:
        return self._hearing.last

    def stream(
        self, seconds: float, tags: Tags
    ) -> AbstractAsyncContextManager[AsyncIterator[Sequence[Relayed] | Reply]]:
        return self._upstream.stream_native(self._call(seconds, tags))

    def heard(self, event: Sequence[Relayed] | Reply) -> Sequence[Relayed]:
        self.answers = self._hearing.said.answers
        if isinstance(event, Reply):
            self._ended(event)
            return ()
        return event

    async def complete(self, seconds: float, tags: Tags) -> None:
        self.data, reply = await self._upstream.complete_native(self._call(seconds, tags))
        self.answers = self._hearing.said.answers
        self._ended(reply)

    def _call(self, seconds: float, tags: Tags) -> NativeCall:
        relaying = self._native.relaying
        body = relaying.fitted(self._native.body, foreign=self._foreign, most_output=self.model.max_output)
        headers = self._native.headers
        self._asked = NativeCall(self.model.alias, relaying.dialect, self._hearing, body, seconds, tags, headers)
        return self._asked

    def _ended(self, reply: Reply) -> None:
        self.over = True
        self.reply = reply.sound()


def _counts(piece: Piece) -> bool:
    """Whether this is an answer's first piece: text that says something, or a call. Thoughts are not."""
    return isinstance(piece, CallBegun) or (isinstance(piece, Text) and not piece.text.isspace())
