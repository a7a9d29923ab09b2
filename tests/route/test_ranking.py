"""Who can take a turn, and in which order members are asked."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench_proxy.catalog import Catalog, HostFacts, Model
from bench_proxy.config import ModelFacts
from bench_proxy.errors import ContextOverflow, InvalidRequest
from bench_proxy.records import Record, Sums, record
from bench_proxy.route.ranking import OLD_MS, Needs, nobody, ranked, stalest, takers

NOW = 2_000_000_000_000
PLAIN = Needs(tools=False, images=False, tokens=100)


def model(alias: str, **facts: Any) -> Model:
    return Catalog([HostFacts(alias, underlying=alias)], {alias: ModelFacts(**facts)}).get(alias)


def able(models: list[Model], needs: Needs, *, try_unknown: bool = False) -> tuple[list[str], dict[str, str]]:
    found, others = takers(models, needs, try_unknown=try_unknown)
    return [m.alias for m in found], {one.alias: one.why for one in others}


def order(models: list[Model], lines: list[Record] = [], **more: Any) -> list[str]:  # noqa: B006  only read
    asked = {"shape": "code", "cooling": (), "paid_for": (), "now_ms": NOW, **more}
    return [m.alias for m in ranked(models, lines, **asked)]


def line(alias: str, useful: int, not_useful: int, shape: str = "code", **more: Any) -> Record:
    return record(Sums(alias, shape, useful=useful, not_useful=not_useful, **{"last_judged_ms": NOW, **more}))


def test_a_model_that_cannot_call_tools_is_skipped_only_for_requests_with_tools() -> None:
    models = [model("a", tools=False), model("b", tools=True)]
    assert able(models, Needs(tools=True, images=False, tokens=1)) == (["b"], {"a": "cannot call tools"})
    assert able(models, PLAIN) == (["a", "b"], {})


def test_a_model_of_which_nobody_knows_whether_it_calls_tools_is_skipped_with_the_line_to_add() -> None:
    names, skipped = able([model("a")], Needs(tools=True, images=False, tokens=1))
    assert names == []
    assert "bench.models.a.tools: true" in skipped["a"]


def test_unknown_tools_may_be_tried_and_are_then_asked_last() -> None:
    models = [model("a"), model("b", tools=True)]
    assert able(models, Needs(tools=True, images=False, tokens=1), try_unknown=True)[0] == ["a", "b"]
    assert order(models) == ["b", "a"]


@pytest.mark.parametrize(
    ("facts", "needs", "why"),
    [
        ({"retired": True}, PLAIN, "retired"),
        ({}, Needs(tools=False, images=True, tokens=1), "cannot see images"),
        ({"context_window": 600}, Needs(tools=False, images=False, tokens=601), "600 tokens"),
    ],
)
def test_who_cannot_take_the_turn_is_named_with_why(facts: dict[str, Any], needs: Needs, why: str) -> None:
    names, skipped = able([model("a", **facts), model("b", vision=True)], needs)
    assert names == ["b"]
    assert why in skipped["a"]


def test_an_unknown_window_takes_anything() -> None:
    assert able([model("a")], Needs(tools=False, images=False, tokens=10**9))[0] == ["a"]


def test_when_size_is_why_for_all_agents_are_told_to_compact() -> None:
    models = [model("a", context_window=600), model("b", context_window=1000)]
    needs = Needs(tools=False, images=False, tokens=5000)
    error = nobody("core", models, takers(models, needs, try_unknown=False)[1], needs)
    assert isinstance(error, ContextOverflow)
    assert (error.status, error.code) == (400, "context_length_exceeded")
    assert (error.tokens, error.window) == (5000, 1000)


def test_when_size_is_not_why_for_all_each_member_is_named() -> None:
    models = [model("a", context_window=600), model("b", retired=True)]
    needs = Needs(tools=False, images=False, tokens=5000)
    error = nobody("core", models, takers(models, needs, try_unknown=False)[1], needs)
    assert isinstance(error, InvalidRequest)
    assert not isinstance(error, ContextOverflow)
    assert "a: its context window" in error.message
    assert "b: retired" in error.message


def test_without_a_record_the_order_of_the_configuration_stands() -> None:
    assert order([model("b"), model("a"), model("c")]) == ["b", "a", "c"]


def test_the_better_record_is_asked_first() -> None:
    lines = [line("a", 5, 5), line("b", 9, 1)]
    assert order([model("a"), model("b")], lines) == ["b", "a"]


def test_a_short_record_is_worth_less_than_a_long_one() -> None:
    lines = [line("a", 5, 0), line("b", 95, 5)]
    assert order([model("a"), model("b")], lines) == ["b", "a"]


def test_few_verdicts_on_a_shape_count_with_those_on_all_shapes() -> None:
    lines = [line("a", 4, 0), line("a", 0, 40, "prose"), line("b", 3, 3)]
    assert order([model("a"), model("b")], lines) == ["b", "a"]


def test_enough_verdicts_on_a_shape_count_alone() -> None:
    lines = [line("a", 5, 0), line("a", 0, 40, "prose"), line("b", 3, 3)]
    assert order([model("b"), model("a")], lines) == ["a", "b"]


def test_old_evidence_counts_half() -> None:
    lines = [line("a", 10, 0, last_judged_ms=NOW - OLD_MS - 1), line("b", 10, 0)]
    assert order([model("a"), model("b")], lines) == ["b", "a"]


def test_a_cooling_model_is_asked_last_however_good_it_is() -> None:
    lines = [line("a", 90, 0), line("b", 0, 9)]
    assert order([model("a"), model("b")], lines, cooling={"a"}) == ["b", "a"]


def test_claims_that_held_break_a_tie_and_then_what_is_paid_for() -> None:
    lines = [line("a", 5, 5), line("b", 5, 5, claims_held=2, claims_failed=1), line("c", 5, 5)]
    assert order([model("a"), model("b"), model("c")], lines, paid_for={"c"}) == ["b", "c", "a"]


def test_who_explores_is_the_one_that_was_asked_longest_ago() -> None:
    models = [model("a"), model("b"), model("c")]
    assert stalest(models, {"a": 3, "b": 1, "c": 2}, ()) == "b"
    assert stalest(models, {"a": 3, "b": 1}, ()) == "c"
    assert stalest(models, {"a": 3, "b": 1}, {"c"}) == "b"
    assert stalest(models, {}, {"a", "b", "c"}) == ""


@given(
    st.lists(
        st.builds(
            Sums,
            alias=st.sampled_from("abcz"),
            shape=st.sampled_from(["code", "prose", ""]),
            useful=st.integers(-(2**70), 2**70),
            not_useful=st.integers(-(2**70), 2**70),
            last_judged_ms=st.integers(-(2**70), 2**70),
            claims_held=st.integers(-(2**70), 2**70),
        )
    )
)
def test_any_content_of_the_ledger_yields_every_member_once(sums: list[Sums]) -> None:
    models = [model("a"), model("b"), model("c")]
    assert sorted(order(models, [record(one) for one in sums])) == ["a", "b", "c"]
