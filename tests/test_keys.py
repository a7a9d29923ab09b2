"""What a bench key is, when it is good, and how its limits are kept."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench_proxy.catalog import Catalog, HostFacts
from bench_proxy.config import parse
from bench_proxy.errors import BudgetSpent, Denied, Overloaded
from bench_proxy.estimate import most_used
from bench_proxy.formats.request import Brief, ChatRequest
from bench_proxy.ids import key_id
from bench_proxy.keys import (
    FORM,
    ID,
    BenchKey,
    Limits,
    Minute,
    Use,
    check_day,
    counted,
    day_of,
    digest_of,
    judged,
    new_key,
    payer_of,
)

NOW = 1_796_000_000_000  # 2026-11-30, in the morning
MINUTE = NOW - NOW % 60_000
SECRET = new_key()


def key(**more: object) -> BenchKey:
    known = {"id": key_id(), "name": "ann", "digest": digest_of(SECRET), "last_four": SECRET[-4:], "at_ms": NOW - 1000}
    return BenchKey(**{**known, **more})  # type: ignore[arg-type]


# What one is


@pytest.mark.parametrize(
    "text",
    [
        "",
        "bpk_",
        SECRET[:-1],
        SECRET + "a",
        SECRET.upper(),
        SECRET[:-1] + "!",
        SECRET[:-1] + "ß",
        f" {SECRET}",
        SECRET[4:],
    ],
)
def test_what_has_not_the_form_of_a_key_has_no_digest(text: str) -> None:
    assert digest_of(text) == ""


def test_keys_are_all_different_and_have_the_form() -> None:
    keys = {new_key() for _ in range(1000)}
    assert len(keys) == 1000
    assert all(FORM.fullmatch(each) for each in keys)
    assert len({digest_of(each) for each in keys}) == 1000


def test_a_key_is_not_in_what_is_known_of_it() -> None:
    known = key()
    assert SECRET not in repr(known)
    assert known.digest not in repr(known)
    shown = str(known.as_json(Use()))
    assert SECRET not in shown
    assert known.digest not in shown
    assert SECRET[4:] not in str(payer_of(known))


def test_an_id_is_one_of_ours() -> None:
    assert ID.fullmatch(key_id())
    assert not ID.fullmatch("0" * 32)


# Whether it is good


def test_a_key_that_is_not_there_is_refused() -> None:
    with pytest.raises(Denied, match="is not known") as refused:
        judged(None, digest_of(SECRET), NOW)
    assert (refused.value.status, refused.value.type) == (401, "auth_error")


@pytest.mark.parametrize("digest", ["", digest_of(new_key())])
def test_a_key_of_another_digest_is_refused(digest: str) -> None:
    with pytest.raises(Denied, match="is not known"):
        judged(key(), digest, NOW)
    with pytest.raises(Denied, match="is not known"):
        judged(key(digest=""), "", NOW)


def test_a_revoked_key_is_refused() -> None:
    with pytest.raises(Denied, match="was revoked"):
        judged(key(revoked_ms=NOW - 1), digest_of(SECRET), NOW)


def test_a_key_is_good_until_it_expires() -> None:
    limited = key(expires_ms=NOW)
    assert judged(limited, digest_of(SECRET), NOW - 1) is limited
    with pytest.raises(Denied, match=r"expired on 2026-11-30 \d\d:\d\d UTC"):
        judged(limited, digest_of(SECRET), NOW)


def test_no_refusal_holds_a_key() -> None:
    for known in (None, key(revoked_ms=1), key(expires_ms=1)):
        with pytest.raises(Denied) as refused:
            judged(known, digest_of(SECRET), NOW)
        assert SECRET[4:12] not in refused.value.message


def test_collections_that_are_not_named_are_all() -> None:
    assert key().may_call("core")
    assert not key(collections=()).may_call("core")
    assert key(collections=("core",)).may_call("core")
    assert not key(collections=("core",)).may_call("other")


@pytest.mark.parametrize(("collections", "shown"), [(None, None), ((), []), (("core",), ["core"])])
def test_all_collections_and_none_are_shown_as_what_they_are(
    collections: tuple[str, ...] | None, shown: list[str] | None
) -> None:
    assert key(collections=collections).as_json(Use())["collections"] == shown


# Requests a minute


def test_one_request_too_many_is_refused_until_the_minute_ends() -> None:
    with pytest.raises(Overloaded, match="may send 2 requests a minute; ask again in 15 s") as refused:
        counted(Minute(MINUTE, 2), 2, MINUTE + 45_000)
    assert refused.value.retry_after == 15


def test_requests_are_counted_anew_in_each_minute() -> None:
    minute = counted(Minute(), 2, MINUTE)
    minute = counted(minute, 2, MINUTE + 59_999)
    assert minute == Minute(MINUTE, 2)
    assert counted(minute, 2, MINUTE + 60_000) == Minute(MINUTE + 60_000, 1)


def test_a_clock_that_is_behind_begins_no_minute_anew() -> None:
    with pytest.raises(Overloaded):
        counted(Minute(MINUTE + 60_000, 2), 2, MINUTE + 50_000)


def test_a_clock_that_was_wrong_by_hours_locks_nobody_out() -> None:
    assert counted(Minute(MINUTE + 7_200_000, 2), 2, MINUTE) == Minute(MINUTE, 1)


@given(st.integers(0, 2**45), st.integers(0, 2**45), st.integers(-5, 2**40), st.integers(0, 10**6))
def test_any_row_gives_an_answer(start: int, now: int, requests: int, limit: int) -> None:
    try:
        assert counted(Minute(start, requests), limit, now).requests <= limit
    except Overloaded as refused:
        assert 1 <= (refused.retry_after or 0) <= 60  # noqa: PT017  either is right, and this is what one must say


# Tokens and cost a day


def test_a_used_up_budget_says_which_and_when_the_day_ends() -> None:
    with pytest.raises(BudgetSpent) as refused:
        check_day(Limits(tokens_a_day=1000), Use(1234, 0.5), Use(), NOW)
    assert "tokens a day (1,234 of 1,000); the day ends at 00:00 UTC, in " in refused.value.message
    with pytest.raises(BudgetSpent) as refused:
        check_day(Limits(cost_a_day=0.5), Use(1234, 0.5), Use(), NOW)
    assert "cost a day ($0.5000 of $0.5000)" in refused.value.message
    assert (refused.value.status, refused.value.code, refused.value.hopeless) == (429, "budget_spent", True)
    assert 1 <= (refused.value.retry_after or 0) <= 60


def test_what_is_under_way_counts_as_long_as_it_is() -> None:
    with pytest.raises(Overloaded, match="under way") as refused:
        check_day(Limits(tokens_a_day=1000), Use(400), Use(600), NOW)
    assert not isinstance(refused.value, BudgetSpent)
    assert refused.value.retry_after == 1


def test_a_budget_lets_in_until_it_is_reached() -> None:
    check_day(Limits(tokens_a_day=1000, cost_a_day=1.0), Use(999, 0.99), Use(), NOW)
    check_day(Limits(tokens_a_day=1000), Use(0, 50.0), Use(999), NOW)
    check_day(Limits(), Use(10**12, 1e9), Use(10**12, 1e9), NOW)


def test_days_are_those_of_utc() -> None:
    assert day_of(1_796_083_199_999) == "2026-11-30"
    assert day_of(1_796_083_200_000) == "2026-12-01"


# The most that a request may use


def most(reply: str, *, explorers: int = 0, **settings: object) -> Use:
    config = parse({"collections": {"core": {"members": ["a", "b"], "explorers": explorers}}}, "the test")
    hosted = [
        HostFacts("a", "a", max_output=1000, input_cost_per_token=0.001, output_cost_per_token=0.002),
        HostFacts("b", "b", max_output=500),
        HostFacts("c", "c", max_output=2000, input_cost_per_token=0.001, output_cost_per_token=0.01),
    ]
    brief = Brief("bench/core", "core", reply)  # type: ignore[arg-type]
    request = ChatRequest([{"role": "user", "content": "x" * 3600}], dict(settings))
    return most_used(brief, request, config, Catalog(hosted, config.models))


PROMPT = 994


def test_a_panel_may_use_the_most_of_each_of_its_seats() -> None:
    assert most("all").tokens == 2 * PROMPT + 1000 + 500
    assert most("all").cost == pytest.approx(PROMPT * 0.001 + 1000 * 0.002)
    assert most("all", explorers=1).tokens == 3 * PROMPT + 1000 + 500 + 2000


def test_a_merger_reads_all_of_it_once_more() -> None:
    assert most("merged").tokens == most("all").tokens + PROMPT + most("all").tokens + 1000


def test_a_turn_may_use_the_most_of_one_member() -> None:
    assert most("route").tokens == PROMPT + 1000


def test_a_request_that_limits_its_answers_may_use_no_more() -> None:
    assert most("all", max_tokens=10).tokens == 2 * (PROMPT + 10)
    assert most("route", max_completion_tokens=10).tokens == PROMPT + 10


def test_of_two_limits_of_an_answer_the_larger_one_is_set_aside() -> None:
    """A server may go by either of them."""
    assert most("route", max_completion_tokens=1, max_tokens=10).tokens == PROMPT + 10


@pytest.mark.parametrize("limit", ["max_length", "max_new_tokens", "max_output_tokens", "n_predict", "num_predict"])
def test_a_limit_that_only_some_servers_know_sets_aside_more_and_never_less(limit: str) -> None:
    assert most("route", **{limit: 7000}).tokens == PROMPT + 7000
    assert most("route", **{"max_tokens": 10, limit: 7000}).tokens == PROMPT + 7000
    assert most("route", **{limit: 1}).tokens == PROMPT + 1000


def test_what_is_passed_on_and_not_understood_is_set_aside_too() -> None:
    assert most("route", documents="x" * 4000).tokens == PROMPT + 1000 + 1000


@pytest.mark.parametrize("reply", ["all", "merged", "route"])
def test_what_is_set_aside_can_be_stored_whatever_a_request_asks_for(reply: str) -> None:
    assert 10**12 < most(reply, explorers=1, max_tokens=2**63 - 1).tokens < 2**63
