"""Who is let in by a bench key: what is asked of the ledger for it, and who pays."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from bench_proxy.bench import Caller
from bench_proxy.errors import BudgetSpent, Denied, InvalidRequest, LedgerUnavailable, Overloaded
from bench_proxy.http import admission
from bench_proxy.http.admission import Admission
from bench_proxy.http.sent_keys import SENT, Sent
from bench_proxy.ids import key_id
from bench_proxy.keys import BenchKey, KeyPage, Limits, Use, digest_of, new_key

SECRET = new_key()
ASKED: Mapping[str, Any] = {"model": "bench/core"}
COLLECTIONS = ("core", "other")


def known(**more: Any) -> BenchKey:
    return BenchKey(
        **{"id": key_id(), "name": "ann", "digest": digest_of(SECRET), "last_four": "wxyz", "at_ms": 1, **more}
    )


class Store:
    """Has these keys; remembers what was asked of it. `refusals` meet the next tries to set something aside."""

    def __init__(self, *keys: BenchKey) -> None:
        self.keys = {key.digest: key for key in keys}
        self.looked_up: list[str] = []
        self.counted: list[str] = []
        self.held: dict[str, Use] = {}
        self.holds = 0
        self.refusals: list[Exception] = []
        self.down = False

    async def make_key(self, key: BenchKey) -> None:
        raise NotImplementedError

    async def bench_keys(self, limit: int, cursor: str | None) -> KeyPage:
        raise NotImplementedError

    async def revoke_key(self, id: str, now_ms: int) -> tuple[BenchKey, Use] | None:
        raise NotImplementedError

    async def bench_key(self, digest: str) -> BenchKey | None:
        if self.down:
            raise LedgerUnavailable("gone")
        self.looked_up.append(digest)
        return self.keys.get(digest)

    async def count_request(self, key: BenchKey, now_ms: int) -> None:
        self.counted.append(key.id)
        if self.down:
            raise LedgerUnavailable("gone")

    async def hold(self, id: str, key: BenchKey, most: Use, until_ms: int, now_ms: int) -> None:
        self.holds += 1
        if self.refusals:
            raise self.refusals.pop(0)
        self.held[id] = most

    async def let_go(self, hold: str) -> None:
        del self.held[hold]


class Door:
    """An admission over a store, and what it told LiteLLM's books."""

    def __init__(self, store: Store) -> None:
        self.charged: list[Mapping[str, Any]] = []
        self.admission = Admission(self._host, lambda: store, self.charged.append, lambda: COLLECTIONS, self._check)

    async def _host(self, scope: Any, receive: Any, body: Any) -> Caller:
        raise Denied("LiteLLM knows nobody", status=401, type="auth_error")

    def _check(self, body: Mapping[str, Any]) -> None:
        if "api_base" in body:
            raise Denied("Rejected Request: api_base", status=400, type="invalid_request_error")

    async def ask(self, key: str | None = SECRET, body: Mapping[str, Any] | None = ASKED) -> Caller:
        scope = {} if key is None else {SENT: Sent(digest_of(key))}
        return await self.admission(scope, None, body)  # type: ignore[arg-type]


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_caller_without_a_bench_key_is_litellms_to_judge() -> None:
    store = Store(known())
    with pytest.raises(Denied, match="LiteLLM knows nobody"):
        await Door(store).ask(None)
    assert store.looked_up == []


async def test_a_key_of_no_form_costs_no_look_up() -> None:
    store = Store(known(digest=""))
    with pytest.raises(Denied, match="is not known"):
        await Door(store).ask("bpk_short")
    assert store.looked_up == []


async def test_a_body_that_litellm_would_not_take_is_refused_and_not_counted() -> None:
    store = Store(known(limits=Limits(requests_a_minute=5)))
    door = Door(store)
    with pytest.raises(Denied, match="api_base"):
        await door.ask(body={**ASKED, "api_base": "http://127.0.0.1:9"})
    assert (store.counted, door.charged) == ([], [])


async def test_an_unknown_key_costs_one_look_up_however_often_it_is_sent() -> None:
    store, wrong = Store(), new_key()
    door = Door(store)
    for _ in range(50):
        with pytest.raises(Denied, match="is not known"):
            await door.ask(wrong)
    assert store.looked_up == [digest_of(wrong)]
    assert (store.counted, door.charged) == ([], [])


