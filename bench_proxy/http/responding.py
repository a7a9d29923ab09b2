"""What leaves for a client: a whole reply, a stream, an error in either."""

import asyncio
import re
import sys
import time
from collections.abc import Coroutine, Sequence
from typing import Any

from starlette.datastructures import Headers
from starlette.types import Message, Receive, Scope, Send

from bench_proxy.config import Config
from bench_proxy.errors import BenchError, InsteadOfModels
from bench_proxy.formats.base import Alternative, Envelope, Format, Stream, TurnStream, Usage
from bench_proxy.formats.request import Brief
from bench_proxy.ids import panel_id

RawHeaders = Sequence[tuple[bytes, bytes]]

UNREAD_SECONDS = 60.0
"""How long a client may take nothing of what is sent before it has left for us, though it has not hung up."""

INSTEAD = "a rule of this proxy answered in the models' place"


class Response:
    """What has left for the client. After the first byte an error can only be an event in the stream."""

    def __init__(self, send: Send) -> None:
        self._raw_send = send
        self.streaming: Stream | TurnStream | None = None
        self.ended = False
        self._together: list[bytes] = []
        self._leaving: asyncio.Task[None] | None = None
        self._unread: asyncio.Future[None] | None = None

    @property
    def unread(self) -> asyncio.Future[None]:
        """Done when the client has stopped reading, and would hold whoever writes for ever."""
        if self._unread is None:
            self._unread = asyncio.get_running_loop().create_future()
        return self._unread

    async def whole(self, status: int, content_type: str, body: bytes, headers: RawHeaders) -> None:
        length = (b"content-length", str(len(body)).encode())
        head = [(b"content-type", content_type.encode()), length, *headers]
        await self._send({"type": "http.response.start", "status": status, "headers": head})
        self.ended = True
        await self._send({"type": "http.response.body", "body": body})

    async def begin(self, stream: Stream | TurnStream, content_type: str, headers: RawHeaders) -> None:
        kind = (b"content-type", content_type.encode())
        head = [kind, (b"cache-control", b"no-cache"), (b"x-accel-buffering", b"no"), *headers]
        await self._send({"type": "http.response.start", "status": 200, "headers": head})
        self.streaming = stream

    async def piece(self, body: bytes) -> None:
        await self._sent()
        await self._send_more(self._all_with(body))

    async def soon(self, body: bytes) -> None:
        """A piece that leaves when its writer waits for something, with all that was written until then: each time that
        something is sent costs more than what is sent. Waits while the client takes nothing.
        """
        await self._sent()
        if not self._together:
            asyncio.get_running_loop().call_soon(self._leave)
        self._together.append(body)

    async def end(self, last: bytes = b"") -> None:
        await self._sent()
        self.ended = True
        await self._send({"type": "http.response.body", "body": self._all_with(last), "more_body": False})

    async def close(self) -> None:
        """For whoever gives the client up: nothing more is sent."""
        self._together = []
        if self._leaving is not None:
            self._leaving.cancel()
            await asyncio.gather(self._leaving, return_exceptions=True)

    def _leave(self) -> None:
        if not self._together or self.ended:
            return
        leaving = _begun(self._send_more(self._all_with(b"")))
        if not leaving.done() or leaving.cancelled() or leaving.exception() is not None:
            self._leaving = leaving

    async def _send(self, message: Message) -> None:
        waiting = asyncio.get_running_loop().call_later(UNREAD_SECONDS, self._give_up)
        try:
            await self._raw_send(message)
        finally:
            waiting.cancel()

    def _give_up(self) -> None:
        if not self.unread.done():
            self.unread.set_result(None)

    async def _send_more(self, body: bytes) -> None:
        await self._send({"type": "http.response.body", "body": body, "more_body": True})

    async def _sent(self) -> None:
        """Wait until the pieces that left together are with the client. What sending them raised is raised to all who
        write behind them.
        """
        while (leaving := self._leaving) is not None:
            await asyncio.wait([leaving])
            leaving.result()
            if self._leaving is leaving:
                self._leaving = None

    def _all_with(self, body: bytes) -> bytes:
        together, self._together = self._together, []
        return b"".join([*together, body])


def _begun(sending: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    """Mostly there is nothing to wait for, and it is done at once."""
    loop = asyncio.get_running_loop()
    if sys.version_info >= (3, 12):
        return asyncio.Task(sending, loop=loop, eager_start=True)
    return loop.create_task(sending)


async def send_error(response: Response, format: Format, error: BenchError, headers: RawHeaders = ()) -> None:
    if response.ended:
        return
    if response.streaming is not None:
        await response.end(response.streaming.error(error))
        return
    more = list(headers)
    if error.status == 401:
        more.append((b"www-authenticate", b"Bearer"))
    if error.hopeless or error.status in {401, 403}:
        # OpenAI's and Anthropic's libraries ask again after a 5xx, which would be all the models; Claude Code asks for
        # minutes with a key that is refused.
        more.append((b"x-should-retry", b"false"))
    if error.status == 429 or error.retry_after is not None:
        more.append((b"retry-after", str(error.retry_after or 60).encode()))
    await response.whole(error.status, format.content_type, format.error(error), more)


async def send_last_error(response: Response, format: Format, error: BenchError) -> None:
    """The error, when nobody looks after the request any more: a client that takes nothing of it has left."""
    sending = asyncio.create_task(send_error(response, format, error), name="last error")
    try:
        await asyncio.wait([sending, response.unread], return_when=asyncio.FIRST_COMPLETED)
    finally:
        sending.cancel()
        await asyncio.wait([sending])
    if not sending.cancelled():
        sending.result()


async def send_refusal(
    response: Response, format: Format, brief: Brief, error: BenchError, headers: RawHeaders = ()
) -> None:
    """The error; or, where no answer has begun, what is said in the models' place as one answer."""
    if not isinstance(error, InsteadOfModels) or response.streaming is not None or response.ended:
        await send_error(response, format, error, headers)
        return
    envelope = Envelope(panel_id(), brief.model, int(time.time()), brief.include_usage)
    data = {"collection": f"bench/{brief.collection}", "reply": brief.reply, "note": INSTEAD}
    if not brief.stream:
        said = [Alternative(error.message, "content_filter")]
        body = format.whole(envelope, said, Usage(0, 0), data)
        await response.whole(200, format.content_type, body, headers)
        return
    stream = format.stream(envelope)
    await response.begin(stream, format.stream_content_type, headers)
    await response.piece(stream.begin() + stream.text(error.message))
    await response.end(stream.end(["content_filter"], Usage(0, 0), data))


async def hung_up(receive: Receive) -> None:
    """Returns when the client has left."""
    while (await receive())["type"] != "http.disconnect":
        pass


_HOST = re.compile(r"^[A-Za-z0-9.\-]+(?::\d{1,5})?$|^\[[0-9a-fA-F:]+\](?::\d{1,5})?$")


def verdict_url(config: Config, scope: Scope, headers: Headers) -> str:
    """Where the caller reaches us: as configured, else as the request was addressed."""
    base = config.access.public_url.rstrip("/")
    host = headers.get("host", "")
    if not base and _HOST.match(host):
        base = f"{scope.get('scheme', 'http')}://{host}{scope.get('root_path', '')}"
    return f"{base}/bench/verdict"
