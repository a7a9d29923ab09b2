"""Ids are never given twice, and say what they name."""

import re
from datetime import UTC, datetime, timedelta, timezone

import pytest

from bench_proxy.ids import call_id, conversation_id, panel_id

NOON = datetime(2026, 3, 1, 12, 0, 5, tzinfo=UTC)


def test_a_panel_id_is_p_the_time_and_eighty_random_bits() -> None:
    assert re.fullmatch(r"p20260301-120005-[a-z2-7]{16}", panel_id(NOON))


def test_a_conversation_id_is_r_and_the_same() -> None:
    assert re.fullmatch(r"r20260301-120005-[a-z2-7]{16}", conversation_id(NOON))


def test_the_time_is_now_unless_said() -> None:
    before = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    said = panel_id()[1:16]
    assert before <= said <= datetime.now(UTC).strftime("%Y%m%d-%H%M%S")


def test_ids_of_one_second_differ_also_when_the_clock_jumps_back() -> None:
    made = [panel_id(NOON - timedelta(seconds=n % 3)) for n in range(20_000)]
    assert len(set(made)) == len(made)


def test_each_of_the_eighty_bits_is_random() -> None:
    alphabet = "abcdefghijklmnopqrstuvwxyz234567"
    values = [int("".join(f"{alphabet.index(c):05b}" for c in panel_id(NOON)[-16:]), 2) for _ in range(200)]
    always_one = values[0]
    ever_one = 0
    for value in values:
        always_one &= value
        ever_one |= value
    assert (always_one, ever_one) == (0, 2**80 - 1)


@pytest.mark.parametrize(
    ("seat", "number", "suffix"), [("member", 1, "member1"), ("explorer", 2, "explorer2"), ("guest", 10, "guest10")]
)
def test_a_call_id_is_the_panel_the_seat_and_its_number(seat: str, number: int, suffix: str) -> None:
    assert call_id("p20260301-120005-abcdefghijklmnop", seat, number) == f"p20260301-120005-abcdefghijklmnop.{suffix}"


def test_the_merger_of_which_there_is_one_has_no_number() -> None:
    assert call_id("p1", "merger", 1) == "p1.merger"


def test_ids_are_in_utc() -> None:
    zurich = datetime(2026, 7, 1, 1, 30, tzinfo=timezone(timedelta(hours=2)))
    assert panel_id(zurich).startswith("p20260630-233000-")
