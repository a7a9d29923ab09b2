"""Bradley-Terry ratings: what is most likely given who was preferred to whom, finite whatever the counts are."""

import math
from collections import Counter
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench_proxy.ratings import ELO, PRIOR, Rating, ratings
from bench_proxy.records import Record, Sums, rated

MODELS = ("a", "b", "c", "d", "e")
PAIRS = [(winner, loser) for winner in MODELS for loser in MODELS if winner != loser]

counts = st.dictionaries(st.sampled_from(PAIRS), st.integers(1, 20), min_size=1)
odd_counts = st.dictionaries(
    st.tuples(st.text(max_size=3), st.text(max_size=3)),
    st.one_of(st.integers(-(10**30), 10**30), st.floats(), st.just(0)),
    max_size=12,
)


def log_posterior(wins: dict[tuple[str, str], int], strengths: dict[str, float]) -> float:
    likelihood = sum(n * -math.log1p(math.exp(strengths[b] - strengths[a])) for (a, b), n in wins.items())
    return likelihood - sum(s * s for s in strengths.values()) / (2 * PRIOR**2)


@given(counts)
def test_no_other_strengths_are_more_likely(wins: dict[tuple[str, str], int]) -> None:
    found = {model: rating.rating / ELO for model, rating in ratings(wins).items()}
    best = log_posterior(wins, found)
    for model, strength in found.items():
        for change in (-0.01, 0.01):
            assert log_posterior(wins, {**found, model: strength + change}) < best + 1e-9


@given(counts)
def test_the_interval_is_the_curvature_of_what_is_likely(wins: dict[tuple[str, str], int]) -> None:
    found = ratings(wins)
    models = sorted(found)
    at = {model: found[model].rating / ELO for model in models}
    step = 1e-3

    def height(first: dict[str, float], second: dict[str, float]) -> float:
        return log_posterior(wins, {m: at[m] + first.get(m, 0) + second.get(m, 0) for m in models})

    curvature = np.zeros((len(models), len(models)))
    for row, a in enumerate(models):
        for column, b in enumerate(models):
            corners = [(x * y, height({a: x * step}, {b: y * step})) for x in (1, -1) for y in (1, -1)]
            curvature[row, column] = -sum(sign * value for sign, value in corners) / (4 * step * step)
    spread = np.linalg.inv(curvature)
    for model in models:
        # The variance of a strength less the mean of those it was compared with.
        group = _connected_to(model, wins)
        weights = np.array([(m == model) - (m in group) / len(group) for m in models])
        deviation = math.sqrt(weights @ spread @ weights)
        assert found[model].high - found[model].rating == pytest.approx(1.96 * ELO * deviation, rel=0.01)
        assert found[model].rating - found[model].low == pytest.approx(found[model].high - found[model].rating)


def _connected_to(model: str, wins: dict[tuple[str, str], int]) -> set[str]:
    reached = {model}
    while more := {m for pair in wins if reached & set(pair) for m in pair} - reached:
        reached |= more
    return reached


@given(counts)
def test_the_mean_of_models_that_were_compared_is_zero(wins: dict[tuple[str, str], int]) -> None:
    found = ratings(wins)
    assert set(found) == {model for pair in wins for model in pair}
    for model in found:
        group = _connected_to(model, wins)
        assert sum(found[m].rating for m in group) == pytest.approx(0, abs=1e-6)


@given(odd_counts)
@settings(max_examples=300)
def test_any_counts_give_finite_ratings(wins: dict[tuple[str, str], float]) -> None:
    for rating in ratings(wins).values():
        assert all(math.isfinite(value) for value in (rating.rating, rating.low, rating.high))
        assert rating.low <= rating.rating <= rating.high
        assert rating.comparisons >= 0


def test_nothing_compared_is_nothing_rated() -> None:
    assert ratings({}) == {}
    assert ratings({("a", "a"): 5, ("a", "b"): 0, ("b", "a"): -3, ("c", "d"): math.nan}) == {}


def test_one_comparison_says_little() -> None:
    found = ratings({("a", "b"): 1})
    assert found["a"].rating == -found["b"].rating > 0
    assert found["a"].low < 0 < found["a"].high
    assert found["a"].comparisons == found["b"].comparisons == 1


def test_a_model_that_always_won_is_ahead_by_a_finite_distance_that_grows() -> None:
    ahead = [ratings({("a", "b"): n})["a"].rating for n in (1, 10, 100, 1_000_000)]
    assert ahead == sorted(ahead)
    assert ahead[-1] < 4000


def test_two_thirds_are_a_distance_of_120_points_once_there_are_many() -> None:
    found = ratings({("a", "b"): 200_000, ("b", "a"): 100_000})
    assert found["a"].rating - found["b"].rating == pytest.approx(ELO * math.log(2), abs=0.1)
    assert found["a"].high - found["a"].low < 3


def test_models_that_nothing_connects_are_rated_among_their_own() -> None:
    apart = ratings({("a", "b"): 9, ("b", "a"): 1, ("c", "d"): 2, ("d", "c"): 1})
    assert apart == {**ratings({("a", "b"): 9, ("b", "a"): 1}), **ratings({("c", "d"): 2, ("d", "c"): 1})}


def test_a_third_model_connects_two_that_never_met() -> None:
    found = ratings({("a", "b"): 30, ("b", "a"): 10, ("b", "c"): 30, ("c", "b"): 10})
    assert found["a"].rating > found["b"].rating > found["c"].rating
    assert found["b"].rating == pytest.approx(0, abs=1e-6)


def test_the_intervals_hold_the_true_strengths() -> None:
    """Of many made-up ledgers, about 95 in 100 intervals hold the strength that made them."""
    source = np.random.default_rng(20261129)
    held = []
    for _ in range(150):
        true = source.normal(0, 1, len(MODELS))
        true -= true.mean()
        wins: Counter[tuple[str, str]] = Counter()
        for (i, a), (j, b) in combinations(enumerate(MODELS), 2):
            won = int(source.binomial(40, 1 / (1 + math.exp(true[j] - true[i]))))
            wins[a, b], wins[b, a] = won, 40 - won
        found = ratings(wins)
        held += [found[m].low <= ELO * s <= found[m].high for m, s in zip(MODELS, true.tolist(), strict=True)]
    assert 0.92 <= sum(held) / len(held) <= 0.98


def test_a_hundred_models_take_no_time() -> None:
    wins = {(f"m{a}", f"m{b}"): 1 + (a * b) % 7 for a in range(100) for b in range(100) if a != b}
    assert len(ratings(wins)) == 100


def test_a_line_of_the_record_has_the_rating_of_its_own_shape() -> None:
    lines = [Record(Sums("a", "code")), Record(Sums("a", "prose")), Record(Sums("z", "code"))]
    of_code, of_prose, unknown = rated(lines, {"code": {("a", "b"): 1}, "gone": {("a", "b"): 1}})
    assert isinstance(of_code.rating, Rating)
    assert of_prose.rating is None
    assert unknown.rating is None
