"""What is known of the models in one process, kept up to date: the catalog, what cools, what was learned."""

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress

from litellm import Router

from bench_proxy.catalog import Catalog
from bench_proxy.config import Config
from bench_proxy.cooling import Cooling
from bench_proxy.errors import LedgerUnavailable
from bench_proxy.facts import Facts, FactStore
from bench_proxy.host import models
from bench_proxy.host.cache import HostCooling

log = logging.getLogger("bench_proxy")

SHARE_SECONDS = 2.0
"""How often processes tell each other what cools and what was learned."""

REBUILD_SECONDS = 60.0
"""How old the catalog may be: LiteLLM finds out limits of models by itself, and tells nobody."""


class Known:
    """`router` and `config` give what is in force now."""

    def __init__(self, router: Callable[[], Router | None], config: Callable[[], Config]) -> None:
        self.cooling = Cooling()
        self.facts = Facts()
        self._router = router
        self._config = config
        self._shared = HostCooling(router)
        self._catalog = Catalog([], {})
        self._catalog_of: object = ()
        self._read: Config | None = None

    def catalog(self) -> Catalog:
        """Built anew when LiteLLM's models or the configuration changed, or something was learned."""
        router, config = self._router(), self._config()
        age = time.monotonic() // REBUILD_SECONDS
        seen = (models.fingerprint(router), id(config), self.facts.version, age)
        if seen != self._catalog_of:
            self._catalog = Catalog(
                models.hosted(router), config.models, self.facts.known, lambda alias: models.found(router, alias)
            )
            self._catalog_of, self._read = seen, config  # kept, so that its id is nobody else's
        return self._catalog

    def priced(self, alias: str) -> bool:
        return self.catalog().get(alias).priced

    async def share(self, store: FactStore) -> None:
        """Tell the other processes, and hear from them, until cancelled. No request waits for it."""
        told = ""
        try:
            while True:
                try:
                    await self.cooling.exchange(self._shared, self.catalog().aliases)
                    await self.facts.exchange(store)
                    told = ""
                except Exception as error:  # noqa: BLE001  what is known here stays; the next round may work
                    if told != (told := str(error) or type(error).__name__):
                        log.warning("what cools and what was learned is not shared: %s", told)
                await asyncio.sleep(SHARE_SECONDS)
        finally:
            with suppress(LedgerUnavailable):
                await self.facts.exchange(store)
