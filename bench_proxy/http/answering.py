"""One bench request in its format: authenticated, read, answered whole or streamed."""

import asyncio
import json
import logging
import re
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import replace
from typing import Any

import orjson
from starlette.datastructures import Headers
from starlette.types import Receive, Scope, Send

from bench_proxy.bench import Bench, Caller, callable_collections
from bench_proxy.config import Config
from bench_proxy.errors import (
    BenchError,
    BodyTooLarge,
    InvalidRequest,
    PanelFailed,
    RequestTimeout,
    Stopping,
    WrongContentType,
)
from bench_proxy.formats.base import Envelope, Format, Place, Stream, Usage
from bench_proxy.formats.brief import collection_of, is_bench_model, is_complete, read_brief
from bench_proxy.formats.request import Brief
from bench_proxy.http.body import MOST_COMMAS, MOST_CONTAINERS, Incoming, top_level_model
from bench_proxy.panel import voices
from bench_proxy.panel.panel import Panel, check_answered
from bench_proxy.panel.seats import Report, Seating
from bench_proxy.size import size

log = logging.getLogger("bench_proxy")

Authenticate = Callable[[Scope, Receive, Mapping[str, Any] | None], Awaitable[Caller]]

DEEPEST = 100
"""Levels of nesting that a body may have."""

SEATED_WITHIN = 1.0
"""Seconds after which the 200 of a stream leaves, seated or not."""

MOST_HEADER = 4096

RawHeaders = Sequence[tuple[bytes, bytes]]


class Answering:
    """Answers a request that is for a bench model; `answer` is False when it turns out to be LiteLLM's."""

    def __init__(self, bench: Callable[[], Bench], authenticate: Authenticate) -> None:
        self._bench = bench
        self._authenticate = authenticate

    async def answer(self, place: Place, incoming: Incoming, scope: Scope, receive: Receive, send: Send) -> bool:
        body, model = await _parse(incoming)
        if place.model is not None:
            model = place.model
            body = None if body is None else {**body, "model": model}
        if not is_bench_model(model):
            return False
        response = Response(send)
        try:
            await self._panel(place, body, Headers(scope=scope), scope, receive, response, incoming)
        except BenchError as error:
            await send_error(response, place.format, error)
        except asyncio.CancelledError:
            # A server that stops waits for its requests, but not for ever.
            with suppress(Exception):
                stopping = Stopping("the proxy is stopping; what the seats have answered is on the record")
                await send_error(response, place.format, stopping)
            raise
        except Exception:
            log.exception("a bench request failed inside bench-proxy")
            await send_error(response, place.format, BenchError("internal error in bench-proxy; its log says more"))
        return True

    async def _panel(
        self,
        place: Place,
        body: dict[str, Any] | None,
        headers: Headers,
        scope: Scope,
        receive: Receive,
        response: "Response",
        incoming: Incoming,
    ) -> None:
        bench, format = self._bench(), place.format
        config = bench.config
        check_transport(incoming, headers, config)
        if body is not None:
            # Before anyone was asked for a key, as LiteLLM looks into the body to ask.
            if incoming.large:
                await asyncio.to_thread(_check_depth, body)
            else:
                _check_depth(body)
        known = {**scope, "path": place.host_path} if place.host_path else scope
        caller = await self._authenticate(known, incoming.replay(receive), _asked_of_litellm(body))
        if body is None:
            raise InvalidRequest("the body is not JSON, or not UTF-8; send one JSON object")
        large = incoming.large
        request, wish = await asyncio.to_thread(format.read, body) if large else format.read(body)
        # LiteLLM has checked that this key may call this collection; an error also says which others it may call.
        complete = is_complete(body["model"], config)
        names = list(config.collections) if complete else await callable_collections(caller, config)
        brief = read_brief(body, headers, config, names, stream=wish.stream, include_usage=wish.include_usage)
        if brief.reply == "choices" and not wish.alternatives:
            brief = replace(brief, reply="all")
        ready = place.count(size(request.messages, request.settings).tokens) if place.count else wish.ready
        if ready is not None:
            await response.whole(200, format.content_type, ready, [])
            return
        panel = await bench.ask(brief, request, caller, config)
        reply = _Reply(format, panel, brief, config, _verdict_url(config, scope, headers), response)
        await _serve(bench, panel, reply, receive, cancel=_cancels(config, brief))


