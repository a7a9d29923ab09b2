"""One configured bench-proxy in this process, for callers in any event loop or in none."""

import asyncio
import secrets
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterator, Mapping
from concurrent.futures import Future
from contextlib import suppress
from contextvars import copy_context
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from bench_proxy.bench import Bench, Caller, callable_collections
from bench_proxy.config import Config
from bench_proxy.errors import BenchError, InvalidRequest
from bench_proxy.formats.brief import is_complete, read_brief
from bench_proxy.formats.chat.format import ChatFormat
from bench_proxy.formats.request import Brief
from bench_proxy.host.billing import charge
from bench_proxy.host.sitting import Sitting

T = TypeVar("T")

CLOSED = "this installation of bench-proxy was closed"
BLOCKED = "a synchronous call would wait for the event loop that it blocks: use acompletion"

STOPPED_WITHIN = 20.0
"""Seconds in which a panel that was stopped is on the record, as long as an answer may wait for that."""


@dataclass(frozen=True, slots=True)
class Asked:
    """One call, as LiteLLM hands it over.

    `body` is what an OpenAI client would have sent; `timeout` is in seconds; `metadata` is LiteLLM's, in its proxy
    with the caller's key in it; `headers` are the `x-bench-…` ones of the request to the proxy, in lower case.
    """

    body: Mapping[str, Any]
    timeout: float | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class _Here:
    """What lives in one event loop: LiteLLM's clients and the ledger's writer are bound to the loop that made them."""

    bench: asyncio.Future[Bench]
    panels: set[asyncio.Task[None]] = field(default_factory=set)


