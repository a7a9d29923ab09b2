"""One bench request in its format: authenticated, read, answered whole or streamed."""

import asyncio
import json
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, nullcontext, suppress
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
    InsteadOfModels,
    InvalidRequest,
    RequestTimeout,
    Stopping,
)
from bench_proxy.estimate import most_used
from bench_proxy.formats.base import Envelope, Format, Place
from bench_proxy.formats.brief import collection_of, is_bench_model, is_complete, read_brief
from bench_proxy.formats.relays import Native, as_sent
from bench_proxy.formats.request import Brief, ChatRequest
from bench_proxy.http.body import MOST_COMMAS, MOST_CONTAINERS, Incoming, check_json, top_level_model
from bench_proxy.http.responding import RawHeaders, Response, hung_up, send_last_error, send_refusal, verdict_url
from bench_proxy.http.rules import Admitted, NoRules, Rules, reported, reviewed
from bench_proxy.http.turns import TurnReply, serve_turn
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

HELD_LONGER = 60.0
"""Seconds after the longest time that a request can take: what is still set aside then was a process's that died."""

VENDORS_CHOICES = ("anthropic-beta", "anthropic-version")
"""Headers by which a caller chooses among a vendor's own features. No others go to a model's server."""


class Answering:
    """Answers a request that is for a bench model; `answer` is False when it turns out to be LiteLLM's."""

    def __init__(self, bench: Callable[[], Bench], authenticate: Authenticate, rules: Rules | None = None) -> None:
        self._bench = bench
        self._authenticate = authenticate
        self._rules = rules or NoRules()

    async def answer(self, place: Place, incoming: Incoming, scope: Scope, receive: Receive, send: Send) -> bool:
        body, model = await _parse(incoming)
        if place.model is not None:
            model = place.model
            body = None if body is None else {**body, "model": model}
        if not is_bench_model(model):
            return False
        response = Response(send)
        try:
            await self._reply(place, body, Headers(scope=scope), scope, receive, response, incoming)
        except BenchError as error:
            await send_last_error(response, place.format, error)
        except asyncio.CancelledError:
            # A server that stops waits for its requests, but not for ever.
            with suppress(Exception):
                stopping = Stopping("the proxy is stopping; what the seats have answered is on the record")
                await send_last_error(response, place.format, stopping)
            raise
        except Exception:
            log.exception("a bench request failed inside bench-proxy")
            await send_last_error(
                response, place.format, BenchError("internal error in bench-proxy; its log says more")
            )
        return True

    async def _reply(
        self,
        place: Place,
        body: dict[str, Any] | None,
        headers: Headers,
        scope: Scope,
        receive: Receive,
        response: Response,
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
        # Where LiteLLM has checked that this key may call this collection, only an error needs to know the others.
        complete = caller.checked and is_complete(body["model"], config)
        names = list(config.collections) if complete else await callable_collections(caller, config)
        brief = read_brief(body, headers, config, names, stream=wish.stream, include_usage=wish.include_usage)
        if brief.reply == "choices" and not wish.alternatives:
            brief = replace(brief, reply="all")
        ready = place.count(size(request.messages, request.settings).tokens) if place.count else wish.ready
        if ready is not None:
            await response.whole(200, format.content_type, ready, [])
            return
        url = verdict_url(config, scope, headers)
        ruled = self._rules.applied(caller, f"bench/{brief.collection}", request, known, body, stream=brief.stream)
        try:
            async with ruled as admitted, _held(caller, brief, admitted.request, bench):
                request = admitted.request
                # What a rule refuses or masks must not be read on the record instead; late seats it never sees.
                keep_text = not admitted.reviews
                if brief.reply == "route":
                    # What a rule has changed, or has to read, is not passed on in the caller's own words.
                    relayed = not (admitted.rewritten or admitted.reviews)
                    native = _native(place, body, headers) if relayed else None
                    turn = await bench.take_turn(brief, request, caller, config, native, keep_text=keep_text)
                    told = TurnReply(format, turn, brief, config, url, response, admitted, thoughts=wish.thoughts)
                    await serve_turn(told, receive)
                    return
                panel = await bench.ask(brief, request, caller, config, keep_text=keep_text)
                reply = _Reply(format, panel, brief, config, url, response, admitted)
                await _serve(bench, panel, reply, receive, admitted, cancel=_cancels(config, brief))
        except InsteadOfModels as instead:
            await send_refusal(response, format, brief, instead)


class _Reply:
    """Writes one panel to one client. It is cancelled when the client hangs up, and the panel's futures must not be."""

    def __init__(
        self, format: Format, panel: Panel, brief: Brief, config: Config, verdict_url: str, response: Response,
        admitted: Admitted,
    ) -> None:  # fmt: skip
        self._format = format
        self._panel = panel
        self._brief = brief
        self._keep_alive = config.timing.keep_alive
        self._stream_mode = config.collections[brief.collection].stream
        self._verdict_url = verdict_url
        self._response = response
        self._admitted = admitted
        self._envelope = Envelope(panel.id, brief.model, int(time.time()), brief.include_usage)
        self._stream = format.stream(self._envelope)
        self._begun = 0

    @property
    def unread(self) -> asyncio.Future[None]:
        return self._response.unread

    async def write(self) -> None:
        await (self._streamed() if self._brief.stream else self._whole())

    async def _whole(self) -> None:
        await self._admitted.clear()
        report = await asyncio.shield(self._panel.report)
        headers = _headers(self._brief, report.seating, report)
        try:
            report = await reviewed(self._admitted, report, self._panel.used.usage)
            data = report.as_json(self._verdict_url)
            check_answered(report, self._brief, data)
        except BenchError as error:
            error = await self._admitted.failed(error)
            await send_refusal(self._response, self._format, self._brief, error, headers)
            return
        answers = voices.alternatives(report, self._verdict_url)
        body = self._format.whole(self._envelope, answers, reported(report), data)
        await self._response.whole(200, self._format.content_type, body, headers)

    async def _streamed(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(SEATED_WITHIN):
                await self._admitted.clear()
                await asyncio.wait([self._panel.seating])
        seating = self._panel.seating.result() if self._panel.seating.done() else None
        headers = _headers(self._brief, seating, None, self._panel.id)
        await self._response.begin(self._stream, self._format.stream_content_type, headers)
        events = self._held_back() if self._admitted.reviews else self._events()
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
        await self._admitted.clear()
        # Shielded: a reply that is broken off must not take the panel's own futures with it.
        if opening := self._written(voice.opening(await asyncio.shield(self._panel.seating))):
            yield opening
        async with aclosing(self._panel.events()) as events:
            async for event in events:
                if written := self._written(voice.heard(event)):
                    yield written
        report = await asyncio.shield(self._panel.report)
        data = report.as_json(self._verdict_url)
        await self._admitted.settle(self._panel.used.usage)
        try:
            check_answered(report, self._brief, data)
        except BenchError as error:
            yield self._stream.error(await self._admitted.failed(error))
            return
        if closing := self._written(voice.closing(report)):
            yield closing
        yield self._stream.end(voices.finishes(report), reported(report), data)

    async def _held_back(self) -> AsyncGenerator[bytes, None]:
        """The same for a panel of which nothing leaves before a rule has read all of it."""
        yield self._written([voices.Delta("")])
        await self._admitted.clear()
        report = await asyncio.shield(self._panel.report)
        try:
            report = await reviewed(self._admitted, report, self._panel.used.usage)
            data = report.as_json(self._verdict_url)
            check_answered(report, self._brief, data)
        except BenchError as error:
            yield self._stream.error(await self._admitted.failed(error))
            return
        answers = voices.alternatives(report, self._verdict_url)
        for index, answer in enumerate(answers):
            yield self._written([voices.Delta(answer.text, index, done=len(answers) > 1)])
        yield self._stream.end([answer.finish_reason for answer in answers], reported(report), data)

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


async def _serve(
    bench: Bench, panel: Panel, reply: _Reply, receive: Receive, admitted: Admitted, *, cancel: bool
) -> None:
    """Run the panel and write it. The request lasts until the panel is done, also when its caller has hung up:
    so the server's own shutdown waits for every panel, late seats included, and owns no task that it cannot see.
    """
    running = bench.start(panel)
    writing = asyncio.create_task(reply.write(), name=f"reply {panel.id}")
    leaving = asyncio.create_task(hung_up(receive), name=f"caller of {panel.id}")
    try:
        await asyncio.wait([writing, leaving, reply.unread], return_when=asyncio.FIRST_COMPLETED)
        if not writing.done():
            log.info("panel %s: the caller hung up; %s", panel.id, "stopping it" if cancel else "it goes on")
            if cancel:
                running.cancel()
            writing.cancel()
            await _settle(panel, running, admitted)
        elif not writing.cancelled() and isinstance(writing.exception(), BenchError):
            # A rule that was looked up beside the panel refuses it.
            running.cancel()
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
        # What a panel that is refused or stopped has used counts as well.
        await admitted.settle(panel.used.usage)


async def _settle(panel: Panel, running: asyncio.Task[None], admitted: Admitted) -> None:
    """What a panel has used counts once it is over, whether or not anybody waits for it."""
    either: list[asyncio.Future[Any]] = [panel.report, running]
    await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
    if panel.report.cancelled():  # the seats that are stopped have not all said what they used
        await asyncio.wait([running])
    await admitted.settle(panel.used.usage)


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
    check_json(headers)


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


def _native(place: Place, body: Mapping[str, Any], headers: Headers) -> Native | None:
    if place.native is None:
        return None
    chosen = {name: value for name in VENDORS_CHOICES if (value := headers.get(name)) is not None}
    return Native(place.native, as_sent(body), chosen)


def _held(caller: Caller, brief: Brief, request: ChatRequest, bench: Bench) -> AbstractAsyncContextManager[None]:
    """A caller with a budget has the most that this request may use set aside, as long as anything of it can go on."""
    if caller.hold is None:
        return nullcontext()
    timing = bench.config.timing
    longest = 2 * timing.seat_timeout if brief.reply != "route" else timing.turn
    return caller.hold(most_used(brief, request, bench.config, bench.catalog), longest + HELD_LONGER)


def _cancels(config: Config, brief: Brief) -> bool:
    return config.collections[brief.collection].on_disconnect == "cancel"


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
