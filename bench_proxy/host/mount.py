"""Puts our gate in front of LiteLLM's routes, and finds what LiteLLM was started with."""

import asyncio
import logging
import signal
import sys
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import FrameType, MethodType

import litellm
import uvicorn
from litellm import Router
from litellm.integrations.custom_logger import CustomLogger
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import BaseRoute
from starlette.types import ASGIApp

log = logging.getLogger("bench_proxy")


CALLBACK_LISTS = (
    "callbacks",
    "input_callback",
    "success_callback",
    "failure_callback",
    "service_callback",
    "_async_success_callback",
    "_async_failure_callback",
)
"""Where LiteLLM puts an object that its configuration names as a callback."""


class Gateway(CustomLogger):
    """What `callbacks: [bench_proxy.gateway]` names. LiteLLM takes only objects of this class; it has no hooks."""


def in_proxy() -> bool:
    """Whether this process is a LiteLLM proxy, and not someone's script that uses LiteLLM."""
    return "litellm.proxy.proxy_server" in sys.modules


def host_app() -> ASGIApp:
    """LiteLLM's own router, without its middlewares, which a request has passed already."""
    from litellm.proxy.proxy_server import app

    return app.router  # type: ignore[no-any-return]


def put_first(route: BaseRoute) -> None:
    from litellm.proxy.proxy_server import app

    app.router.routes.insert(0, route)


def put_around_cors(wrap: Callable[[ASGIApp], ASGIApp]) -> None:
    """Put an app of ours around LiteLLM's CORS, which answers preflights itself and adds its headers to any reply.

    By the time that a callback is loaded no middleware can be added, so it is put in between: not around all of them,
    since the outermost ones find out the prefix that the proxy is mounted at.
    """
    from litellm.proxy.proxy_server import app

    holder, name = app, "middleware_stack"
    while not isinstance(inner := getattr(holder, name), CORSMiddleware):
        if not hasattr(inner, "app"):  # without any, nothing stands in our way
            holder, name = app, "middleware_stack"
            break
        holder, name = inner, "app"
    setattr(holder, name, wrap(getattr(holder, name)))


def router() -> Router | None:
    from litellm.proxy import proxy_server

    return proxy_server.llm_router


def config_file() -> Path | None:
    """The YAML file that LiteLLM was started with; known from the moment that it reads it."""
    from litellm.proxy import proxy_server

    return Path(proxy_server.user_config_file_path) if proxy_server.user_config_file_path else None


def models_in_database() -> bool:
    """Whether LiteLLM can serve models that no file lists."""
    from litellm.proxy import proxy_server

    return bool(proxy_server.store_model_in_db or proxy_server.prisma_client is not None)


def take_out(gateway: CustomLogger) -> None:
    """Take our object out of LiteLLM's callback lists: it has done its work when it was loaded, and each callback
    that LiteLLM carries costs every request a few per cent.
    """
    for name in CALLBACK_LISTS:
        listed = getattr(litellm, name, None)
        litellm.logging_callback_manager.remove_callback_from_list_by_object(listed, gateway, require_self=False)


AGAIN_SECONDS = 5.0
"""After which a start that failed is tried again: a database may come later than we do."""

LOOKS_AGAIN = 0.05
"""Seconds between two looks at whether a server that is to stop still takes requests."""

ENDS_WITHIN = 60
"""Seconds that we may take behind the last request: LiteLLM's callbacks are told of what it does not know yet."""

CANCELLED_WITHIN = 5.0
"""Seconds in which a request that was cancelled ends, before its connection is cut."""

Stop = Callable[[float | None], None]
"""Told that no request runs any more, and how many seconds are left to what goes on without one; None is no limit."""


