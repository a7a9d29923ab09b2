"""Calls as servers write them, put together for those who log them."""

import json

import pytest

from bench_proxy.host.calls import gathered
from bench_proxy.upstream import CallPiece


@pytest.mark.parametrize("arguments", [{"q": "half a \ud83d"}, {"n": 10**30}, [[], {}], 0.5])
def test_arguments_that_are_no_text_are_written_as_json_whatever_they_hold(arguments: object) -> None:
    (call,) = gathered([CallPiece(0, "a", "look", arguments)])
    assert json.loads(call["function"]["arguments"]) == arguments
    call["function"]["arguments"].encode()


def test_pieces_of_one_call_are_put_together_and_another_id_is_another_call() -> None:
    found = [
        CallPiece(0, "a", "look", '{"q"'),
        CallPiece(1, "b", None, None),
        CallPiece(0, None, None, ": 1}"),
        CallPiece(1, None, "read", "{}"),
        CallPiece(0, "c", "look", "{}"),
    ]
    calls = [(call["id"], call["function"]["name"], call["function"]["arguments"]) for call in gathered(found)]
    assert calls == [("a", "look", '{"q": 1}'), ("b", "read", "{}"), ("c", "look", "{}")]
