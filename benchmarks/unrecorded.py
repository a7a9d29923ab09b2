"""bench-proxy with a ledger that is told nothing, so that what the record costs can be told: for comparison alone.

    callbacks: [benchmarks.unrecorded.gateway]

There is no such setting. The class that the process opens as its ledger is replaced, here and nowhere else: the
database is there, and no panel and no turn reaches it.
"""

from typing import Any

from bench_proxy.ledger.store import SqlLedger
from bench_proxy.route.keeping import TurnReport


class Unrecorded(SqlLedger):
    async def opened(self, *_: Any, **__: Any) -> None: ...

    async def answered(self, *_: Any, **__: Any) -> None: ...

    async def closed(self, *_: Any, **__: Any) -> None: ...

    async def used(self, *_: Any, **__: Any) -> None: ...

    async def took(self, report: TurnReport, owner: str) -> TurnReport:
        return report


def __getattr__(name: str) -> Any:
    if name == "gateway":
        from bench_proxy import wiring

        wiring.SqlLedger = Unrecorded  # type: ignore[attr-defined]
        return wiring.gateway()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