class Response:
    """What has left for the client. After the first byte an error can only be an event in the stream."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.streaming: Stream | None = None
        self.ended = False

    async def whole(self, status: int, content_type: str, body: bytes, headers: RawHeaders) -> None:
        length = (b"content-length", str(len(body)).encode())
        head = [(b"content-type", content_type.encode()), length, *headers]
        await self._send({"type": "http.response.start", "status": status, "headers": head})
        self.ended = True
        await self._send({"type": "http.response.body", "body": body})

    async def begin(self, stream: Stream, content_type: str, headers: RawHeaders) -> None:
        kind = (b"content-type", content_type.encode())
        head = [kind, (b"cache-control", b"no-cache"), (b"x-accel-buffering", b"no"), *headers]
        await self._send({"type": "http.response.start", "status": 200, "headers": head})
        self.streaming = stream

    async def piece(self, body: bytes) -> None:
        await self._send({"type": "http.response.body", "body": body, "more_body": True})

    async def end(self) -> None:
        self.ended = True
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})


class _Reply:
    """Writes one panel to one client. It is cancelled when the client hangs up, and the panel's futures must not be."""

    def __init__(
        self, format: Format, panel: Panel, brief: Brief, config: Config, verdict_url: str, response: Response
    ) -> None:
        self._format = format
        self._panel = panel
        self._brief = brief
        self._keep_alive = config.timing.keep_alive
        self._stream_mode = config.collections[brief.collection].stream
        self._verdict_url = verdict_url
        self._response = response
        self._envelope = Envelope(panel.id, brief.model, int(time.time()), brief.include_usage)
        self._stream = format.stream(self._envelope)
        self._begun = 0

    async def write(self) -> None:
        await (self._streamed() if self._brief.stream else self._whole())

    async def _whole(self) -> None:
        report = await asyncio.shield(self._panel.report)
        data = report.as_json(self._verdict_url)
        headers = _headers(self._brief, report.seating, report)
        try:
            check_answered(report, self._brief, data)
        except BenchError as error:
            await send_error(self._response, self._format, error, headers)
            return
        body = self._format.whole(self._envelope, voices.alternatives(report, self._verdict_url), _usage(report), data)
        await self._response.whole(200, self._format.content_type, body, headers)

    async def _streamed(self) -> None:
        await asyncio.wait([self._panel.seating], timeout=SEATED_WITHIN)
        seating = self._panel.seating.result() if self._panel.seating.done() else None
        headers = _headers(self._brief, seating, None, self._panel.id)
        await self._response.begin(self._stream, self._format.stream_content_type, headers)
        events = self._events()
        pending: asyncio.Future[bytes] | None = None
        try:
            while True:
                pending = pending or asyncio.ensure_future(anext(events))
                await asyncio.wait([pending], timeout=self._keep_alive)
                if not pending.done():
                    await self._response.piece(self._stream.keep_alive())
                    continue
                done, pending = pending, None
                await self._response.piece(done.result())
        except StopAsyncIteration:
            await self._response.end()
        finally:
            if pending is not None:
                pending.cancel()
                await asyncio.wait([pending])
            await events.aclose()

    async def _events(self) -> AsyncGenerator[bytes, None]:
        voice = voices.voice(self._brief, self._stream_mode, self._verdict_url)
        yield self._written([voices.Delta("")])
        # Shielded: a reply that is broken off must not take the panel's own futures with it.
        if opening := self._written(voice.opening(await asyncio.shield(self._panel.seating))):
            yield opening
        async with aclosing(self._panel.events()) as events:
            async for event in events:
                if written := self._written(voice.heard(event)):
                    yield written
        report = await asyncio.shield(self._panel.report)
        data = report.as_json(self._verdict_url)
        try:
            check_answered(report, self._brief, data)
        except BenchError as error:
            yield self._stream.error(error)
            return
        if closing := self._written(voice.closing(report)):
            yield closing
        yield self._stream.end(voices.finishes(report), _usage(report), data)

    def _written(self, deltas: Sequence[voices.Delta]) -> bytes:
        """The deltas in the format, with the beginning of each alternative that has none yet."""
        pieces: list[bytes] = []
        for delta in deltas:
            while self._begun <= delta.index:
                pieces.append(self._stream.begin(self._begun))
                self._begun += 1
            if delta.text:
                pieces.append(self._stream.text(delta.text, delta.index))
            if delta.done:
                pieces.append(self._stream.done(delta.index))
        return b"".join(pieces)


async def _serve(bench: Bench, panel: Panel, reply: _Reply, receive: Receive, *, cancel: bool) -> None:
    """Run the panel and write it. The request lasts until the panel is done, also when its caller has hung up:
    so the server's own shutdown waits for every panel, late seats included, and owns no task that it cannot see.
    """
    running = bench.start(panel)
    writing = asyncio.create_task(reply.write(), name=f"reply {panel.id}")
    leaving = asyncio.create_task(_hung_up(receive), name=f"caller of {panel.id}")
    try:
        await asyncio.wait([writing, leaving], return_when=asyncio.FIRST_COMPLETED)
        if not writing.done():
            log.info("panel %s: the caller hung up; %s", panel.id, "stopping it" if cancel else "it goes on")
            if cancel:
                running.cancel()
            writing.cancel()
        leaving.cancel()
        await asyncio.wait([running, writing, leaving])
        for task in (running, writing):
            if not task.cancelled() and (error := task.exception()) is not None:
                raise error
    finally:
        for task in (running, writing, leaving):
            # A panel that is being stopped waits for its seats: a second time would break that off.
            if not task.cancelling():
                task.cancel()
        await asyncio.wait([running, writing, leaving])


