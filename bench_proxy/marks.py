"""What callers say of the answers of one panel, and what that adds to the sums (pure)."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

from bench_proxy.records import Verdict


@dataclass(frozen=True, slots=True)
class Pick:
    """That one answer of a panel, `best`, was the useful one; None withdraws what was said before."""

    panel: str
    best: str | None
    note: str = ""
    by: str = ""


@dataclass(frozen=True, slots=True)
class Mark:
    """What is said of one answer now. `preferred` is its part in a pick: True for the best, False for the others."""

    alias: str
    useful: bool | None = None
    preferred: bool | None = None
    note: str = ""
    real: tuple[str, ...] = ()
    false: tuple[str, ...] = ()
    by: str = ""

    @property
    def owed(self) -> bool:
        return self.useful is None and self.preferred is None


Marks = Mapping[str, Mark]
"""Call → mark, of the answers of one panel."""


def judged(marks: Marks, verdict: Verdict) -> dict[str, Mark]:
    """The marks after a verdict. What contradicts a pick takes the answer out of it, and without its best there is no
    pick.
    """
    mark = marks[verdict.call]
    agrees = verdict.useful is not None and verdict.useful == mark.preferred
    after = _unpicked(marks) if mark.preferred and not agrees else dict(marks)
    preferred = mark.preferred if agrees else None
    after[verdict.call] = Mark(
        mark.alias, verdict.useful, preferred, verdict.note, verdict.real, verdict.false, verdict.by
    )
    return after


def picked(marks: Marks, pick: Pick) -> dict[str, Mark]:
    """The marks after a pick, which replaces what it contradicts: that another answer was useful, or not the best one.

    That an answer was not useful stands: it says more than that another one was preferred.
    """
    if pick.best is None:
        return _unpicked(marks)
    after = {
        call: replace(mark, preferred=False) if mark.useful is False else Mark(mark.alias, preferred=False, by=pick.by)
        for call, mark in marks.items()
    }
    best = marks[pick.best]
    claims = (best.real, best.false) if best.useful else ((), ())
    after[pick.best] = Mark(best.alias, True, True, pick.note, *claims, pick.by)
    return after


def _unpicked(marks: Marks) -> dict[str, Mark]:
    return {
        call: mark
        if mark.preferred is None
        else replace(mark, preferred=None)
        if mark.useful is False
        else Mark(mark.alias)
        for call, mark in marks.items()
    }


@dataclass(frozen=True, slots=True)
class Tally:
    """What the marks of one panel add to the sums: (alias, counter) → count, and (winner, loser) → comparisons."""

    counts: Mapping[tuple[str, str], int]
    wins: Mapping[tuple[str, str], int]

    def since(self, before: "Tally") -> "Tally":
        """What has changed; a count that went down is negative."""
        return Tally(_difference(self.counts, before.counts), _difference(self.wins, before.wins))


def tally(marks: Marks) -> Tally:
    """A useful answer wins against those that were not, a picked one also against those that it was preferred to.

    Claims count with the verdict that states them: what was withdrawn says nothing of them either.
    """
    counts: Counter[tuple[str, str]] = Counter()
    wins: Counter[tuple[str, str]] = Counter()
    for mark in marks.values():
        if mark.useful is not None:
            counts[mark.alias, "useful" if mark.useful else "not_useful"] += 1
            counts[mark.alias, "claims_held"] += len(mark.real)
            counts[mark.alias, "claims_failed"] += len(mark.false)
        elif mark.preferred is False:
            counts[mark.alias, "not_preferred"] += 1
        beaten = [other.alias for other in marks.values() if _wins(mark, other)]
        wins.update((mark.alias, alias) for alias in beaten)
        if mark.preferred:
            counts[mark.alias, "preferred"] += len(beaten)
    return Tally(+counts, wins)


def _wins(mark: Mark, other: Mark) -> bool:
    preferred = bool(mark.preferred) and other.preferred is False
    return bool(mark.useful) and (other.useful is False or preferred)


def _difference(
    after: Mapping[tuple[str, str], int], before: Mapping[tuple[str, str], int]
) -> dict[tuple[str, str], int]:
    changes = {key: after.get(key, 0) - before.get(key, 0) for key in {**after, **before}}
    return {key: change for key, change in changes.items() if change}
