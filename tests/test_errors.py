"""The error tree is the one that is drawn, and each error carries what a client is told."""

import inspect
import re

import pytest

from bench_proxy import errors
from bench_proxy.errors import BenchError, ConfigError, Denied, PanelFailed, TurnFailed, UpstreamError

LINE = re.compile(r"^    (?P<branch>[│├└─ ]*)(?P<name>[A-Z]\w+)\s{2,}(?P<what>.+)$")


def drawn() -> dict[str, tuple[str | None, str]]:
    """Name -> the name above it in the docstring's drawing, and what stands beside it."""
    found: dict[str, tuple[str | None, str]] = {}
    above: dict[int, str] = {}
    for line in (errors.__doc__ or "").splitlines():
        if match := LINE.match(line):
            depth = len(match["branch"]) // 4
            above[depth] = match["name"]
            found[match["name"]] = (above[depth - 1] if depth else None, match["what"])
    return found


CLASSES = {name: cls for name, cls in vars(errors).items() if inspect.isclass(cls) and issubclass(cls, Exception)}
# Those whose status is one of the class; the others are told theirs.
TOLD = (Denied, PanelFailed, TurnFailed)
FIXED = {name for name, cls in CLASSES.items() if issubclass(cls, BenchError) and not issubclass(cls, TOLD)}


def test_every_error_is_drawn_and_nothing_else_is() -> None:
    assert drawn().keys() == CLASSES.keys()


@pytest.mark.parametrize("name", CLASSES)
def test_an_error_stands_below_the_class_that_it_extends(name: str) -> None:
    (base,) = CLASSES[name].__bases__
    assert drawn()[name][0] == (None if base is Exception else base.__name__)


@pytest.mark.parametrize("name", sorted(FIXED))
def test_an_error_has_the_status_that_is_drawn(name: str) -> None:
    assert drawn()[name][1].split()[0] == str(CLASSES[name].status)


@pytest.mark.parametrize("name", sorted(FIXED))
def test_an_error_that_is_drawn_with_a_type_has_it(name: str) -> None:
    if match := re.match(r"\d+\s+(\w+_error)\b", drawn()[name][1]):
        assert CLASSES[name].type == match[1]


def test_an_error_carries_what_a_client_is_told() -> None:
    error = errors.InvalidRequest("n is 3", param="n", code="too_many", retry_after=7, data={"panel": "p1"})
    assert str(error) == error.message == "n is 3"
    assert (error.param, error.code, error.retry_after, error.data) == ("n", "too_many", 7, {"panel": "p1"})


def test_a_refusal_of_litellms_keeps_litellms_status_and_type() -> None:
    error = Denied("no budget left", status=402, type="budget_exceeded", retry_after=3)
    assert (error.status, error.type, error.retry_after) == (402, "budget_exceeded", 3)


@pytest.mark.parametrize(
    ("status", "type"),
    [(429, "rate_limit_error"), (413, "invalid_request_error"), (502, "server_error"), (504, "server_error")],
)
def test_a_panel_that_failed_has_the_status_of_why_and_a_code_for_programs(status: int, type: str) -> None:
    error = PanelFailed("no seat answered", status=status, data={"panel": "p1"})
    assert (error.status, error.type, error.code) == (status, type, "no_seat_answered")
    assert error.data == {"panel": "p1"}


def test_the_failure_of_a_models_call_is_no_response() -> None:
    assert not issubclass(UpstreamError, BenchError)
    error = UpstreamError("rate_limit", 429, "slow down", retry_after=2.5)
    assert (error.kind, error.status, error.message, error.retry_after) == ("rate_limit", 429, "slow down", 2.5)


@pytest.mark.parametrize(
    ("faults", "first"),
    [
        (["a: b"], "bench.yaml: 1 fault in the bench configuration"),
        (["a: b", "c: d"], "bench.yaml: 2 faults in the bench configuration"),
    ],
)
def test_a_config_error_lists_every_fault_on_a_line(faults: list[str], first: str) -> None:
    assert str(ConfigError("bench.yaml", faults)).splitlines() == [first, *(f"  {fault}" for fault in faults)]
