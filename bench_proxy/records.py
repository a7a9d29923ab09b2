"""What the ledger says of models: offloads, verdicts, the sums over them, and how far they can be trusted."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from bench_proxy.ratings import Rating, Wins, ratings


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a caller says of one answer; `useful` None withdraws what was said before.

    `real` and `false` are the claims in the answer that held and that did not; `by` is who judged, in their words.
    """

    call: str
    useful: bool | None
    note: str = ""
    real: tuple[str, ...] = ()
    false: tuple[str, ...] = ()
    by: str = ""


@dataclass(frozen=True, slots=True)
class Sums:
    """A model's counts on one shape. Times are milliseconds since the epoch, 0 for never.

    `preferred` is over how many answers it was picked; `not_preferred` counts answers of its own that another was
    picked over, and of which nothing else was said. `claims_held` and `claims_failed` are the claims in its answers
    of which a verdict says so. `turns` are those of conversations that it answered or was answering when the caller
    hung up, `failovers` those that it was asked to answer and did not.
    """

    alias: str
    shape: str
    seated: int = 0
    answered: int = 0
    empty: int = 0
    failed: int = 0
    late: int = 0
    useful: int = 0
    not_useful: int = 0
    preferred: int = 0
    not_preferred: int = 0
    claims_held: int = 0
    claims_failed: int = 0
    turns: int = 0
    failovers: int = 0
    last_seated_ms: int = 0
    last_judged_ms: int = 0

    @property
    def judged(self) -> int:
        return _count(self.useful) + _count(self.not_useful)

    @property
    def owed(self) -> int:
        return max(0, _count(self.answered) - self.judged - _count(self.not_preferred))


@dataclass(frozen=True, slots=True)
class Interval:
    """A share and the bounds that hold it at the confidence it was asked for; all in [0, 1]."""

    share: float | None
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Record:
    """One line of `GET /bench/record`."""

    sums: Sums
    interval: Interval = field(default_factory=lambda: Interval(None, 0.0, 1.0))
    rating: Rating | None = None


Z90 = 1.6448536269514722
"""Two-sided 90 %."""


LEAST = 1e-3
"""Of a weighted count. The square of less has no place in a float."""


def wilson(useful: float, judged: float, z: float = Z90) -> Interval:
    """The Wilson score interval of `useful` out of `judged`; nothing judged says nothing.

    E. B. Wilson, 1927. Counts may be weighted, and so no whole numbers. Those that cannot be (negative, more useful
    than judged) are brought into range, so that any content of a ledger yields a valid choice.
    """
    n = _possible(judged)
    k = min(_possible(useful), n)
    if n == 0:
        return Interval(None, 0.0, 1.0)
    share = k / n
    centre = (share + z * z / (2 * n)) / (1 + z * z / n)
    spread = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    # Rounding must not push a bound past the share that it belongs to.
    return Interval(share, max(0.0, min(share, centre - spread)), min(1.0, max(share, centre + spread)))


def record(sums: Sums) -> Record:
    return Record(sums, wilson(sums.useful, sums.judged))


def rated(lines: Iterable[Record], wins: Mapping[str, Wins]) -> list[Record]:
    """The same lines, with the ratings that follow from the comparisons on each shape."""
    of_shape = {shape: ratings(of_pairs) for shape, of_pairs in wins.items()}
    return [replace(line, rating=of_shape.get(line.sums.shape, {}).get(line.sums.alias)) for line in lines]


def _count(value: float) -> int:
    return int(_possible(value))


def _possible(value: float) -> float:
    """At most what a float holds exactly; NaN, like anything that is hardly more than 0, counts nothing."""
    return min(value, 2**53) if value > LEAST else 0
