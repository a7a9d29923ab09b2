"""Builds everything once a process and mounts it in LiteLLM's proxy."""

import asyncio
import contextlib
import logging
import signal
from functools import cache

from bench_proxy.bench import Bench
from bench_proxy.catalog import Catalog
from bench_proxy.config import Config, Source, environment, load
from bench_proxy.errors import BenchError, ConfigError
from bench_proxy.host import models, mount
from bench_proxy.host.auth import authenticate
from bench_proxy.host.decisions import Decisions
from bench_proxy.host.lean import LeanLane
from bench_proxy.host.reporting import Reporting
from bench_proxy.host.upstream import RouterLane
from bench_proxy.http import routes
from bench_proxy.http.answering import Answering
from bench_proxy.http.gate import Gate
from bench_proxy.http.listing import Listing
from bench_proxy.ledger.store import SqlLedger

log = logging.getLogger("bench_proxy")

WATCH_SECONDS = 2.0
"""How often the configuration's files are looked at."""


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
        self._catalog = Catalog([], {})
        self._catalog_of: object = ()
        self._bench: Bench | None = None
        self._lean: LeanLane | None = None
        self._lanes: dict[str, str] = {}
        self._lanes_of: Config | None = None
        self._watching: asyncio.Task[None] | None = None
        self._keeper = mount.Keeper(self._begin, self._end)

    def mount(self) -> None:
        _show_log()
        answering = Answering(self.bench, authenticate)
        own = routes.build(self.bench, authenticate)
        mount.put_first(
            Gate(
                mount.host_app(),
                own,
                answering,
                Listing(self.bench, authenticate),
                ready=self._keeper.ready,
                most_bytes=lambda: self._config.limits.max_body_bytes,
                first=lambda: mount.take_out(self._handle),
            )
        )
        self._keeper.start()

    def bench(self) -> Bench:
        if self._bench is None:
            raise BenchError("bench-proxy has not started; its log says why")
        return self._bench

    def config(self) -> Config:
        return self._config

    def catalog(self) -> Catalog:
        """Built anew when LiteLLM's models or the configuration changed."""
        router = mount.router()
        seen = (models.fingerprint(router), id(self._config))
        if seen != self._catalog_of:
            self._catalog = Catalog(models.hosted(router), self._config.models)
            self._catalog_of = seen
        return self._catalog

    async def _begin(self) -> None:
        ledger = await SqlLedger.open(self._config.ledger.url, lambda: self._config.ledger.content)
        self._reporting = Reporting(limits=mount.models_in_database())
        self._lean = LeanLane(mount.router, RouterLane(mount.router), self._reporting, self._forced_lanes)
        self._bench = Bench(self._lean, ledger, self.config, self.catalog, Decisions(mount.router))
        self._watching = asyncio.create_task(self._watch(), name="bench-config")
        # Other platforms have no SIGHUP; the file is watched there too.
        with contextlib.suppress(NotImplementedError, AttributeError, ValueError):
            asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self._reload)

    def _forced_lanes(self) -> dict[str, str]:
        if self._lanes_of is not self._config:
            self._lanes_of = self._config
            self._lanes = {name: facts.lane for name, facts in self._config.models.items()}
        return self._lanes

    async def _end(self) -> None:
        if self._lean is not None:
            await self._reporting.close()
            await self._lean.close()
        if self._watching is not None:
            self._watching.cancel()
        if self._bench is not None and isinstance(self._bench.ledger, SqlLedger):
            await self._bench.ledger.close()

    async def _watch(self) -> None:
        seen = await _stamp(self._source)
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            now = await _stamp(self._source)
            if now != seen:
                seen = now
                self._reload()

    def _reload(self) -> None:
        """A good file takes effect for the next request; a bad one is logged and the old one stays."""
        router = mount.router()
        known = None if mount.models_in_database() or router is None else frozenset(router.get_model_names())
        try:
            fresh, self._source = load(self._source.litellm_file, override=environment().bench_config, models=known)
        except ConfigError as error:
            log.error("the changed configuration is not used:\n%s", error)
            return
        if fresh.ledger.url != self._config.ledger.url:
            log.warning("ledger.url changed: it takes effect at the next start")
        self._config = fresh
        log.info("configuration reloaded: %d collections", len(fresh.collections))


async def _stamp(source: Source) -> object:
    try:
        return await asyncio.to_thread(source.stamp)
    except OSError as error:  # in the middle of a swap; the next look sees the new file
        return str(error)


def _show_log() -> None:
    """Our log lines go to standard error unless the process has set up logging for them."""
    if not logging.getLogger().handlers and not log.handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(asctime)s bench-proxy %(levelname)s %(message)s"))
        log.addHandler(handler)
        log.setLevel(logging.INFO)
        log.propagate = False
