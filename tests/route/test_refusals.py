"""Options that only a panel can honour, and what a turn says to them."""

from typing import Any

import pytest

from bench_proxy.config import Config
from bench_proxy.errors import InvalidRequest
from bench_proxy.formats.brief import read_brief
from bench_proxy.formats.request import Brief
from bench_proxy.route.refusals import refuse_panel_options

CONFIG = Config.model_validate(
    {
        "collections": {
            "core": {"members": ["gpt"], "explorers": 2, "stream": "live"},
            "busy": {"members": ["gpt", "claude"], "quorum": 1, "deadline": 5, "reply": "route"},
        }
    }
)


def brief(model: str = "bench/core:route", **options: Any) -> Brief:
    body = {"model": model, "bench": options}
    return read_brief(body, {}, CONFIG, ["core", "busy"], stream=False, include_usage=False)


@pytest.mark.parametrize(
    ("name", "value", "instead"),
    [
        ("with", ["claude"], "no guest"),
        ("explorers", 1, "no explorer"),
        ("quorum", 1, "nothing to count"),
        ("blind", True, "names the member"),
        ("partial", "refuse", "one member answers"),
        ("stream", "seats", "as the member writes it"),
        ("stream", "live", "as the member writes it"),
    ],
)
def test_an_option_of_panels_is_refused_by_its_name_and_told_what_a_turn_does(
    name: str, value: Any, instead: str
) -> None:
    with pytest.raises(InvalidRequest) as error:
        refuse_panel_options(brief(**{name: value}))
    assert (error.value.status, error.value.param) == (400, f"bench.{name}")
    assert f"bench.{name} cannot be honoured in route mode" in error.value.message
    assert instead in error.value.message
    assert "bench/core:all" in error.value.message


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"explorers": 0},
        {"blind": False, "partial": "accept", "with": []},
        {"shape": "code", "deadline": 30, "conversation": "mine", "reply": "route"},
    ],
)
def test_what_asks_for_nothing_or_can_be_honoured_is_taken(options: dict[str, Any]) -> None:
    refuse_panel_options(brief(**options))


@pytest.mark.parametrize("model", ["bench/core:route", "bench/busy"])
def test_what_a_collection_sets_for_its_panels_asks_nothing_of_a_turn(model: str) -> None:
    refuse_panel_options(brief(model))