class Installation:
    """Seats panels for whoever asks LiteLLM for a collection.

    `begin` makes the Bench of the running event loop, once a loop; `end` lets go of it. `caller` says who asks, by
    the metadata of the call. `home` is the loop that synchronous calls are answered in; without one they get a loop
    of their own, in a thread.
    """

    def __init__(
        self,
        config: Callable[[], Config],
        begin: Callable[[], Awaitable[Bench]],
        end: Callable[[Bench], Awaitable[None]],
        caller: Callable[[Mapping[str, Any]], Caller],
        *,
        verdict_path: str = "",
        home: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self.id = secrets.token_hex(8)
        self._config = config
        self._begin = begin
        self._end = end
        self._caller = caller
        self._verdict_path = verdict_path
        self._home = home
        self._thread: LoopThread | None = None
        self._lock = threading.Lock()
        self._loops: dict[asyncio.AbstractEventLoop, _Here] = {}
        self._closed = False

    @property
    def config(self) -> Config:
        return self._config()

    async def bench(self) -> Bench:
        """The one of the running event loop. Raises LedgerUnavailable, and BenchError once closed."""
        return (await self._here()).bench.result()

    async def sit(self, asked: Asked) -> Sitting:
        """Accept a panel and let it run. Raises BenchError for what cannot be honoured, as `Bench.ask` does."""
        here = await self._here()
        bench = here.bench.result()
        config = bench.config
        request, wish = ChatFormat().read(asked.body)
        caller = self._caller(asked.metadata)
        # LiteLLM has checked that this key may call this name; an error must not tell of others.
        complete = is_complete(asked.body["model"], config)
        brief = read_brief(
            asked.body,
            asked.headers,
            config,
            config.collections if complete else await callable_collections(caller, config),
            stream=wish.stream,
            include_usage=wish.include_usage,
        )
        brief = _in_time(brief, config, asked.timeout)
        panel = await bench.ask(brief, request, caller, config)
        context = copy_context()
        context.run(charge, asked.metadata)
        running = context.run(bench.start, panel)
        here.panels.add(running)
        running.add_done_callback(here.panels.discard)
        public = config.access.public_url.rstrip("/")
        return Sitting(panel, config, running, f"{public}/bench/verdict" if public else self._verdict_path)

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Do it for a synchronous caller, who waits. Raises what the work raises."""
        if self._closed or _is_running_here(self._synchronous()):
            work.close()
            raise BenchError(CLOSED) if self._closed else InvalidRequest(BLOCKED)
        future = asyncio.run_coroutine_threadsafe(work, self._synchronous())
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def iterate(self, stream: AsyncGenerator[T, None]) -> Iterator[T]:
        """The same, piece by piece."""
        try:
            while (piece := self.wait(_next(stream))) is not None:
                yield piece
        finally:
            # Not waited for: an iterator that was dropped ends in whatever thread finds it.
            if not self._closed:
                asyncio.run_coroutine_threadsafe(stream.aclose(), self._synchronous())

    async def close(self, patience: float | None = None) -> None:
        """Wait for the panels that still run, their late seats included, and let go of the ledger. Those that are not
        done after `patience` seconds are stopped; None is no limit.
        """
        self._closed = True
        for loop, here in list(self._loops.items()):
            if loop is asyncio.get_running_loop():
                await self._leave(here, patience)
            elif loop.is_running():
                await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._leave(here, patience), loop))
            else:
                await self._bury(here)
        self._loops.clear()
        if self._thread is not None:
            await asyncio.to_thread(self._thread.stop)

    async def _here(self) -> _Here:
        if self._closed:
            raise BenchError(CLOSED)
        loop = asyncio.get_running_loop()
        for ended in [other for other in list(self._loops) if other.is_closed()]:
            if (left := self._loops.pop(ended, None)) is not None:
                await self._bury(left)
        here = self._loops.get(loop)
        if here is None or (here.bench.done() and _made(here.bench) is None):
            here = self._loops[loop] = _Here(asyncio.ensure_future(self._begin()))
        await asyncio.shield(here.bench)
        return here

    async def _leave(self, here: _Here, patience: float | None) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(patience):
                while here.panels:
                    await asyncio.wait(here.panels)
        for panel in here.panels:
            panel.cancel()
        if here.panels:
            await asyncio.wait(here.panels, timeout=STOPPED_WITHIN)
        await self._bury(here)

    async def _bury(self, here: _Here) -> None:
        """Let go of what a loop had; the loop itself may have ended."""
        if (bench := _made(here.bench)) is not None:
            await self._end(bench)

    def _synchronous(self) -> asyncio.AbstractEventLoop:
        if self._home is not None:
            return self._home
        with self._lock:
            if self._thread is None:
                self._thread = LoopThread()
        return self._thread.loop


class LoopThread:
    """An event loop in a thread of its own, which ends with the process if it is not stopped before."""

    def __init__(self) -> None:
        running: Future[asyncio.AbstractEventLoop] = Future()
        self._thread = threading.Thread(target=self._run, args=[running], name="bench-proxy", daemon=True)
        self._thread.start()
        self.loop = running.result()

    def stop(self) -> None:
        """Cancel what is left in the loop, LiteLLM's own tasks too, and wait for its end."""
        self.loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join()

    def _run(self, running: Future[asyncio.AbstractEventLoop]) -> None:
        async def until_stopped() -> None:
            self._stopping = asyncio.Event()
            running.set_result(asyncio.get_running_loop())
            await self._stopping.wait()

        asyncio.run(until_stopped())


def _is_running_here(loop: asyncio.AbstractEventLoop) -> bool:
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False


def _made(bench: asyncio.Future[Bench]) -> Bench | None:
    return bench.result() if bench.done() and not bench.cancelled() and bench.exception() is None else None


async def _next(stream: AsyncGenerator[T, None]) -> T | None:
    return await anext(stream, None)


def _in_time(brief: Brief, config: Config, timeout: float | None) -> Brief:
    """A caller's time-out is a deadline: what is there by then is the answer."""
    own = brief.deadline or config.collections[brief.collection].deadline or config.timing.seat_timeout
    return brief if timeout is None or timeout >= own else replace(brief, deadline=timeout)