async def _hung_up(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _parse(incoming: Incoming) -> tuple[dict[str, Any] | None, object]:
    """The body as an object, None when it is none, and the model that it asks for."""
    if incoming.whole and not incoming.too_large and not incoming.sprawls:
        try:
            read = orjson.loads
            body = await asyncio.to_thread(read, incoming.body) if incoming.large else read(incoming.body)
        except orjson.JSONDecodeError:
            pass
        else:
            return (body, body.get("model")) if isinstance(body, dict) else (None, None)
    return None, await asyncio.to_thread(top_level_model, incoming.body)


def check_transport(incoming: Incoming, headers: Headers, config: Config) -> None:
    if incoming.too_large:
        limit = config.limits.max_body_mb
        raise BodyTooLarge(f"the body is larger than {limit:g} MB; send image URLs, or smaller images")
    if incoming.sprawls:
        raise InvalidRequest(
            f"the body holds more than {MOST_CONTAINERS:,} lists and objects, or {MOST_COMMAS:,} commas"
        )
    if not incoming.whole:
        raise RequestTimeout("the body did not arrive; send it without long pauses")
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json" and not (kind.startswith("application/") and kind.endswith("+json")):
        raise WrongContentType(f'Content-Type is "{kind[:100]}"; send application/json')


def _asked_of_litellm(body: dict[str, Any] | None) -> dict[str, Any]:
    """What LiteLLM is to authorize: the collection as a model, whatever mode is asked of it."""
    if body is None:
        return {}
    return {**body, "model": f"bench/{collection_of(body['model'])}".rstrip("/")}


def _check_depth(body: object) -> None:
    level: list[Any] = [body]
    for _ in range(DEEPEST):
        inner: list[Any] = []
        for value in level:
            if isinstance(value, dict):
                inner += [v for v in value.values() if isinstance(v, dict | list)]
            elif isinstance(value, list):
                inner += [v for v in value if isinstance(v, dict | list)]
        if not inner:
            return
        level = inner
    raise InvalidRequest(f"the body is nested more than {DEEPEST} levels deep")


def _cancels(config: Config, brief: Brief) -> bool:
    return config.collections[brief.collection].on_disconnect == "cancel"


_HOST = re.compile(r"^[A-Za-z0-9.\-]+(?::\d{1,5})?$|^\[[0-9a-fA-F:]+\](?::\d{1,5})?$")


def _verdict_url(config: Config, scope: Scope, headers: Headers) -> str:
    """Where the caller reaches us: as configured, else as the request was addressed."""
    base = config.access.public_url.rstrip("/")
    host = headers.get("host", "")
    if not base and _HOST.match(host):
        base = f"{scope.get('scheme', 'http')}://{host}{scope.get('root_path', '')}"
    return f"{base}/bench/verdict"


def _usage(report: Report) -> Usage:
    return Usage(report.prompt_tokens, report.completion_tokens)


def _headers(brief: Brief, seating: Seating | None, report: Report | None, panel: str = "") -> RawHeaders:
    """The `X-Bench-…` headers, as far as they are known. A call id is told only once its answer is on the record."""
    headers = [
        (b"x-bench-panel", (seating.panel if seating else panel).encode()),
        (b"x-bench-collection", f"bench/{brief.collection}".encode()),
    ]
    if report is not None:
        headers.append((b"x-bench-partial", b"true" if report.partial else b"false"))
        told = [
            {"call": a.seat.call, "seat": a.seat.shown_kind, "alias": a.seat.name, "status": a.status}
            for a in report.answers
        ]
    elif seating is not None:
        if seating.skipped:
            headers.append((b"x-bench-partial", b"true"))
        told = [{"seat": s.shown_kind, "alias": s.name, "status": "asked"} for s in seating.seats]
    else:
        return headers
    headers.append((b"x-bench-seats", _compact(told)))
    return headers


def _compact(seats: list[dict[str, str]]) -> bytes:
    """ASCII JSON of at most 4 KB; seats that do not fit are left to the body."""
    while True:
        text = json.dumps(seats, separators=(",", ":"))
        if len(text) <= MOST_HEADER:
            return text.encode("ascii")
        seats = seats[:-1]


async def send_error(response: Response, format: Format, error: BenchError, headers: RawHeaders = ()) -> None:
    if response.ended:
        return
    if response.streaming is not None:
        await response.piece(response.streaming.error(error))
        await response.end()
        return
    more = list(headers)
    if error.status == 401:
        more.append((b"www-authenticate", b"Bearer"))
    if isinstance(error, PanelFailed) and error.retry_after is None:
        # OpenAI's and Anthropic's libraries ask again after a 5xx, which would be the whole panel.
        more.append((b"x-should-retry", b"false"))
    if error.status == 429 or error.retry_after is not None:
        more.append((b"retry-after", str(error.retry_after or 60).encode()))
    await response.whole(error.status, format.content_type, format.error(error), more)