class Keeper:
    """Runs `begin` now and `end` when the process stops: behind its last request, while all other tasks still run.

    LiteLLM's lifespan is already under way when it loads a callback, so that its shutdown cannot be joined. uvicorn
    can be told, and waits for as long as it waits for requests: behind that, `end` runs when the other tasks have been
    cancelled. Other servers that end their event loop cancel the tasks that are left, and wait for them.
    """

    def __init__(self, begin: Callable[[], Awaitable[None]], end: Callable[[float | None], Awaitable[None]]) -> None:
        """`end` is told how many seconds it may wait for work that nobody asks for any more; None is no limit."""
        self._begin = begin
        self._end = end
        self._begun: asyncio.Task[None] | None = None
        self._keeping: asyncio.Task[None] | None = None
        self._stopping = asyncio.Event()
        self._patience: float | None = None

    def start(self) -> None:
        self._keeping = asyncio.get_running_loop().create_task(self._keep(), name="bench-proxy")
        wait_for_when_stopping(self._keeping, self._stop)

    def _stop(self, patience: float | None) -> None:
        self._patience = patience
        self._stopping.set()

    @property
    def beginning(self) -> bool:
        return self._begun is None or not self._begun.done()

    async def ready(self) -> None:
        """Wait until `begin` is done, well or not."""
        if self._begun is not None:
            await asyncio.wait([self._begun])

    async def _keep(self) -> None:
        stopping = asyncio.create_task(self._stopping.wait(), name="bench-proxy waits for the stop")
        try:
            while not stopping.done():
                self._begun = asyncio.ensure_future(self._begin())
                await asyncio.wait([self._begun, stopping], return_when=asyncio.FIRST_COMPLETED)
                if not self._begun.done():
                    break
                if (error := self._begun.exception()) is None:
                    await asyncio.wait([stopping])
                    break
                log.error("bench-proxy could not start, and tries again in %g seconds: %s", AGAIN_SECONDS, error)
                await asyncio.wait([stopping], timeout=AGAIN_SECONDS)
        finally:
            stopping.cancel()
            try:
                await self._stop_beginning()
                await self._finish()
            except asyncio.CancelledError:
                # A server whose patience has ended cancels what is ending already: the rest of it is quickly done.
                await self._stop_beginning()
                await self._finish()
                raise

    async def _stop_beginning(self) -> None:
        if self._begun is not None and not self._begun.done():
            if not self._begun.cancelling():
                self._begun.cancel()
            await asyncio.wait([self._begun])

    async def _finish(self) -> None:
        try:
            await self._end(self._patience)
        except Exception:  # nobody else would say it
            log.exception("bench-proxy did not end well")


def wait_for_when_stopping(task: asyncio.Task[None], stop: Stop) -> None:
    """When a signal stops uvicorn, call `stop` behind its last request, and let it wait for the task as for requests.

    Without it SIGTERM would kill the process behind the last request: uvicorn raises the signal that has stopped it
    once more, now with what the signal did before. So it is told of a SIGINT, by which asyncio ends the tasks that are
    left.
    """
    stops = signal.getsignal(signal.SIGTERM)
    server = getattr(stops, "__self__", None)
    if not (callable(stops) and isinstance(server, uvicorn.Server) and _in_main_thread()):
        return
    loop = asyncio.get_running_loop()
    running = server.server_state.tasks
    patience = server.config.timeout_graceful_shutdown

    async def behind_requests() -> None:
        while not server.started or any(listening.is_serving() for listening in server.servers):  # noqa: ASYNC110
            await asyncio.sleep(LOOKS_AGAIN)
        stop(await _ended(running, server, patience))
        # Not awaited itself, as whoever cancels this one, when its patience has ended, means no more than this one.
        await asyncio.wait([task])

    def begin_to_stop() -> None:
        if patience is not None:
            # Requests have as long as they would have had; uvicorn itself waits for what comes behind them, too.
            server.config.timeout_graceful_shutdown = patience + ENDS_WITHIN
        waiting = loop.create_task(behind_requests(), name="bench-proxy waits for the last request")
        running.add(waiting)
        waiting.add_done_callback(running.discard)

    def stopped(server: uvicorn.Server, number: int, frame: FrameType | None) -> None:
        if not server.should_exit:
            loop.call_soon_threadsafe(begin_to_stop)
            stops(signal.SIGINT, frame)
        elif number == signal.SIGINT:  # twice: at once
            stops(number, frame)

    for number in (signal.SIGTERM, signal.SIGINT):
        # A method of the server's, by which others find it as well.
        signal.signal(number, MethodType(stopped, server))
    if server.should_exit:  # already, while LiteLLM was starting
        loop.call_soon(begin_to_stop)


async def _ended(running: set[asyncio.Task[None]], server: uvicorn.Server, patience: float | None) -> float | None:
    """Wait until no request runs and no connection is open, and return what is left of the patience. What outlasts it
    is cancelled, and the connections are cut: that of a client which does not read stays open behind its request, too.
    """
    loop, connections = asyncio.get_running_loop(), server.server_state.connections
    began = loop.time()
    try:
        async with asyncio.timeout(patience):
            while connections or running - {asyncio.current_task()}:  # noqa: ASYNC110  uvicorn tells nobody
                await asyncio.sleep(LOOKS_AGAIN)
    except TimeoutError:
        if requests := running - {asyncio.current_task()}:
            log.warning("requests that still run %g seconds after the stop are cancelled: %d", patience, len(requests))
            for request in requests:
                request.cancel("the server stops, and its patience is over")
            await asyncio.wait(requests, timeout=CANCELLED_WITHIN)
        for connection in list(connections):
            connection.transport.abort()
    return None if patience is None else max(0.0, began + patience - loop.time())


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()
