"""How formats check a body: the bounds that all of them keep, and the words for what is wrong with it."""

from collections.abc import Sequence
from typing import Annotated, TypeVar

from pydantic import Field, ValidationError

from bench_proxy.errors import InvalidRequest
from bench_proxy.formats.base import Data

MOST_FIELDS = 1000
"""Of a body, beside one another. Each is looked at for each model, and OpenAI's own are some forty."""

MOST_MESSAGES = 20_000
MOST_PARTS = 5_000
"""In one message. Each is looked at several times; no model has room for more."""

Number = Annotated[float, Field(allow_inf_nan=False)]

T = TypeVar("T")
Many = Annotated[list[T], Field(fail_fast=True)]
"""A body of millions of wrong items is refused for the first: an error for each would take gigabytes."""

At = Sequence[int | str]
"""A path in the body, in the client's own field names."""

OBJECT_EXPECTED = frozenset({"model_type", "dict_type"})
"""Faults for which pydantic has words of Python's: a dictionary, or an instance of one of our classes."""


def check_breadth(body: Data) -> None:
    """Raise InvalidRequest for a body of more fields than any request has."""
    if len(body) > MOST_FIELDS:
        raise InvalidRequest(f"the body has {len(body)} fields; send at most {MOST_FIELDS}")


def invalid(error: ValidationError, within: At = ()) -> InvalidRequest:
    """The first thing that is wrong, with its path in the body; `within` is the path of what was checked alone."""
    errors = [(_place(detail["loc"]), detail) for detail in error.errors(include_url=False)]
    # Of a union's branches the one that came furthest is the one that was meant.
    first = errors[0][0]
    place, detail = max((e for e in errors if e[0][: len(first)] == first), key=lambda e: len(e[0]))
    field = ".".join(str(part) for part in (*within, *place))
    if detail["type"] == "missing":
        return InvalidRequest(f'"{field}" is required', param=field)
    if detail["type"] in OBJECT_EXPECTED:
        return InvalidRequest(f'"{field}": input should be an object', param=field)
    message = detail["msg"].removeprefix("Value error, ")
    return InvalidRequest(f'"{field}": {message[0].lower() + message[1:]}', param=field)


def _place(loc: tuple[int | str, ...]) -> tuple[int | str, ...]:
    """The path in the body; the name of a union's branch is not a place in it."""
    return tuple(part for part in loc if not (isinstance(part, str) and ("[" in part or part == "str")))
