"""Builds everything once a process and mounts it in LiteLLM's proxy."""

import asyncio
import atexit
import contextlib
import gc
import logging
import logging.handlers
import queue
import signal
import sys
from functools import cache

from bench_proxy.bench import Bench
from bench_proxy.config import Config, Source, environment, load, master_key
from bench_proxy.errors import ConfigError, LedgerUnavailable
from bench_proxy.host import models, mount
from bench_proxy.host.auth import Authentication, caller_of, check_body
from bench_proxy.host.billing import charge
from bench_proxy.host.decisions import Decisions
from bench_proxy.host.hooks import Hooks
from bench_proxy.host.installation import Installation
from bench_proxy.host.keyless import requiring_key
from bench_proxy.host.known import Known
from bench_proxy.host.lean import LeanLane
from bench_proxy.host.native.lane import NativeLane
from bench_proxy.host.pins import HostPins
from bench_proxy.host.provider import PROVIDING
from bench_proxy.host.reporting import Reporting
from bench_proxy.host.upstream import RouterLane
from bench_proxy.http import routes
from bench_proxy.http.admission import Admission
from bench_proxy.http.answering import Answering
from bench_proxy.http.cors import Cors
from bench_proxy.http.gate import Gate
from bench_proxy.http.listing import Listing
from bench_proxy.http.ollama import OllamaRoutes
from bench_proxy.http.sent_keys import is_taken
from bench_proxy.keys import KeyStore
from bench_proxy.ledger.store import SqlLedger

log = logging.getLogger("bench_proxy")

WATCH_SECONDS = 2.0
"""How often the configuration's files are looked at."""

TAKEN = (
    "general_settings.master_key: what begins with bpk_ is a bench key, which LiteLLM never sees, so that nobody could"
    " use this one; choose another that begins with sk-"
)

STARTING = "bench-proxy is starting; ask again in a moment"
NOT_STARTED = "bench-proxy could not start; the proxy's log says why"

NEW_MODELS = "\n(LiteLLM knows a model that was added to model_list after a restart.)"

FREEZE_AFTER = 2.0
"""Seconds after the first request, when LiteLLM has imported what it imports late."""


@cache
def gateway() -> mount.Gateway:
    """LiteLLM's handle on us. Inside its proxy the extension is mounted, once, however often it is named.

    Raises ConfigError when the `bench:` block is unusable, which stops LiteLLM's start.
    """
    handle = mount.Gateway()
    if mount.in_proxy():
        Extension(handle).mount()
    return handle


