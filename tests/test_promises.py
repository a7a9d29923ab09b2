"""Each promise of SECURITY.md names tests that hold it, and they exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SECURITY = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
PROMISES = re.findall(r"^\| (?!promise|---)(.+?) \| (.+) \|$", SECURITY, re.MULTILINE)
ACTORS = re.findall(r"^### (.+)$", SECURITY, re.MULTILINE)
LINK = re.compile(r"\]\((?!https?://)([^)#]+)")


def test_there_is_a_promise_for_each_actor() -> None:
    parts = re.split(r"^### .+$", SECURITY, flags=re.MULTILINE)[1:]
    assert len(parts) == len(ACTORS) >= 7
    assert all(NAMED.search(part) and "Not promised" in part for part in parts)


@pytest.mark.parametrize(("promise", "held_by"), PROMISES, ids=[promise[:60] for promise, _ in PROMISES])
def test_a_promise_names_tests_that_exist(promise: str, held_by: str) -> None:
    named = NAMED.findall(held_by)
    assert ", ".join(f"`{file}::{test}`" for file, test in named) == held_by
    for file, test in named:
        source = (ROOT / file).read_text(encoding="utf-8")
        assert re.search(rf"^(async )?def {test}\(", source, re.MULTILINE), f"{file} has no {test}"


def test_its_links_lead_somewhere() -> None:
    for target in LINK.findall(SECURITY):
        assert (ROOT / target).exists(), target
