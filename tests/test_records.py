"""How far a record can be trusted, whatever a ledger holds."""

import math
from dataclasses import astuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench_proxy.records import Interval, Sums, record, wilson

Z95 = 1.959963984540054

# Counts as a ledger could hold them after anything: far out of range, of the wrong kind, not numbers at all.
ODD = st.integers() | st.integers(-(10**400), 10**400) | st.floats()
COUNTERS = ("seated", "answered", "empty", "failed", "late", "useful", "not_useful", "preferred")
TIMES = ("last_seated_ms", "last_judged_ms")


@pytest.mark.parametrize("judged", [0, -3, math.nan])
def test_nothing_judged_says_nothing(judged: int) -> None:
    assert wilson(5, judged) == Interval(None, 0.0, 1.0)


# R: binom::binom.confint(k, n, conf.level, methods = "wilson"), to four digits.
KNOWN = [
    (0, 1, Z95, 0.0, 0.7935),
    (1, 1, Z95, 0.2065, 1.0),
    (0, 10, Z95, 0.0, 0.2775),
    (1, 10, Z95, 0.0179, 0.4042),
    (5, 10, Z95, 0.2366, 0.7634),
    (10, 10, Z95, 0.7225, 1.0),
    (81, 263, Z95, 0.2553, 0.3662),
]


@pytest.mark.parametrize(("useful", "judged", "z", "low", "high"), KNOWN)
def test_the_interval_is_wilsons(useful: int, judged: int, z: float, low: float, high: float) -> None:
    interval = wilson(useful, judged, z)
    assert interval.share == useful / judged
    assert (interval.low, interval.high) == (pytest.approx(low, abs=5e-5), pytest.approx(high, abs=5e-5))


def test_ninety_percent_is_what_is_meant_unless_said() -> None:
    # The bounds are the roots of (share - p)² = z² p (1 - p) / n.
    interval = wilson(3, 7)
    for p in (interval.low, interval.high):
        assert (3 / 7 - p) ** 2 == pytest.approx(1.6448536269514722**2 * p * (1 - p) / 7)


@given(st.integers(1, 10_000), st.data())
def test_the_share_lies_in_its_interval(judged: int, data: st.DataObject) -> None:
    useful = data.draw(st.integers(0, judged))
    interval = wilson(useful, judged)
    assert interval.share is not None
    assert 0 <= interval.low <= interval.share <= interval.high <= 1


@given(st.integers(1, 1000), st.integers(0, 999))
def test_one_more_useful_answer_never_lowers_the_bound(judged: int, useful: int) -> None:
    assert wilson(min(useful + 1, judged), judged).low >= wilson(min(useful, judged), judged).low


def test_the_same_share_of_more_verdicts_is_trusted_more() -> None:
    assert wilson(80, 100).low > wilson(8, 10).low > wilson(4, 5).low


@given(ODD, ODD)
def test_any_counts_yield_a_valid_interval(useful: float, judged: float) -> None:
    interval = wilson(useful, judged)  # type: ignore[arg-type]
    assert 0 <= interval.low <= interval.high <= 1
    assert interval.share is None or 0 <= interval.share <= 1


@given(st.integers(1, 50), st.integers(1, 50))
def test_more_useful_than_judged_counts_as_all_useful(judged: int, more: int) -> None:
    assert wilson(judged + more, judged) == wilson(judged, judged)


@given(st.fixed_dictionaries(dict.fromkeys(COUNTERS, ODD)))
def test_any_sums_yield_a_valid_record(counts: dict[str, int]) -> None:
    line = record(Sums("gpt", "general", **counts))
    assert 0 <= line.interval.low <= line.interval.high <= 1
    assert line.sums.judged >= 0
    assert line.sums.owed >= 0


def test_a_model_that_was_never_asked_has_counted_nothing() -> None:
    assert set(astuple(Sums("gpt", "general"))) == {"gpt", "general", 0}


def test_owed_is_what_was_answered_and_not_judged() -> None:
    assert Sums("gpt", "general", answered=5, useful=2, not_useful=1, failed=9, empty=9, late=9).owed == 2


def test_more_verdicts_than_answers_owe_nothing() -> None:
    assert Sums("gpt", "general", answered=1, useful=2).owed == 0
