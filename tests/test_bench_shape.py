"""The shape of a panel whose request and collection say none: a decision model's, and never at the panel's cost."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from bench_proxy.bench import Bench, Caller, Decision
from bench_proxy.catalog import Catalog, HostFacts
from bench_proxy.config import Config, parse
from bench_proxy.formats.request import Brief, ChatRequest
from bench_proxy.panel.panel import Panel
from bench_proxy.panel.seats import Report
from tests.doubles import WITHIN, Models, Remembered

ROLES = {"one": "general", "two": "general", "general-x": "general", "code-x": "code", "light-x": "light"}


class Held(Models):
    """Models that answer at once, but for those that a test holds until it lets them go."""

    def __init__(self, *held: str) -> None:
        self.held = {alias: asyncio.Event() for alias in held}
        super().__init__(**{alias: [gate, f"I am {alias}."] for alias, gate in self.held.items()})

    def let_go(self) -> None:
        for gate in self.held.values():
            gate.set()


class Decider:
    """Answers with what the test set; without it never, and says when it was told to stop."""

    def __init__(self, decision: Decision | None = None, *, answers: bool = True) -> None:
        self.decision, self.answers = decision, answers
        self.asked: list[tuple[str, str, Mapping[str, str]]] = []
        self.begun, self.stopped = asyncio.Event(), asyncio.Event()

    async def decide(self, model: str, question: str, options: Mapping[str, str]) -> Decision | None:
        self.asked.append((model, question, options))
        self.begun.set()
        if not self.answers:
            try:
                await asyncio.Event().wait()
            finally:
                self.stopped.set()
        return self.decision


def configured(**collection: Any) -> Config:
    block = {
        "collections": {"core": {"members": ["one", "two"], **collection}},
        "models": {name: {"role": role, "family": name} for name, role in ROLES.items()},
        "decision_model": "decider",
    }
    return parse(block, "the test")


async def nobody(_: Any) -> list[str]:
    return []


async def panel(
    models: Held,
    decider: Decider,
    content: Any = "Find the bug.",
    config: Config | None = None,
    **asked: Any,
) -> tuple[Panel, asyncio.Task[None]]:
    config = config or configured()
    catalog = Catalog([HostFacts(name, underlying=name, vision=True) for name in [*ROLES, "decider"]], config.models)
    bench = Bench(models, Remembered(), lambda: config, lambda: catalog, decider)
    brief = Brief(model="bench/core", collection="core", reply="all", **asked)
    request = ChatRequest([{"role": "user", "content": content}], {})
    accepted = await bench.ask(brief, request, Caller("me", admin=True, allowed=nobody), config)
    return accepted, bench.start(accepted)


async def report(models: Held, decider: Decider, *args: Any, **kwargs: Any) -> Report:
    accepted, running = await panel(models, decider, *args, **kwargs)
    found = await asyncio.wait_for(accepted.report, WITHIN)
    await asyncio.wait_for(running, WITHIN)
    return found


def explorers(found: Report) -> set[str]:
    return {seat.alias for seat in found.seating.seats if seat.kind == "explorer"}


async def test_a_sure_decision_is_the_shape_and_the_explorers_follow_its_roles() -> None:
    found = await report(Held(), decider := Decider(Decision("review", 0.97)))
    assert (found.seating.shape, found.seating.shape_by) == ("review", "decision model decider 0.97")
    assert explorers(found) == {"general-x", "code-x"}
    [(model, question, options)] = decider.asked
    assert (model, question) == ("decider", "Find the bug.")
    assert "vision" not in options
    assert all(len(meaning) > 10 for meaning in options.values())


async def test_another_decision_lets_other_roles_explore() -> None:
    found = await report(Held(), Decider(Decision("quick", 0.6)))
    assert found.seating.shape_by == "decision model decider 0.60"
    assert explorers(found) == {"general-x", "light-x"}


@pytest.mark.parametrize("decision", [None, Decision("review", 0.59), Decision("review", 0.0)])
async def test_without_a_sure_decision_the_shape_is_general(decision: Decision | None) -> None:
    found = await report(Held(), Decider(decision))
    assert (found.seating.shape, found.seating.shape_by) == ("general", "default")
    assert explorers(found) == {"general-x"}


async def test_members_are_at_work_while_the_decision_is_made() -> None:
    models, decider = Held("one", "two"), Decider(answers=False)
    accepted, running = await panel(models, decider)
    await asyncio.wait_for(decider.begun.wait(), WITHIN)
    assert {call.alias for call in models.calls} == {"one", "two"}
    assert not accepted.seating.done()
    models.let_go()
    await asyncio.wait_for(running, WITHIN)


async def test_a_panel_whose_members_are_done_does_not_wait_for_a_decision() -> None:
    found = await report(Held(), decider := Decider(answers=False))
    assert (found.seating.shape, found.seating.shape_by) == ("general", "default")
    assert [answer.status for answer in found.answers] == ["ok", "ok", "ok"]
    assert decider.stopped.is_set()


async def test_a_panel_that_has_its_quorum_does_not_wait_for_a_decision() -> None:
    models = Held("two")
    accepted, running = await panel(models, Decider(answers=False), quorum=1)
    found = await asyncio.wait_for(accepted.report, WITHIN)
    assert {a.seat.alias: a.status for a in found.answers if a.seat.kind == "member"} == {"one": "ok", "two": "late"}
    models.let_go()
    await asyncio.wait_for(running, WITHIN)


async def test_a_panel_at_its_deadline_does_not_wait_for_a_decision() -> None:
    models = Held("one", "two")
    accepted, running = await panel(models, Decider(answers=False), deadline=0.05)
    found = await asyncio.wait_for(accepted.report, WITHIN)
    assert {a.seat.alias: a.status for a in found.answers if a.seat.kind == "member"} == {"one": "late", "two": "late"}
    models.let_go()
    await asyncio.wait_for(running, WITHIN)


@pytest.mark.parametrize(
    ("config", "asked"),
    [
        ({"explorers": 0}, {}),
        ({}, {"explorers": 0}),
        ({"shape": "code"}, {}),
        ({}, {"shape": "code"}),
        ({"members": ["one", "two", "general-x", "code-x", "light-x"]}, {}),
    ],
    ids=["a collection without explorers", "a request without", "its shape", "the request's", "nobody is left"],
)
async def test_nothing_is_asked_when_no_explorer_depends_on_it(config: dict[str, Any], asked: dict[str, Any]) -> None:
    await report(Held(), decider := Decider(Decision("review", 0.97)), config=configured(**config), **asked)
    assert decider.asked == []


async def test_images_are_their_own_shape() -> None:
    image = [{"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}]
    found = await report(Held(), decider := Decider(Decision("review", 0.97)), image)
    assert (found.seating.shape, decider.asked) == ("vision", [])


async def test_the_decision_model_takes_no_explorer_seat() -> None:
    found = await report(Held(), Decider(Decision("enumeration", 0.9)))
    assert "decider" not in explorers(found)


async def test_a_hang_up_stops_the_decision() -> None:
    _, running = await panel(Held("one", "two"), decider := Decider(answers=False))
    await asyncio.wait_for(decider.begun.wait(), WITHIN)
    running.cancel()
    await asyncio.wait([running])
    assert decider.stopped.is_set()
