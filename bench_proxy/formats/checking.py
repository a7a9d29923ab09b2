"""How formats check a body: the bounds that all of them keep, and the words for what is wrong with it."""

from collections.abc import Sequence
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from bench_proxy.errors import InvalidRequest
from bench_proxy.formats.base import Data

MOST_FIELDS = 1000
"""Of a body, beside one another. Each is looked at for each model, and OpenAI's own are some forty."""

MOST_MESSAGES = 20_000
MOST_PARTS = 5_000
"""In one message. Each is looked at several times; no model has room for more."""

Number = Annotated[float, Field(allow_inf_nan=False)]


def _whole(number: object) -> object:
    """Beyond 2**53 a floating-point number does not say which whole one is meant."""
    if isinstance(number, float) and number.is_integer() and abs(number) <= 2**53:
        return int(number)
    return number


Integer = Annotated[int, Field(ge=-(2**63), lt=2**63)]
"""What JSON can be written with. A larger one would be refused only while the models are asked."""

Whole = Annotated[Integer, BeforeValidator(_whole)]
"""The same, also written as 40.0: Google's SDKs and Ollama's clients have no other numbers."""

M = TypeVar("M", bound=BaseModel)
T = TypeVar("T")
Many = Annotated[list[T], Field(fail_fast=True)]
"""A body of millions of wrong items is refused for the first: an error for each would take gigabytes."""

At = Sequence[int | str]
"""A path in the body, in the client's own field names."""

OBJECT_EXPECTED = frozenset({"model_type", "dict_type"})
"""Faults for which pydantic has words of Python's: a dictionary, or an instance of one of our classes."""


class Strict(BaseModel):
    """Fields whose types we answer for; what else is sent is no concern of ours."""

    model_config = ConfigDict(strict=True)


def refused(why: str) -> AfterValidator:
    """For a field that no panel can honour, and that may be there as long as it asks for nothing."""

    def check(sent: Any) -> Any:
        if sent:
            raise ValueError(why)
        return sent

    return AfterValidator(check)


NO_GAPS = refused("the models here answer and fill in nothing; describe the gap in the prompt")
"""Why `suffix` is refused."""


def checked(model: type[M], body: Data, at: At = ()) -> M:
    """The body, or what stands in it `at` a place, as the format declares it. Raises InvalidRequest."""
    if not at and len(body) > MOST_FIELDS:
        raise InvalidRequest(f"the body has {len(body)} fields; send at most {MOST_FIELDS}")
    try:
        return model.model_validate(body)
    except ValidationError as error:
        raise invalid(error, at) from None


def given(fields: Data) -> dict[str, Any]:
    """The fields that were sent; `null` is one that was not."""
    return {name: value for name, value in fields.items() if value is not None}


def invalid(error: ValidationError, within: At = ()) -> InvalidRequest:
    """The first thing that is wrong, with its path in the body; `within` is the path of what was checked alone."""
    errors = [(_place(detail["loc"]), detail) for detail in error.errors(include_url=False)]
    # Of a union's branches the one that came furthest is the one that was meant; of two, the one whose type was right.
    first = errors[0][0]
    meant = [error for error in errors if error[0][: len(first)] == first]
    place, detail = max(meant, key=lambda error: (len(error[0]), not error[1]["type"].endswith("_type")))
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
