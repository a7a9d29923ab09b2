"""Which member is asked when one has failed, and what the caller is told in the end."""

from typing import Any

import pytest

from bench_proxy.catalog import Catalog, HostFacts, Model
from bench_proxy.config import ModelFacts
from bench_proxy.errors import BenchError, ContextOverflow, InvalidRequest, TurnFailed, UpstreamError
from bench_proxy.route.failover import LONGEST_WAIT, Failover
from tests.doubles import fails


def model(alias: str, **facts: Any) -> Model:
    return Catalog([HostFacts(alias, underlying=alias)], {alias: ModelFacts(**facts)}).get(alias)


def play(failover: Failover, *errors: UpstreamError) -> list[str]:
    """Fail so, one after the other, as long as somebody is asked; returns who was."""
    asked = []
    for error in errors:
        if (one := failover.next()) is None:
            break
        asked.append(one.alias)
        failover.failed_with(one, error)
    return asked


def told(*errors: UpstreamError, **more: Any) -> BenchError:
    failover = Failover([model(f"m{i}") for i, _ in enumerate(errors)], attempts=9, tokens=5000, **more)
    play(failover, *errors)
    assert failover.next() is None
    return failover.refusal("core")


def trio(attempts: int = 3) -> Failover:
    return Failover([model("a"), model("b"), model("c")], attempts=attempts, tokens=10)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (401, "authentication"), (403, "permission"), (404, "not_found"), (408, "timeout"), (409, "bad_request"),
        (429, "rate_limit"),
        (500, "server_error"), (503, "overloaded"), (529, "overloaded"), (502, "connection"), (502, "bad_response"),
        (400, "content_policy"), (400, "tools"), (500, "internal"), (429, "cooling"),
    ],
)  # fmt: skip
def test_the_next_member_is_asked_after_a_failure_of_the_members_own(status: int, kind: str) -> None:
    failover = trio()
    assert play(failover, fails(status, kind)) == ["a"]
    assert failover.next() == model("b")


def test_those_still_to_be_ranked_count_among_those_that_may_be_asked() -> None:
    failover = Failover([model("a")], attempts=3, tokens=10)
    failover.next()
    assert [failover.attempts_left(), failover.attempts_left(1), failover.attempts_left(7)] == [0, 1, 2]


def test_the_callers_own_fault_is_not_failed_over() -> None:
    failover = trio()
    play(failover, fails(400, "bad_request", "temperature must be at most 2"))
    assert failover.next() is None
    assert failover.over
    error = failover.refusal("core")
    assert isinstance(error, InvalidRequest)
    assert error.status == 400
    assert "temperature must be at most 2" in error.message


def test_no_more_members_are_asked_than_attempts_allow() -> None:
    failover = trio(attempts=2)
    assert play(failover, fails(), fails(), fails()) == ["a", "b"]
    assert failover.over


def test_who_has_failed_is_not_asked_again_when_others_come() -> None:
    failover = Failover([model("a")], attempts=3, tokens=10)
    play(failover, fails())
    failover.add([model("b"), model("a"), model("c")])
    assert play(failover, fails(), fails()) == ["b", "c"]


def test_an_overflow_goes_to_a_member_with_a_larger_window_first() -> None:
    models = [
        model("a", context_window=8000),
        model("b", context_window=600),
        model("c"),
        model("d", context_window=9000),
    ]
    failover = Failover(models, attempts=9, tokens=5000)
    assert play(failover, fails(400, "context_window", context_window=8000), fails(), fails()) == ["a", "d", "c"]


def test_those_that_come_after_an_overflow_are_held_to_it() -> None:
    failover = Failover([model("a", context_window=8000)], attempts=9, tokens=5000)
    play(failover, fails(400, "context_window"))
    failover.add([model("b", context_window=8000), model("c", context_window=8001)])
    assert play(failover, fails(), fails()) == ["c"]


def test_an_overflow_that_nobody_can_take_is_told_in_the_vendors_words() -> None:
    error = told(fails(400, "context_window", context_window=8192))
    assert isinstance(error, ContextOverflow)
    assert (error.status, error.code, error.tokens, error.window) == (400, "context_length_exceeded", 5000, 8192)


def test_only_rate_limits_are_a_429_with_the_shortest_wait() -> None:
    error = told(fails(429, "rate_limit", retry_after=30), fails(429, "rate_limit", retry_after=6.2))
    assert (error.status, error.retry_after, error.hopeless) == (429, 7, False)


@pytest.mark.parametrize(("stated", "wait"), [(3600.0, LONGEST_WAIT), (None, LONGEST_WAIT), (0.0, 1)])
def test_the_wait_is_never_longer_than_a_minute_nor_none(stated: float | None, wait: int) -> None:
    assert told(fails(429, "rate_limit", retry_after=stated)).retry_after == wait


def test_timeouts_are_a_504_and_anything_else_a_502() -> None:
    assert told(fails(504, "timeout"), fails(504, "timeout")).status == 504
    assert told(fails(504, "timeout"), fails(500)).status == 502


def test_clients_are_told_not_to_ask_again_only_when_it_cannot_help() -> None:
    assert told(fails(401, "authentication"), fails(404, "not_found")).hopeless
    assert not told(fails(401, "authentication"), fails(500)).hopeless


def test_the_refusal_names_each_member_and_why() -> None:
    error = told(fails(401, "authentication"), fails(500))
    assert isinstance(error, TurnFailed)
    assert "m0: 401 authentication" in error.message
    assert "m1: 500 server_error" in error.message
