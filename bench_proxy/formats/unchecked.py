"""JSON whose form nobody has checked: what should be there and is of another kind is taken for not there."""

import json
from collections.abc import Iterator

from bench_proxy.formats.request import Json


def kind(value: object) -> str:
    """The `type` of an object."""
    found = value.get("type") if isinstance(value, dict) else None
    return found if isinstance(found, str) else ""


def inner(value: object, name: str) -> Json:
    """An object within an object."""
    found = value.get(name) if isinstance(value, dict) else None
    return found if isinstance(found, dict) else {}


def objects(values: object) -> Iterator[Json]:
    """Those of a list."""
    return (one for one in values if isinstance(one, dict)) if isinstance(values, list) else iter(())


def as_text(value: object) -> str:
    """A text as it is, all else as JSON, and nothing where there is nothing: of arguments, which may be either."""
    if value is None or isinstance(value, str):
        return value or ""
    return json.dumps(value, ensure_ascii=False)
