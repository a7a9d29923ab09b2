"""A body is read once, is known for ours without being parsed, and can be given on as it came."""

import asyncio
import json
from collections.abc import Iterable
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.types import Message

from bench_proxy.http import body as bodies
from bench_proxy.http.body import MOST_TOKENS, RARE, Incoming, count, may_be_ours, read, top_level_model

Json = dict[str, Any]

TEXT = st.text(max_size=6) | st.sampled_from(
    ["model", '"model"', 'model": "bench/core', "bench/core", "\\", "{", "]", ","]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
OTHERS = st.dictionaries(TEXT.filter(lambda name: name != "model"), VALUES, max_size=4)
MODELS = TEXT | st.sampled_from(["bench/core", "bench/core:route", "Bench/core", "bench", "benchmark", "gpt-4o"])
BENCH = st.sampled_from(["bench", "bench/", "bench/core", "BENCH/core:route", "bench:route"])


class Wire:
    """Writes JSON as anybody may write it: any whitespace, any character escaped or not."""

    def __init__(self, random: Random, *, escapes: bool) -> None:
        self._random = random
        self._escapes = escapes

    def body(self, document: Json) -> bytes:
        return (self._space() + self._value(document) + self._space()).encode()

    def _space(self) -> str:
        return "".join(self._random.choices(" \t\r\n", k=self._random.choice([0, 0, 1, 3])))

    def _value(self, value: object) -> str:
        match value:
            case str():
                return self._string(value)
            case dict():
                return self._joined(
                    "{}", (f"{self._string(k)}{self._space()}:{self._padded(v)}" for k, v in value.items())
                )
            case list():
                return self._joined("[]", (self._padded(v) for v in value))
            case _:
                return json.dumps(value)

    def _padded(self, value: object) -> str:
        return self._space() + self._value(value) + self._space()

    def _joined(self, brackets: str, items: Iterable[str]) -> str:
        return brackets[0] + self._space() + f",{self._space()}".join(items) + self._space() + brackets[1]

    def _string(self, text: str) -> str:
        return '"' + "".join(self._character(c) for c in text) + '"'

    def _character(self, c: str) -> str:
        if self._escapes and self._random.random() < 0.3:
            if c == "/":
                return "\\/"
            return "".join(f"\\u{unit:04x}" for unit in _utf16(c))
        return json.dumps(c, ensure_ascii=False)[1:-1]


def _utf16(c: str) -> list[int]:
    raw = c.encode("utf-16-be")
    return [int.from_bytes(raw[n : n + 2]) for n in range(0, len(raw), 2)]


def at(document: Json, name: str, value: object, place: int) -> Json:
    """The object with one more member at this place."""
    items = list(document.items())
    items.insert(place % (len(items) + 1), (name, value))
    return dict(items)


def named(body: bytes) -> str | None:
    """What a parser says of a whole body."""
    model = json.loads(body).get("model")
    return model if isinstance(model, str) else None


# Whose it is


@given(OTHERS, BENCH, st.integers(0, 9), st.randoms(use_true_random=False))
def test_a_body_that_asks_for_a_bench_model_may_be_ours(others: Json, model: str, place: int, random: Random) -> None:
    assert may_be_ours(Wire(random, escapes=False).body(at(others, "model", model, place)))


@pytest.mark.parametrize("text", ['{"model":"bench\\/core"}', '{"model"\n:\t"Bench/core"}', '{"model":"bench"}'])
def test_an_escaped_slash_and_odd_spaces_do_not_hide_a_bench_model(text: str) -> None:
    assert may_be_ours(text.encode())


@given(st.dictionaries(st.text(max_size=5), st.text(max_size=5) | st.integers()), st.randoms(use_true_random=False))
def test_a_body_without_a_bench_model_is_not_ours(document: Json, random: Random) -> None:
    body = Wire(random, escapes=True).body(document)
    assert not may_be_ours(body)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        '{"model":"benchmark"}',
        '{"model":"bench-1"}',
        '{"model":"gpt","x":"bench/core"}',
        '{"model":"my/bench/core"}',
        '{"model":{"bench/core":1}}',
        '{"model":["bench/core"]}',
        '{"model":"gpt"}' + '{"model":"gpt"}' * 100,
        '"model' * 1000,
    ],
)
def test_a_body_that_names_another_model_is_not_ours(text: str) -> None:
    assert not may_be_ours(text.encode())


