"""Shadow turns: another member's answer to the same turn, for the record alone."""

import asyncio
from contextvars import ContextVar
from typing import Any

import pytest

from bench_proxy.upstream import CallPiece, Reply
from tests.doubles import Models, fails, until
from tests.route.test_turn import answer, table, turn_of

KEY: ContextVar[str] = ContextVar("KEY", default="")


async def shadows(at: Any) -> list[Any]:
    await until(lambda: at.ledger.shadows)
    return list(at.ledger.shadows)


async def test_another_member_answers_the_same_turn_for_the_record() -> None:
    at = table(Models(), "a", "b", route={"shadow": 1})
    alias, data = await answer(at)
    (shadow,) = await shadows(at)
    assert (alias, shadow.alias) == ("a", "b")
    assert shadow.call == f"{data['conversation']}.shadow1"
    assert shadow.answer == "I am b."
    assert shadow.reply.cost == 0.001
    assert shadow.keep_text


async def test_of_a_turn_whose_text_is_not_kept_the_shadows_is_not_either() -> None:
    at = table(Models(), "a", "b", route={"shadow": 1})
    await (await turn_of(at, keep_text=False)).whole()
    assert [shadow.keep_text for shadow in await shadows(at)] == [False]


async def test_the_tools_that_it_calls_are_told_and_not_run() -> None:
    script = [CallPiece(0, "call_1", "read", '{"path": "x"}'), Reply("", "tool_calls")]
    at = table(Models(b=script), "a", "b", route={"shadow": 1})
    await answer(at, tools=True)
    assert (await shadows(at))[0].answer == '[calls read {"path": "x"}]'


async def test_a_failure_is_on_the_record_and_cools_the_member() -> None:
    at = table(Models(b=[fails(500)]), "a", "b", route={"shadow": 1})
    await answer(at)
    (shadow,) = await shadows(at)
    assert shadow.error.kind == "server_error"
    assert "b" in at.bench.cooling.left()


async def test_nobody_waits_for_it_and_it_ends_with_the_process() -> None:
    models = Models(b=[asyncio.Event()])
    at = table(models, "a", "b", route={"shadow": 1})
    assert (await answer(at))[0] == "a"
    await until(lambda: models.asked("b"))
    await at.bench.routing.finish()
    assert models.open == 0
    assert at.ledger.shadows == []


async def test_it_is_not_billed_to_the_caller() -> None:
    class Billed(Models):
        def stream(self, call: Any) -> Any:
            self.keys = {**getattr(self, "keys", {}), call.alias: KEY.get()}
            return super().stream(call)

    models = Billed()
    at = table(models, "a", "b", route={"shadow": 1})
    KEY.set("the caller's")
    await answer(at)
    await shadows(at)
    assert models.keys == {"a": "the caller's", "b": ""}
    assert "bench-shadow" in models.asked("b")[0].tags
    assert "bench-shadow" not in models.asked("a")[0].tags


@pytest.mark.parametrize(("share", "members"), [(0, ("a", "b")), (1, ("a",))])
async def test_without_a_share_or_another_member_there_is_none(share: float, members: tuple[str, ...]) -> None:
    models = Models()
    at = table(models, *members, route={"shadow": share})
    await answer(at)
    await at.bench.routing.finish()
    assert [call.alias for call in models.calls] == ["a"]


async def test_a_share_of_the_turns_is_a_share() -> None:
    at = table(Models(), "a", "b", route={"shadow": 0.5})
    for number in range(40):
        await answer(at, f"question {number}")
    await asyncio.sleep(0.1)
    assert 8 < len(at.ledger.shadows) < 32


async def test_a_turn_that_broke_off_has_no_shadow() -> None:
    models = Models(a=["Hel", fails(502, "connection", "cut")])
    at = table(models, "a", "b", route={"shadow": 1})
    with pytest.raises(Exception, match="broke off"):
        _ = [piece async for piece in (await turn_of(at)).pieces()]
    await at.bench.routing.finish()
    assert models.asked("b") == []
