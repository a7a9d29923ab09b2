"""Verdicts and picks on one panel: what is in force after any sequence of them, and what that adds to the sums."""

from collections import Counter
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench_proxy.marks import Mark, Marks, Pick, Tally, judged, picked, tally
from bench_proxy.records import Verdict

PANEL = "p20260301-120005-abcdefghijklmnop"
ALIASES = {f"{PANEL}.member{n}": alias for n, alias in enumerate(("ann", "ben", "cat", "dan"), 1)}
A, B, C, D = ALIASES
FRESH: Marks = {call: Mark(alias) for call, alias in ALIASES.items()}

notes = st.sampled_from(["", "why"])
verdicts = st.builds(
    Verdict, st.sampled_from(sorted(ALIASES)), st.sampled_from([True, False, None]), notes, real=st.just(("it holds",))
)
picks = st.builds(Pick, st.just(PANEL), st.sampled_from([*ALIASES, None]), notes, st.sampled_from(["", "eve"]))
said = st.lists(st.one_of(verdicts, picks), max_size=8)


def after(*said: Verdict | Pick, marks: Marks = FRESH) -> dict[str, Mark]:
    now = dict(marks)
    for each in said:
        now = judged(now, each) if isinstance(each, Verdict) else picked(now, each)
    return now


def useful(call: str, note: str = "") -> Verdict:
    return Verdict(call, True, note)


def useless(call: str, note: str = "") -> Verdict:
    return Verdict(call, False, note)


def pick(call: str | None, note: str = "") -> Pick:
    return Pick(PANEL, call, note)


def states(marks: Marks) -> dict[str, str]:
    words = {(True, None): "useful", (False, None): "not useful", (None, None): "owed"}
    words |= {(True, True): "picked", (None, False): "not preferred", (False, False): "not useful, not preferred"}
    return {mark.alias: words[mark.useful, mark.preferred] for mark in marks.values()}


def test_a_pick_says_of_each_answer_what_became_of_it() -> None:
    marks = after(pick(B, "short and right"))
    assert states(marks) == {
        "ann": "not preferred",
        "ben": "picked",
        "cat": "not preferred",
        "dan": "not preferred",
    }
    assert marks[B].note == "short and right"
    assert not any(mark.owed for mark in marks.values())


def test_another_pick_replaces_the_first() -> None:
    assert after(pick(B), pick(C)) == after(pick(C))


def test_a_pick_replaces_that_another_answer_was_useful() -> None:
    assert states(after(useful(A, "fine"), pick(B)))["ann"] == "not preferred"


def test_a_pick_leaves_that_an_answer_was_not_useful() -> None:
    marks = after(useless(A, "made it up"), pick(B))
    assert states(marks)["ann"] == "not useful, not preferred"
    assert marks[A].note == "made it up"
    assert states(after(useless(A), pick(B), pick(None)))["ann"] == "not useful"


def test_a_pick_of_an_answer_keeps_the_claims_that_were_found_to_hold() -> None:
    marks = after(Verdict(B, True, "first", ("it leaks",), ("it is slow",)), pick(B, "best of all"))
    assert (marks[B].note, marks[B].real, marks[B].false) == ("best of all", ("it leaks",), ("it is slow",))
    assert after(Verdict(B, False, "no", ("it leaks",)), pick(B))[B].real == ()


def test_a_withdrawn_pick_leaves_all_owed() -> None:
    assert after(pick(B), pick(None)) == FRESH


def test_a_verdict_takes_its_answer_out_of_a_pick() -> None:
    assert states(after(pick(B), useful(A))) == {
        "ann": "useful",
        "ben": "picked",
        "cat": "not preferred",
        "dan": "not preferred",
    }
    assert states(after(pick(B), Verdict(A, None)))["ann"] == "owed"


def test_a_verdict_against_the_best_answer_ends_the_pick() -> None:
    for verdict in (useless(B), Verdict(B, None)):
        marks = after(pick(B), verdict)
        assert {state for alias, state in states(marks).items() if alias != "ben"} == {"owed"}
    assert states(after(pick(B), useless(B)))["ben"] == "not useful"


def test_a_verdict_that_agrees_with_a_pick_leaves_it() -> None:
    assert states(after(pick(B), useful(B, "still"), useless(A))) == {
        "ann": "not useful, not preferred",
        "ben": "picked",
        "cat": "not preferred",
        "dan": "not preferred",
    }


