"""One turn of route mode, written to one client: whole, or streamed as its member answers."""

import asyncio
import logging
import secrets
import time
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from starlette.types import Receive

from bench_proxy.config import Config
from bench_proxy.errors import BenchError
from bench_proxy.formats.base import Envelope, Format, Spoken
from bench_proxy.formats.relays import Relay, Relayed
from bench_proxy.formats.request import Brief
from bench_proxy.http.responding import RawHeaders, Response, hung_up, send_refusal
from bench_proxy.http.rules import Admitted
from bench_proxy.route.turn import Answered, Begun, Ended, Turn
from bench_proxy.route.untangling import CallArguments, CallBegun, CallDone, Piece
from bench_proxy.upstream import Text, Thought

log = logging.getLogger("bench_proxy")


class TurnReply:
    """Writes a turn. `thoughts`: whether what the member thinks aloud is told."""

    def __init__(
        self, format: Format, turn: Turn, brief: Brief, config: Config, verdict_url: str, response: Response,
        admitted: Admitted, *, thoughts: bool,
    ) -> None:  # fmt: skip
        self._format = format
        self._turn = turn
        self._brief = brief
        self._timing = config.timing
        self._verdict_url = verdict_url
        self._response = response
        self._admitted = admitted
        self._thoughts = thoughts
        # Clients merge messages of one id, and turns that are taken at the same time have the same number.
        id = f"{turn.conversation}-{turn.number}-{secrets.token_hex(4)}"
        self._envelope = Envelope(id, brief.model, int(time.time()), brief.include_usage, turn.tools)
        self._stream = format.turn(self._envelope)
        self._relay: Relay | None = None
        self._begun = asyncio.Event()
        self._beginning = asyncio.Lock()
        self._wrote = 0.0

    async def write(self) -> None:
        try:
            await (self._streamed() if self._brief.stream else self._whole())
        except BenchError as error:
            await self.settle()
            error = await self._admitted.failed(error)
            await send_refusal(self._response, self._format, self._brief, error, self._headers(None))

    async def settle(self) -> None:
        """What the members have used counts once, however the turn ends."""
        await self._admitted.settle(self._turn.used.usage)

    @property
    def unread(self) -> asyncio.Future[None]:
        return self._response.unread

    async def close(self) -> None:
        await self._response.close()
        await self.settle()

    async def _whole(self) -> None:
        answered, left = await self._answered()
        headers = self._headers(answered.begun, whole=True)
        if (relaying := answered.begun.relaying) is not None:
            body = relaying.whole(answered.relayed, self._brief.model, self._told(answered.data))
            await self._response.whole(200, self._format.content_type, body, headers)
            return
        spoken = left if self._thoughts else replace(left, thoughts="")
        body = self._format.spoken(self._envelope, spoken, answered.usage, self._told(answered.data))
        await self._response.whole(200, self._format.content_type, body, headers)

    async def _answered(self) -> tuple[Answered, Spoken]:
        """The whole answer, and what of it may leave."""
        answered = await self._turn.whole()
        await self._admitted.clear()
        (left,) = await self._admitted.review([answered.spoken], self._turn.used.usage)
        return answered, left

    async def _streamed(self) -> None:
        alive = asyncio.create_task(self._keep_alive(), name=f"signs of life of {self._turn.conversation}")
        try:
            if self._admitted.reviews:
                await self._held_back()
                return
            async with aclosing(self._turn.pieces()) as pieces:
                async for piece in pieces:
                    if isinstance(piece, Begun):
                        await self._admitted.clear()
                        if piece.relaying is not None:
                            self._relay = piece.relaying.relay(self._stream, self._brief.model)
                        await self._begin(piece)
                    elif isinstance(piece, Ended):
                        await self.settle()
                        await self._response.end(self._last(piece))
                    elif written := self._written(piece):
                        await self._send(written)
        finally:
            try:
                # What has begun to leave is not broken off, while it does: whatever comes next has to know of it.
                if not self.unread.done():
                    await self._beginning.acquire()
            finally:
                alive.cancel()
            await asyncio.gather(alive, return_exceptions=True)  # what it could not send, the writer cannot either

    async def _held_back(self) -> None:
        """A stream of which nothing leaves before a rule has read all of it."""
        answered, left = await self._answered()
        await self._begin(answered.begun)
        pieces: list[Piece] = [Thought(left.thoughts)] if left.thoughts else []
        pieces += [Text(left.text)] if left.text else []
        for call in left.calls:
            pieces += [CallBegun(replace(call, arguments="")), CallArguments(call.arguments), CallDone()]
        for piece in pieces:
            if written := self._written(piece):
                await self._send(written)
        last = self._stream.end(left.finish_reason, answered.usage, self._told(answered.data))
        await self._response.end(last)

    def _last(self, ended: Ended) -> bytes:
        if self._relay is not None:
            return self._relay.end(list(ended.last), self._told(ended.data))
        return self._stream.end(ended.finish_reason, ended.usage, self._told(ended.data))

    def _written(self, piece: Piece | Relayed) -> bytes:
        match piece:
            case Relayed():
                return self._relay.write(piece) if self._relay is not None else b""
            case Text():
                return self._stream.text(piece.text)
            case CallArguments():
                return self._stream.arguments(piece.text)
            case Thought():
                return self._stream.thought(piece.text) if self._thoughts else b""
            case CallBegun():
                return self._stream.call(piece.call)
            case CallDone():
                return self._stream.call_done()

    async def _begin(self, begun: Begun | None) -> None:
        """Once, by whoever comes first; nothing is written before it is done."""
        async with self._beginning:
            if self._begun.is_set():
                return
            self._wrote = time.monotonic()
            await self._response.begin(self._stream, self._format.stream_content_type, self._headers(begun))
            if self._relay is None:  # a member that speaks the format begins the reply itself
                await self._send(self._stream.begin())
            self._begun.set()

    async def _send(self, written: bytes) -> None:
        self._wrote = time.monotonic()
        await self._response.soon(written)

    async def _keep_alive(self) -> None:
        """The 200 leaves when the member has begun, at the latest after `hold_status`; then no silence is long."""
        try:
            async with asyncio.timeout(self._timing.hold_status):
                await self._begun.wait()
        except TimeoutError:
            await self._begin(None)
        while True:
            silent = time.monotonic() - self._wrote
            if silent >= self._timing.keep_alive:
                await self._send(self._stream.keep_alive())
                silent = 0.0
            await asyncio.sleep(self._timing.keep_alive - silent)

    def _told(self, data: Any) -> dict[str, Any]:
        return {**data, "verdict": {"method": "POST", "url": self._verdict_url}}

    def _headers(self, begun: Begun | None, *, whole: bool = False) -> RawHeaders:
        """A call is told only once it is on the record: of a streamed answer, from its conversation's next turn on."""
        headers = [
            (b"x-bench-conversation", self._turn.conversation.encode()),
            (b"x-bench-collection", f"bench/{self._brief.collection}".encode()),
        ]
        if begun is not None:
            headers.append((b"x-bench-model", begun.alias.encode("ascii", "backslashreplace")))
            if whole or begun.known:
                headers.append((b"x-bench-call", begun.call.encode()))
        return headers


async def serve_turn(reply: TurnReply, receive: Receive) -> None:
    """Write the turn; a caller who hangs up, or reads nothing of it for long, ends it, with the member's call."""
    writing = asyncio.create_task(reply.write(), name="turn")
    leaving = asyncio.create_task(hung_up(receive), name="caller of a turn")
    tasks = (writing, leaving)
    try:
        await asyncio.wait([*tasks, reply.unread], return_when=asyncio.FIRST_COMPLETED)
        if writing.done():
            writing.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        await reply.close()
