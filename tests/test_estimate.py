"""What a call has used: what its model's server reported, and an estimate of what it did not."""

from typing import Any

import pytest

from bench_proxy.catalog import Catalog, HostFacts, Model
from bench_proxy.errors import KINDS
from bench_proxy.estimate import REFUSALS, Used, used
from bench_proxy.keys import Use

PROMPT = 100
SAID = "x" * 40
"""11 tokens."""

REPORTED: dict[str, Any] = {"prompt_tokens": 90, "completion_tokens": 30}


def model(**prices: float) -> Model:
    return Catalog([HostFacts("gpt", "gpt", **prices)], {}).get("gpt")


PRICED = model(input_cost_per_token=0.001, output_cost_per_token=0.01)


def test_what_was_reported_is_what_was_used() -> None:
    assert used(PRICED, PROMPT, SAID, cached_tokens=80, cost=0.5, **REPORTED) == Used(90, 30, 80, 0.5)


def test_what_was_not_reported_is_estimated() -> None:
    assert used(PRICED, PROMPT, SAID) == Used(100, 11, cost=pytest.approx(0.21))
    assert used(PRICED, PROMPT, SAID, thought=400).completion_tokens == 111
    assert used(PRICED, PROMPT, SAID, thought=200, argued=200).completion_tokens == 111
    assert used(PRICED, PROMPT, "", prompt_tokens=90) == Used(90, 0, cost=pytest.approx(0.09))


@pytest.mark.parametrize("nothing", [{"prompt_tokens": 0, "completion_tokens": 0, "cost": 0.0}, {"cost": 0.0}])
def test_a_server_that_reports_zeros_has_reported_nothing(nothing: dict[str, Any]) -> None:
    assert used(PRICED, PROMPT, SAID, **nothing) == used(PRICED, PROMPT, SAID)


def test_a_cost_that_is_not_known_is_that_of_the_tokens_that_were_reported() -> None:
    assert used(PRICED, PROMPT, SAID, **REPORTED).cost == pytest.approx(0.39)
    assert used(model(), PROMPT, SAID, **REPORTED).cost == 0.0


def test_what_is_free_stays_free() -> None:
    assert used(PRICED, PROMPT, SAID, cost=0.0, **REPORTED).cost == 0.0


@pytest.mark.parametrize("kind", sorted(REFUSALS))
def test_a_call_that_was_refused_has_used_nothing(kind: str) -> None:
    assert used(PRICED, PROMPT, "", failed=kind) == Used()


@pytest.mark.parametrize("kind", sorted(KINDS - REFUSALS))
def test_a_call_that_was_broken_off_has_used_its_prompt(kind: str) -> None:
    assert used(PRICED, PROMPT, "", failed=kind).in_budget == Use(100, pytest.approx(0.1))


@pytest.mark.parametrize("more", [{"said": SAID}, {"thought": 44}, {"argued": 44}, {"completion_tokens": 11}])
def test_a_call_that_failed_after_it_had_said_something_has_used_that_too(more: dict[str, Any]) -> None:
    failed = used(PRICED, PROMPT, **{"said": "", "failed": "server_error", **more})
    assert failed == Used(100, 11, cost=pytest.approx(0.21))


def test_only_kinds_that_there_are_are_refusals() -> None:
    assert REFUSALS < KINDS


def test_several_calls_are_added_up() -> None:
    both = Used(1, 2, 1, 0.25) + Used(10, 20, 5, 0.5)
    assert both.in_budget == Use(33, 0.75)
    assert (both.usage.prompt_tokens, both.usage.completion_tokens, both.usage.cached_tokens) == (11, 22, 6)
