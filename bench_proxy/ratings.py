"""How strong models are against one another, by the Bradley-Terry model (pure).

R. A. Bradley and M. E. Terry, 1952: a model of strength a is preferred to one of strength b with the probability
1 / (1 + exp(b - a)).
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

ELO = 400 / math.log(10)
"""Points for one unit of log-odds: 400 points ahead is ten to one, as in chess."""

PRIOR = 2.0
"""Standard deviation, in log-odds, of the strengths that are expected before anything is known (347 points). It keeps
a model that always won at a finite distance, and hardly matters after a dozen comparisons.
"""

Z95 = 1.959963984540054
"""Two-sided 95 %."""

MOST_TIMES = 1e9
"""A larger count of one outcome is read as this; doubles keep apart what is up to so much larger than the prior."""

MOST_STEPS = 200

Wins = Mapping[tuple[str, str], float]
"""(winner, loser) → how often."""


@dataclass(frozen=True, slots=True)
class Rating:
    """In Elo points around the mean, 0, of the models that were compared with one another, directly or through others.

    `low` and `high` hold it at 95 %; `comparisons` is how many it rests on.
    """

    rating: float
    low: float
    high: float
    comparisons: int


def ratings(wins: Wins) -> dict[str, Rating]:
    """The rating of each model that was compared; models that nothing connects are rated among their own.

    Any counts yield finite ratings: those that cannot be (negative, NaN, a model against itself) count nothing.
    """
    sound = {pair: float(min(times, MOST_TIMES)) for pair, times in wins.items() if pair[0] != pair[1] and times > 0}
    return {model: rating for group in _connected(sound) for model, rating in _rate(group, sound).items()}


def _connected(pairs: Iterable[tuple[str, str]]) -> list[list[str]]:
    """The models in groups between which there is no comparison."""
    group_of: dict[str, list[str]] = {}
    for pair in pairs:
        first, second = (group_of.setdefault(model, [model]) for model in pair)
        if first is not second:
            first += second
            group_of.update(dict.fromkeys(second, first))
    return list({id(group): group for group in group_of.values()}.values())


def _rate(models: list[str], wins: Wins) -> dict[str, Rating]:
    import numpy as np

    place = {model: index for index, model in enumerate(models)}
    won = np.zeros((len(models), len(models)))
    for (winner, loser), times in wins.items():
        if winner in place:
            won[place[winner], place[loser]] = times
    strengths, deviations = _fit(won)
    played = won.sum(axis=0) + won.sum(axis=1)
    return {
        model: Rating(ELO * s, ELO * (s - Z95 * d), ELO * (s + Z95 * d), round(n))
        for model, s, d, n in zip(models, strengths.tolist(), deviations.tolist(), played.tolist(), strict=True)
    }


def _fit(won: "Floats") -> tuple["Floats", "Floats"]:
    """Strengths that are most likely given who won how often and the prior, and their standard deviations.

    Newton's method on a strictly concave function: steps are halved until they climb.
    """
    import numpy as np

    games = won + won.T
    strengths = np.zeros(len(won))
    height = _log_posterior(won, strengths)
    for _ in range(MOST_STEPS):
        slope = (won - games * _chances(strengths)).sum(axis=1) - strengths / PRIOR**2
        step = np.linalg.solve(_curvature(games, strengths), slope)
        while (higher := _log_posterior(won, strengths + step)) < height and np.abs(step).max() > 1e-12:
            step /= 2
        strengths += step
        strengths -= strengths.mean()
        height = higher
        if np.abs(step).max() < 1e-9:
            break
    spread = np.linalg.inv(_curvature(games, strengths))
    # Of the strengths against their mean: what all have in common is not known from comparisons, and does not matter.
    centred = spread - spread.mean(axis=0) - spread.mean(axis=1)[:, None] + spread.mean()
    return strengths, np.sqrt(np.maximum(np.diag(centred), 0.0))


def _chances(strengths: "Floats") -> "Floats":
    """How probable it is that the model of the row is preferred to that of the column."""
    import numpy as np

    return 1 / (1 + np.exp(np.clip(strengths[None, :] - strengths[:, None], -700, 700)))


def _log_posterior(won: "Floats", strengths: "Floats") -> float:
    import numpy as np

    ahead = strengths[:, None] - strengths[None, :]
    return float(-(won * np.logaddexp(0, -ahead)).sum() - (strengths**2).sum() / (2 * PRIOR**2))


def _curvature(games: "Floats", strengths: "Floats") -> "Floats":
    """Minus the second derivatives. Along the common shift of all strengths, which comparisons say nothing of, they
    are raised to the size of the others, so that counts of any size can be solved for.
    """
    import numpy as np

    chances = _chances(strengths)
    information = games * chances * (1 - chances)
    curvature = np.diag(information.sum(axis=1) + PRIOR**-2) - information
    shifted: Floats = curvature + np.diag(curvature).mean() / len(games)
    return shifted