def test_a_bench_model_is_found_behind_any_number_of_others() -> None:
    many = ",".join(['{"model":"gpt"}'] * 100)
    assert may_be_ours(f'{{"tools":[{many}],"model":"bench/core"}}'.encode())


# Which model a body names that cannot be parsed


@given(OTHERS, MODELS | VALUES, st.integers(0, 9), st.randoms(use_true_random=False))
def test_for_a_whole_body_the_model_is_the_one_that_a_parser_finds(
    others: Json, model: object, place: int, random: Random
) -> None:
    body = Wire(random, escapes=True).body(at(others, "model", model, place))
    assert top_level_model(body) == named(body)


@given(OTHERS, st.randoms(use_true_random=False))
def test_a_body_without_a_model_names_none_whatever_is_nested_in_it(others: Json, random: Random) -> None:
    assert top_level_model(Wire(random, escapes=True).body(others)) is None


@settings(max_examples=50)
@given(OTHERS, MODELS | VALUES, st.integers(0, 9), st.randoms(use_true_random=False))
def test_no_beginning_of_a_body_names_a_wrong_model(others: Json, model: object, place: int, random: Random) -> None:
    body = Wire(random, escapes=True).body(at(others, "model", model, place))
    right = named(body)
    assert {top_level_model(body[:length]) for length in range(len(body))} <= {None, right}


@given(st.binary(max_size=200) | st.text(alphabet='{}[]:,"\\ model', max_size=60).map(str.encode))
def test_any_bytes_name_a_model_or_none(body: bytes) -> None:
    model = top_level_model(body)
    assert model is None or isinstance(model, str)


@pytest.mark.parametrize(
    ("text", "model"),
    [
        ('{"model":"bench/core","messages":[{"role":"user","content":"cut o', "bench/core"),
        ('{"messages":[],"model":"bench/core"', "bench/core"),
        ('{"model":"bench/core"} and more', "bench/core"),
        ('{"messages":[{"model":"bench/core"}],', None),
        ('{"metadata":{"model":"bench/core"},', None),
        ('{"x":"\\"model\\":\\"bench/core\\"",', None),
        ('{"x":"model","y":"bench/core",', None),
        ('{"model":"bench/co', None),
        ('{"model":"bench/core\\"', None),
        ('{"model":', None),
        ('{"model', None),
        ('["model","bench/core"]', None),
        ("", None),
    ],
)
def test_a_broken_body_names_the_model_of_its_outermost_object(text: str, model: str | None) -> None:
    assert top_level_model(text.encode()) == model


@pytest.mark.parametrize(
    "body", [b'"' * 500_000, b'{"x":"' + b"\\" * 500_001, b"{" * 500_000, b'{"a' + b"\\u" * 249_999]
)
def test_a_long_broken_body_takes_one_pass(body: bytes) -> None:
    # Far slower than one pass would be a hang, which the time limit of the tests ends.
    assert top_level_model(body) is None


# Reading and giving on


class Client:
    """Sends these pieces of a body; counts how often it was asked, and then says that it has gone."""

    def __init__(self, *pieces: bytes, ends: bool = True) -> None:
        last = len(pieces) - 1
        self.sent: list[Message] = [
            {"type": "http.request", "body": piece, "more_body": n < last or not ends} for n, piece in enumerate(pieces)
        ]
        self.asked = 0

    async def receive(self) -> Message:
        self.asked += 1
        return self.sent[self.asked - 1] if self.asked <= len(self.sent) else {"type": "http.disconnect"}


async def again(incoming: Incoming, client: Client, count: int) -> list[Message]:
    receive = incoming.replay(client.receive)
    return [await receive() for _ in range(count)]