def test_a_pick_wins_against_every_other_answer() -> None:
    sums = tally(after(pick(B)))
    assert sums.wins == {("ben", "ann"): 1, ("ben", "cat"): 1, ("ben", "dan"): 1}
    assert Counter(sums.counts) == Counter(
        {("ben", "useful"): 1, ("ben", "preferred"): 3, **{(a, "not_preferred"): 1 for a in ("ann", "cat", "dan")}}
    )


def test_verdicts_that_differ_are_comparisons_too() -> None:
    assert tally(after(useful(A), useful(B), useless(C))).wins == {("ann", "cat"): 1, ("ben", "cat"): 1}
    assert tally(after(useful(A), useful(B))).wins == {}
    assert tally(after(useless(A), useless(B))).wins == {}


def test_not_preferred_to_one_answer_says_nothing_of_another() -> None:
    assert tally(after(pick(B), useful(A))).wins == {("ben", "cat"): 1, ("ben", "dan"): 1}


@given(said, picks)
def test_the_same_pick_again_changes_nothing(before: list[Verdict | Pick], again: Pick) -> None:
    once = after(*before, again)
    assert after(again, marks=once) == once


@given(said, verdicts)
def test_the_same_verdict_again_changes_nothing(before: list[Verdict | Pick], again: Verdict) -> None:
    once = after(*before, again)
    assert after(again, marks=once) == once


@given(said)
def test_what_is_in_force_always_has_a_meaning(all_said: list[Verdict | Pick]) -> None:
    marks = after(*all_said)
    states(marks)
    best = [mark for mark in marks.values() if mark.preferred]
    assert len(best) <= 1
    assert bool(best) or not any(mark.preferred is False for mark in marks.values())


@given(said, picks.filter(lambda p: p.best is not None))
def test_a_pick_holds_whatever_was_said_before(before: list[Verdict | Pick], last: Pick) -> None:
    marks = after(*before, last)
    assert [mark.alias for mark in marks.values() if mark.useful] == [ALIASES[str(last.best)]]
    assert all(mark.preferred is (call == last.best) for call, mark in marks.items())


@given(said)
def test_sums_changed_step_by_step_are_those_of_the_end(all_said: list[Verdict | Pick]) -> None:
    counts: Counter[tuple[str, str]] = Counter()
    wins: Counter[tuple[str, str]] = Counter()
    marks: Marks = FRESH
    for each in all_said:
        then = after(each, marks=marks)
        change = tally(then).since(tally(marks))
        counts.update(change.counts)
        wins.update(change.wins)
        marks = then
    end = tally(marks)
    assert +counts == +Counter(end.counts)
    assert +wins == +Counter(end.wins)
    assert min([*counts.values(), *wins.values()], default=0) >= 0


@given(said)
def test_wins_are_those_that_the_states_say(all_said: list[Verdict | Pick]) -> None:
    state = states(after(*all_said))
    expected = Counter(
        (first, second)
        for first, second in permutations(state, 2)
        if (state[first] in {"useful", "picked"} and state[second].startswith("not useful"))
        or (state[first] == "picked" and state[second] == "not preferred")
    )
    assert +Counter(tally(after(*all_said)).wins) == expected


@pytest.mark.parametrize("unchanged", [Tally({}, {}), Tally({("a", "useful"): 1}, {("a", "b"): 2})])
def test_nothing_changed_is_no_change(unchanged: Tally) -> None:
    assert unchanged.since(unchanged) == Tally({}, {})


def test_claims_count_with_the_verdict_that_states_them() -> None:
    holds, fails = ("it leaks", "it races"), ("it is slow",)
    judged = tally(after(Verdict(A, True, "", holds, fails), Verdict(B, False, "", (), holds)))
    assert (judged.counts["ann", "claims_held"], judged.counts["ann", "claims_failed"]) == (2, 1)
    assert judged.counts["ben", "claims_failed"] == 2
    assert ("ben", "claims_held") not in judged.counts


def test_claims_of_a_withdrawn_verdict_count_no_more() -> None:
    stated = Verdict(A, True, "", ("it leaks",))
    assert tally(after(stated, Verdict(A, None, "", ("it leaks",)))).counts == {}
    assert tally(after(stated, pick(B))).counts == tally(after(pick(B))).counts
