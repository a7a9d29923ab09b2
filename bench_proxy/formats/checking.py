"""What the formats share in checking a body: its bounds, and the words for what is wrong with it."""

from collections.abc import Sequence
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

Place = Sequence[int | str]
"""A path in the body, in the client's own field names."""


def invalid(fault: ValidationError, within: Place = ()) -> InvalidRequest:
    """The refusal of a body; `within` is the place of what was checked, where that was not the whole body."""
    errors = [(_place(error["loc"]), error) for error in fault.errors(include_url=False)]
    # Of a union's branches the one that came furthest is the one that was meant.
    first = errors[0][0]
    place, error = max((e for e in errors if e[0][: len(first)] == first), key=lambda e: len(e[0]))
    field = ".".join(str(part) for part in (*within, *place))
    if error["type"] == "missing":
        return InvalidRequest(f'"{field}" is required', param=field)
    message = error["msg"].removeprefix("Value error, ")
    return InvalidRequest(f'"{field}": {message[0].lower() + message[1:]}', param=field)


def _place(loc: tuple[int | str, ...]) -> tuple[int | str, ...]:
    """The path in what was checked; the name of a union's branch is not a place in it."""
    return tuple(part for part in loc if not (isinstance(part, str) and ("[" in part or part == "str")))