class Extension:
    """The parts of bench-proxy in one LiteLLM process."""

    def __init__(self, handle: mount.Gateway) -> None:
        self._handle = handle
        file = mount.config_file() or environment().litellm_config
        if file is None:
            raise ConfigError("bench-proxy", ["start LiteLLM with --config: the bench: block stands in its file"])
        self._config, self._source = load(file, override=environment().bench_config)
        self._current = True
        if is_taken(master_key(file)):
            raise ConfigError(str(file), [TAKEN])
        self._known = Known(mount.router, self.config)
        self._bench: Bench | None = None
        self._ledger: SqlLedger | None = None
        self._keys: KeyStore | None = None
        self._lean: LeanLane | None = None
        self._reporting: Reporting | None = None
        self._lanes: dict[str, str] = {}
        self._lanes_of: Config | None = None
        self._watching: asyncio.Task[None] | None = None
        self._sharing: asyncio.Task[None] | None = None
        self._pruning: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        self._keeper = mount.Keeper(self._begin, self._end)
        self._installation: Installation | None = None

    def mount(self) -> None:
        _show_log()
        if sys.version_info < (3, 12):
            log.warning("Python %d.%d: LiteLLM can crash under streams on it; use 3.12 or newer", *sys.version_info[:2])
        self._installation = Installation(
            self.config,
            self._begun,
            _kept,
            caller_of,
            verdict_path="/bench/verdict",
            home=asyncio.get_running_loop(),
        )
        # Before LiteLLM makes its router, which has to know the provider of each deployment.
        PROVIDING.enter(self._installation)
        host = requiring_key(Authentication(), lambda: self._config.access.require_key)
        admission = Admission(host, self._key_store, charge, lambda: self._config.collections, check_body)
        answering = Answering(self.bench, admission, Hooks())
        own = routes.build(self.bench, admission, self._lane, self._key_store, lambda: self._current)
        listing = Listing(self.bench, admission)
        gate = Gate(
            mount.host_app(),
            own,
            answering,
            listing,
            OllamaRoutes(self.bench, listing.entries, admission),
            ready=self._keeper.ready,
            most_bytes=lambda: self._config.limits.max_body_bytes,
            first=self._settle,
            loopback_only=environment().loopback_only,
            access=lambda: self._config.access,
        )
        mount.put_first(gate)
        mount.put_around_cors(lambda app: Cors(app, gate.claim, lambda: self._config.access.allowed_origins))
        self._keeper.start()

    def bench(self) -> Bench:
        if self._bench is None:
            raise LedgerUnavailable(STARTING if self._keeper.beginning else NOT_STARTED)
        return self._bench

    def _key_store(self) -> KeyStore:
        if self._keys is None:
            raise LedgerUnavailable(STARTING if self._keeper.beginning else NOT_STARTED)
        return self._keys

    async def _begun(self) -> Bench:
        await self._keeper.ready()
        return self.bench()

    def _settle(self) -> None:
        """Once LiteLLM has read its whole configuration, which may have a table of providers of its own."""
        mount.take_out(self._handle)
        PROVIDING.register()
        # What LiteLLM has loaded stays: a full collection that looks at it again stops every request for 0.4 s.
        asyncio.get_running_loop().call_later(FREEZE_AFTER, _freeze)

    def config(self) -> Config:
        return self._config

    async def _begin(self) -> None:
        if self._ledger is None:  # else from a start that failed behind it
            self._ledger = await SqlLedger.open(self._config.ledger.url, lambda: self._config.ledger.content)
        ledger = self._ledger
        with contextlib.suppress(LedgerUnavailable):  # nothing depends on it, and it is tried again
            await self._known.facts.exchange(ledger)
        self._keys = ledger
        self._reporting = Reporting(limits=mount.models_in_database)
        by_router = RouterLane(mount.router, self._known.priced)
        self._lean = LeanLane(mount.router, by_router, self._reporting, self._forced_lanes, self._known.priced)
        self._bench = Bench(
            self._lean,
            ledger,
            self.config,
            self._known.catalog,
            Decisions(mount.router),
            cooling=self._known.cooling,
            facts=self._known.facts,
            pins=HostPins(mount.router),
            native=NativeLane(mount.router, self._lean, self._forced_lanes, self._known.priced),
        )
        self._sharing = asyncio.create_task(self._known.share(ledger), name="bench-sharing")
        keeping = ledger.pruning.run(lambda: self._config.ledger.keep_days)
        self._pruning = asyncio.create_task(keeping, name="bench-pruning")
        self._watching = asyncio.create_task(self._watch(), name="bench-config")
        # Other platforms have no SIGHUP, other threads no signals; the file is watched there too.
        with contextlib.suppress(NotImplementedError, AttributeError, ValueError, RuntimeError):
            asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self._changed.set)

    def _lane(self, alias: str) -> dict[str, str]:
        return self._lean.lane(alias) if self._lean is not None else {}

    def _forced_lanes(self) -> dict[str, str]:
        if self._lanes_of is not self._config:
            self._lanes_of = self._config
            self._lanes = {name: facts.lane for name, facts in self._config.models.items()}
        return self._lanes

    async def _end(self, patience: float | None = None) -> None:
        """In this order, since each may still need what is behind it; none is left out because another failed."""
        tasks = [task for task in (self._watching, self._sharing, self._pruning) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        async with contextlib.AsyncExitStack() as last_first:
            if self._ledger is not None:
                last_first.push_async_callback(self._ledger.close)
            if self._lean is not None:
                last_first.push_async_callback(self._lean.close)
            if self._reporting is not None:
                last_first.push_async_callback(self._reporting.close)
            if self._bench is not None:
                # Before the lanes: shadows whose connections were closed would have failed by their members.
                last_first.push_async_callback(self._bench.routing.finish)
            if self._installation is not None:
                PROVIDING.leave(self._installation)
                last_first.push_async_callback(self._installation.close, patience)

    async def _watch(self) -> None:
        """Reload when a file changed, or SIGHUP said so."""
        seen = await _stamp(self._source)
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(WATCH_SECONDS):
                    await self._changed.wait()
            now = await _stamp(self._source)
            if self._changed.is_set() or now != seen:
                self._changed.clear()
                seen = now
                await self._reload()

    async def _reload(self) -> None:
        """A good file takes effect for the next request; a bad one is logged and the old one stays."""
        router = mount.router()
        known = None if mount.models_in_database() or router is None else frozenset(router.get_model_names())
        panels = models.panels(router) if router is not None else frozenset()
        override, file = environment().bench_config, self._source.litellm_file
        try:
            # In a thread: a long file takes a second, in which no stream would go on.
            fresh, self._source = await asyncio.to_thread(load, file, override=override, models=known, panels=panels)
        except ConfigError as error:
            self._current = False
            log.error("the changed configuration is not used:\n%s%s", error, NEW_MODELS if known is not None else "")
            return
        except Exception:  # whatever a file can hold, the next change is looked at again
            self._current = False
            log.exception("the changed configuration is not used")
            return
        if fresh.ledger.url != self._config.ledger.url:
            log.warning("ledger.url changed: it takes effect at the next start")
        self._config, self._current = fresh, True
        log.info("configuration reloaded; collections: %d", len(fresh.collections))


def _freeze() -> None:
    gc.collect()
    gc.freeze()


async def _kept(_bench: Bench) -> None:
    """The proxy's own Bench ends with the proxy."""


async def _stamp(source: Source) -> object:
    try:
        return await asyncio.to_thread(source.stamp)
    except OSError as error:  # in the middle of a swap; the next look sees the new file
        return str(error)


def _show_log() -> None:
    """Our log lines go to standard error unless the process has set up logging for them.

    By a thread: whoever reads standard error may be slow, and no request may wait for that.
    """
    if not logging.getLogger().handlers and not log.handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(asctime)s bench-proxy %(levelname)s %(message)s"))
        lines: queue.SimpleQueue[logging.LogRecord] = queue.SimpleQueue()
        listener = logging.handlers.QueueListener(lines, handler)
        listener.start()
        atexit.register(listener.stop)
        log.addHandler(logging.handlers.QueueHandler(lines))
        log.setLevel(logging.INFO)
        log.propagate = False
