"""Names of functions: which are changed for the models, and that no two become one."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench_proxy.formats.function_names import known, renamed
from bench_proxy.formats.request import ToolName

TAKEN = re.compile(r"[a-zA-Z0-9_-]{1,64}")


@pytest.mark.parametrize("name", ["read", "fs__read-all_2", "a" * 64, ""])
def test_a_name_that_all_take_stays(name: str) -> None:
    assert known(name) == name
    assert renamed([name]) == {}


@pytest.mark.parametrize("name", ["fs.read", "fs:read", "fs/read", "wetter für", "a" * 65, "天気", "\ud83d", "read\n"])
def test_any_other_becomes_one_that_all_take(name: str) -> None:
    assert TAKEN.fullmatch(known(name))
    assert renamed([name, "read"]) == {known(name): ToolName(name)}


def test_similar_names_stay_apart() -> None:
    names = ["fs.read", "fs:read", "fs_read", "a" * 65, "a" * 66]
    assert len({known(name) for name in names}) == len(names)


def test_a_name_is_changed_the_same_way_in_every_process() -> None:
    assert known("fs.read") == "fs_read_4074bc02"


@given(st.text())
def test_any_name_is_changed_once(name: str) -> None:
    assert known(known(name)) == known(name)
