"""bench-proxy in a Python program, without a proxy: `bench_proxy.install(router, config)`."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from bench_proxy.bench import Bench, Caller, Judged
from bench_proxy.config import MODEL_PREFIX, Config, read
from bench_proxy.host import models
from bench_proxy.host.decisions import Decisions
from bench_proxy.host.installation import Installation
from bench_proxy.host.known import Known
from bench_proxy.host.provider import PROVIDING
from bench_proxy.host.upstream import RouterLane
from bench_proxy.ledger.store import SqlLedger
from bench_proxy.records import Record, Verdict

# On import: a router that names a collection is made before there is anything to install it on.
PROVIDING.register()


def install(router: Any, config: Mapping[str, Any] | Path | str, *, ledger: str | None = None) -> "Installed":
    """Let LiteLLM answer for the collections of `config`, their members being models of `router` (a litellm.Router).

    `config` is the `bench:` block as a mapping, or a YAML file that is one or has one. `ledger` is a database's URL
    that goes before the configuration's. From now on an entry of the router's `model_list` answers whose
    `litellm_params.model` is `bench/<collection>`, also where its `model_name` stands in `fallbacks`, and so does
    `litellm.completion(model="bench/core")`. The router knows the name `bench/core` only by such an entry. Nothing is
    opened before the first call.

    Raises ConfigError with every fault of the configuration.
    """
    names = router.get_model_names()
    read_config = read(config, models=frozenset(names), panels=models.panels(router))
    return Installed(router, read_config, ledger or read_config.ledger.url)


class Installed:
    """What `install` did, until `close`; `async with` closes it too. Its coroutines may run in any event loop."""

    def __init__(self, router: Any, config: Config, ledger: str) -> None:
        self._router = router
        self._config = config
        self._ledger = ledger
        self._known = Known(lambda: router, lambda: config)
        self._tasks: dict[Bench, list[asyncio.Task[None]]] = {}
        self._installation = Installation(lambda: config, self._begin, self._end, self._caller)
        PROVIDING.enter(self._installation, router)

    async def verdict(self, call: str, useful: bool | None, note: str = "", by: str = "") -> Judged:
        """Say whether the answer with this call id was useful; None takes back what was said.

        Returns when that is on the record. Raises NotFound, InvalidRequest, LedgerUnavailable.
        """
        bench = await self._installation.bench()
        return await bench.judge(Verdict(call, useful, note, by=by), self._caller({}))

    async def record(self, collection: str | None = None) -> list[Record]:
        """What the ledger says of each model on each shape."""
        bench = await self._installation.bench()
        return await bench.record(collection, self._caller({}))

    async def close(self) -> None:
        """Wait for the panels that still run, late seats included (at most `timing.seat_timeout` seconds), and let
        go of the ledger. Calls for the collections fail from then on.
        """
        PROVIDING.leave(self._installation, self._router)
        await self._installation.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _begin(self) -> Bench:
        ledger = await SqlLedger.open(self._ledger, lambda: self._config.ledger.content)
        await self._known.facts.exchange(ledger)
        bench = Bench(
            RouterLane(lambda: self._router, self._known.priced),
            ledger,
            lambda: self._config,
            self._known.catalog,
            Decisions(lambda: self._router),
            cooling=self._known.cooling,
            facts=self._known.facts,
        )
        keeping = ledger.pruning.run(lambda: self._config.ledger.keep_days)
        self._tasks[bench] = [
            asyncio.create_task(self._known.share(ledger), name="bench-sharing"),
            asyncio.create_task(keeping, name="bench-pruning"),
        ]
        return bench

    async def _end(self, bench: Bench) -> None:
        for task in self._tasks.pop(bench):
            if task.get_loop() is asyncio.get_running_loop():  # else it ended with its own
                task.cancel()
                await asyncio.wait([task])
        if isinstance(bench.ledger, SqlLedger):
            await bench.ledger.close()

    def _caller(self, metadata: Mapping[str, Any]) -> Caller:
        """Whoever holds the router may call all of its models, and see all panels."""

        async def allowed(names: Any) -> list[str]:
            router = self._router
            return [n for n in names if n.startswith(MODEL_PREFIX) or router.get_model_list(model_name=n)]

        return Caller(owner="local", admin=True, allowed=allowed)