@given(st.lists(st.binary(max_size=20), min_size=1, max_size=6))
async def test_a_body_is_read_whole_and_given_on_in_the_same_messages(pieces: list[bytes]) -> None:
    client = Client(*pieces)
    incoming = await read(client.receive, 1000)
    assert incoming.body == b"".join(pieces)
    assert (incoming.whole, incoming.too_large, incoming.hung_up) == (True, False, False)
    assert client.asked == len(pieces)
    assert await again(incoming, client, len(pieces) + 1) == [*client.sent, {"type": "http.disconnect"}]


async def test_a_body_can_be_given_on_more_than_once() -> None:
    client = Client(b"{", b"}")
    incoming = await read(client.receive, 1000)
    assert await again(incoming, client, 2) == await again(incoming, client, 2) == client.sent


async def test_a_message_without_a_body_is_an_empty_piece() -> None:
    client = Client(b"")
    client.sent = [{"type": "http.request"}]
    incoming = await read(client.receive, 1000)
    assert (incoming.body, incoming.whole) == (b"", True)


async def test_a_body_is_read_no_further_than_the_cap() -> None:
    client = Client(b"x" * 6, b"x" * 6, b"x" * 6)
    incoming = await read(client.receive, 10)
    assert (incoming.too_large, incoming.whole, client.asked) == (True, False, 2)
    assert await again(incoming, client, 3) == client.sent


@pytest.mark.parametrize(("size", "too_large"), [(10, False), (11, True)])
async def test_a_body_may_be_as_large_as_the_cap(size: int, too_large: bool) -> None:
    assert (await read(Client(b"x" * size).receive, 10)).too_large is too_large


async def test_a_client_that_goes_in_the_middle_is_noticed() -> None:
    client = Client(b"{", ends=False)
    incoming = await read(client.receive, 1000)
    assert (incoming.hung_up, incoming.whole, incoming.body) == (True, False, b"{")


async def test_a_client_that_falls_silent_is_not_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "READ_SECONDS", 0.01)
    client = Client(b"{", ends=False)

    async def receive() -> Message:
        if client.asked < 1:
            return await client.receive()
        await asyncio.Event().wait()
        raise AssertionError

    incoming = await read(receive, 1000)
    assert (incoming.hung_up, incoming.whole, incoming.body) == (False, False, b"{")


async def test_a_client_that_sends_byte_by_byte_without_end_is_not_listened_to_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bodies, "WHOLE_SECONDS", 0.05)

    async def receive() -> Message:
        await asyncio.sleep(0.001)
        return {"type": "http.request", "body": b"x", "more_body": True}

    incoming = await read(receive, 1_000_000)
    assert (incoming.hung_up, incoming.whole, incoming.too_large) == (False, False, False)


def test_a_broken_body_is_read_up_to_a_number_of_tokens() -> None:
    inner = b"[]," * MOST_TOKENS
    assert top_level_model(b'{"model":"bench/core","x":[' + inner) == "bench/core"
    assert top_level_model(b'{"x":[' + inner + b'0],"model":"bench/core"') is None


@pytest.mark.parametrize("item", [b"1,", b'"",', b'"a":1,'])
def test_a_body_of_millions_of_items_is_known_without_reading_it(item: bytes) -> None:
    incoming = Incoming([{"type": "http.request", "body": b"[" + item * 2_100_000}], whole=True)
    assert incoming.sprawls
    assert not Incoming([{"type": "http.request", "body": b"[" + item * 1_000_000}], whole=True).sprawls


def test_a_small_body_with_much_in_it_is_large() -> None:
    assert Incoming([{"type": "http.request", "body": b'"x",' * 6000}], whole=True).large
    assert not Incoming([{"type": "http.request", "body": b'"x",' * 4000}], whole=True).large


@pytest.mark.parametrize("times", [0, 1, RARE - 1, RARE, RARE + 1, 3 * RARE])
def test_what_is_rare_and_what_is_not_is_counted(times: int) -> None:
    assert count(b"," * times + b"x", b",") == times
    assert count(b"x" + b"a," * times, b",") == times