async def test_no_more_is_remembered_than_has_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "MOST_REMEMBERED", 3)
    door = Door(Store(known()))
    await door.ask()
    for _ in range(5):
        with pytest.raises(Denied):
            await door.ask(new_key())
    assert len(door.admission._known) == 3


async def test_what_was_read_of_a_key_is_believed_for_a_moment_only(monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(known())
    door = Door(store)
    await door.ask()
    store.keys = {digest: replace(key, revoked_ms=1) for digest, key in store.keys.items()}
    await door.ask()
    monkeypatch.setattr(admission, "FRESH_SECONDS", -1)
    with pytest.raises(Denied, match="was revoked"):
        await door.ask()


async def test_nobody_is_let_in_while_the_ledger_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "FRESH_SECONDS", -1)
    store = Store(known())
    door = Door(store)
    await door.ask()
    store.down = True
    with pytest.raises(LedgerUnavailable):
        await door.ask()


async def test_a_question_is_counted_and_a_look_is_not() -> None:
    key = known(limits=Limits(requests_a_minute=5))
    store = Store(key)
    door = Door(store)
    await door.ask(body=None)
    assert (store.counted, door.charged) == ([], [])
    await door.ask()
    await door.ask(body={})
    assert store.counted == [key.id, key.id]


async def test_a_key_without_a_limit_waits_for_no_count() -> None:
    key = known()
    store = Store(key)
    door = Door(store)
    await door.ask()
    assert store.counted == []
    await settle()
    assert store.counted == [key.id]


async def test_the_calls_are_billed_to_the_name_and_the_id() -> None:
    key = known(name="ann's laptop")
    door = Door(Store(key))
    await door.ask()
    assert door.charged == [{"user_api_key_alias": "ann's laptop", "user_api_key_end_user_id": key.id}]


async def test_a_key_is_no_admin_and_calls_its_collections_and_no_model() -> None:
    key = known(collections=("core",))
    caller = await Door(Store(key)).ask()
    assert (caller.owner, caller.admin, caller.checked, caller.hold) == (key.id, False, False, None)
    assert await caller.allowed(["bench/core", "bench/other", "gpt", "core"]) == ["bench/core"]


async def test_a_key_for_all_collections_calls_no_model_whose_name_looks_like_one() -> None:
    caller = await Door(Store(known())).ask()
    assert await caller.allowed(["bench/core", "bench/no-collection", "Bench/core", "bench/other"]) == [
        "bench/core",
        "bench/other",
    ]


async def holding(door: Door) -> Any:
    caller = await door.ask()
    assert caller.hold is not None
    return caller.hold(Use(10, 0.5), 60)


async def test_what_is_set_aside_is_let_go_whatever_happens() -> None:
    store = Store(known(limits=Limits(tokens_a_day=100)))
    door = Door(store)

    async def refused() -> None:
        async with await holding(door):
            assert list(store.held.values()) == [Use(10, 0.5)]
            raise InvalidRequest("no")

    with pytest.raises(InvalidRequest):
        await refused()
    await settle()
    assert store.held == {}


async def test_a_used_up_budget_is_refused_at_once() -> None:
    store = Store(known(limits=Limits(tokens_a_day=100)))
    store.refusals = [BudgetSpent("all gone")]
    with pytest.raises(BudgetSpent):
        async with await holding(Door(store)):
            pytest.fail("it was let in")
    await settle()
    assert (store.holds, store.held) == (1, {})


async def test_who_comes_right_behind_another_waits_for_what_that_one_has_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "AGAIN_SECONDS", 0)
    store = Store(known(limits=Limits(cost_a_day=1.0)))
    store.refusals = [Overloaded("under way"), Overloaded("under way")]
    async with await holding(Door(store)):
        assert len(store.held) == 1
    assert store.holds == 3


async def test_patience_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "PATIENCE_SECONDS", -1)
    store = Store(known(limits=Limits(cost_a_day=1.0)))
    store.refusals = [Overloaded("under way")]
    with pytest.raises(Overloaded, match="under way"):
        async with await holding(Door(store)):
            pytest.fail("it was let in")
    await settle()
    assert store.held == {}
