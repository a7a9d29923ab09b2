"""Tool calls as servers and LiteLLM write them, in our words, and back into theirs."""

import json
from collections.abc import Iterable
from typing import Any

from bench_proxy.upstream import CallPiece


def pieces(of: Any, *, whole: bool = False) -> list[CallPiece]:
    """The calls of a message, or of a piece of one, in order; `of` is JSON or one of LiteLLM's objects.

    Before tools there were functions, of which a message called one:
    https://platform.openai.com/docs/api-reference/chat/object#chat-object-choices-message-function_call
    `whole` says that each is a call by itself, whose place is its index.
    """
    if calls := _of(of, "tool_calls"):
        return [_piece(call, place if whole else _of(call, "index")) for place, call in enumerate(calls)]
    if legacy := _of(of, "function_call"):
        return [CallPiece(0, None, _text(_of(legacy, "name")), _of(legacy, "arguments"))]
    return []


def _piece(call: Any, index: object) -> CallPiece:
    called = _of(call, "function")
    arguments = _of(called, "arguments")
    if called is None and (called := _of(call, "custom")) is not None:
        arguments = _of(called, "input")
    place = index if isinstance(index, int) else None
    return CallPiece(place, _text(_of(call, "id")), _text(_of(called, "name")), arguments)


def _of(thing: Any, name: str) -> Any:
    return thing.get(name) if isinstance(thing, dict) else getattr(thing, name, None)


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def gathered(found: Iterable[CallPiece]) -> list[dict[str, Any]]:
    """The calls that these pieces make together, in OpenAI's form, for those who log them: nobody runs them."""
    calls: list[dict[str, Any]] = []
    written: list[list[str]] = []
    places: dict[int | None, int] = {}
    for piece in found:
        place = places.get(piece.index)
        if place is None or (piece.id and calls[place]["id"] and piece.id != calls[place]["id"]):
            place = places[piece.index] = len(calls)
            calls.append({"id": None, "type": "function", "function": {"name": None}})
            written.append([])
        call = calls[place]
        call["id"] = call["id"] or piece.id
        call["function"]["name"] = call["function"]["name"] or piece.name
        written[place].append(_written(piece.arguments))
    # Once for all: added piece by piece, a megabyte of arguments would hold everybody up for seconds.
    for call, arguments in zip(calls, written, strict=True):
        call["function"]["arguments"] = "".join(arguments)
    return calls


def _written(arguments: object) -> str:
    if arguments is None or isinstance(arguments, str):
        return arguments or ""
    # Half a character, or a number of any length, is no reason to fail.
    return json.dumps(arguments)
