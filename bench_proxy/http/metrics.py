"""`GET /bench/metrics`: what Prometheus reads.

All of it is read when it is asked for, from the ledger and from what this process knows of the models: each worker says
the same, and counters go on where they were after a restart. Labels are names of models and collections that are, or
were, configured.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from bench_proxy.bench import Bench
from bench_proxy.records import Sums

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
SEATS = "Seats by how they ended. A late one that answers after all is counted as both."
OTHER = "other"
"""Every model that no file names: a guest can have any name where LiteLLM has a wildcard."""

TURNS = "Turns of conversations by who answered them, those included in which the caller hung up meanwhile."
FAILOVERS = "Turns that a model was asked to answer and did not."

OUTCOMES = ("answered", "empty", "failed", "late")


async def metrics(bench: Bench, lane: Callable[[str], dict[str, str]]) -> bytes:
    """Raises LedgerUnavailable."""
    known = {model.alias for model in bench.models()}
    totals = await bench.ledger.totals()
    registry = CollectorRegistry()
    registry.register(_Families([*_seats(totals, known), *_turns(totals, known), *_models(bench, known, lane)]))
    return generate_latest(registry)


def _seats(totals: Sequence[tuple[str, Sums]], known: Collection[str]) -> Iterator[Metric]:
    seats = CounterMetricFamily(
        "bench_seats",
        SEATS,
        labels=("collection", "alias", "outcome"),
    )
    verdicts = GaugeMetricFamily("bench_verdicts", "Verdicts that stand.", labels=("collection", "alias", "verdict"))
    owed = GaugeMetricFamily("bench_owed", "Answers that nobody judged.", labels=("collection", "alias"))
    for (collection, alias), sums in _by_known_name(totals, known).items():
        for outcome in OUTCOMES:
            seats.add_metric([collection, alias, outcome], sum(getattr(s, outcome) for s in sums))
        for verdict in ("useful", "not_useful"):
            verdicts.add_metric([collection, alias, verdict], sum(getattr(s, verdict) for s in sums))
        owed.add_metric([collection, alias], sum(s.owed for s in sums))
    yield from (seats, verdicts, owed)


def _turns(totals: Sequence[tuple[str, Sums]], known: Collection[str]) -> Iterator[Metric]:
    turns = CounterMetricFamily("bench_turns", TURNS, labels=("collection", "alias"))
    failovers = CounterMetricFamily("bench_failovers", FAILOVERS, labels=("collection", "alias"))
    for labels, sums in _by_known_name(totals, known).items():
        turns.add_metric(labels, sum(s.turns for s in sums))
        failovers.add_metric(labels, sum(s.failovers for s in sums))
    yield from (turns, failovers)


def _by_known_name(totals: Sequence[tuple[str, Sums]], known: Collection[str]) -> dict[tuple[str, str], list[Sums]]:
    found: dict[tuple[str, str], list[Sums]] = {}
    for collection, sums in totals:
        found.setdefault((collection, sums.alias if sums.alias in known else OTHER), []).append(sums)
    return found


def _models(bench: Bench, known: Iterable[str], lane: Callable[[str], dict[str, str]]) -> Iterator[Metric]:
    lanes = GaugeMetricFamily("bench_lane", "Which way a model is called.", labels=("alias", "lane"))
    cooling = GaugeMetricFamily("bench_cooling_seconds", "For how much longer a model cools.", labels=("alias",))
    left = bench.cooling.left()
    for alias in sorted(known):
        if (which := lane(alias).get("lane")) is not None:
            lanes.add_metric([alias, which], 1)
        cooling.add_metric([alias], left.get(alias, 0))
    yield from (lanes, cooling)


class _Families:
    def __init__(self, families: Sequence[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        return iter(self._families)
