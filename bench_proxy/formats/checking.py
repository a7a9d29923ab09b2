"""How the formats check the bodies that they read: bounds, strict types, and words for what is wrong."""

from typing import Annotated, TypeVar

from pydantic import FailFast, Field, ValidationError

from bench_proxy.errors import InvalidRequest

MOST_FIELDS = 1000
"""Of a body, beside one another. Each is looked at for each model, and OpenAI's own are some forty."""

MOST_MESSAGES = 20_000
MOST_PARTS = 5_000
"""In one message. Each is looked at several times; no model has room for more."""

Number = Annotated[float, Field(allow_inf_nan=False)]

T = TypeVar("T")
Many = Annotated[list[T], FailFast()]
"""A body of millions of wrong items is refused for the first: an error for each would take gigabytes."""


def invalid(error: ValidationError) -> InvalidRequest:
    """The refusal of a body, naming the field at fault by its path, as the caller wrote it."""
    errors = [(_place(e["loc"]), e) for e in error.errors(include_url=False)]
    # Of a union's branches the one that came furthest is the one that was meant.
    first = errors[0][0]
    place, fault = max((e for e in errors if e[0][: len(first)] == first), key=lambda e: len(e[0]))
    field = ".".join(str(part) for part in place)
    if fault["type"] == "missing":
        return InvalidRequest(f'"{field}" is required', param=field)
    message = fault["msg"].removeprefix("Value error, ")
    return InvalidRequest(f'"{field}": {message[0].lower() + message[1:]}', param=field)


def _place(loc: tuple[int | str, ...]) -> tuple[int | str, ...]:
    """The path in the body; the name of a union's branch is not a place in it."""
    return tuple(part for part in loc if not (isinstance(part, str) and ("[" in part or part == "str")))
