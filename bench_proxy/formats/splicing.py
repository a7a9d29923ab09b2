"""JSON that is passed on as it came, but for a few of its fields."""

import json
import re
from typing import Any

import orjson

from bench_proxy.errors import UpstreamError
from bench_proxy.formats.base import dumps, one_line
from bench_proxy.formats.request import Json
from bench_proxy.formats.unchecked import inner

BEYOND_64_BITS = re.compile(rb"[0-9]{20}")
"""orjson would make a floating-point number of an integer as long as that."""

_VALUE = rb'\s*:\s*("(?:[^"\\]|\\.)*"|-?[0-9]+|null)'


def read(data: bytes) -> dict[str, Any]:
    """Raises UpstreamError when it is no JSON object. Half a character, which has no UTF-8, may stand in its texts."""
    try:
        body = json.loads(data) if BEYOND_64_BITS.search(data) else orjson.loads(data)
    except ValueError:
        body = _forgiven(data)
    if not isinstance(body, dict):
        raise UpstreamError("bad_response", 502, "what the model's server sent is no JSON object")
    return body


def _forgiven(data: bytes) -> object:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def written(body: object) -> bytes:
    """On one line, whatever can be read."""
    try:
        return dumps(body)
    except TypeError:
        return json.dumps(body, separators=(",", ":")).encode()


def replaced(data: bytes, body: Json, name: str, value: object, within: str = "") -> bytes:
    """The data, which says `body`, on one line, with another value for a field of it or of an object within it. All
    else stays byte by byte where the field is a text, an integer or null, and the only one of its name at any depth:
    in a text none is found, since quotation marks are escaped there.
    """
    holder = inner(body, within) if within else body
    old = holder.get(name, ...)
    if old is None or (isinstance(old, str | int) and not isinstance(old, bool)):
        found = list(re.finditer(rb'"' + name.encode() + rb'"' + _VALUE, data))
        if len(found) == 1:
            start, end = found[0].span(1)
            return one_line(data[:start] + dumps(value) + data[end:])
    changed = {**holder, name: value}
    return written({**body, within: changed} if within else changed)


def added(data: bytes, name: str, value: object) -> bytes:
    """An object with one more field, its last one. One that has such a field already is written anew."""
    body = read(data)
    if name in body or not body:
        return written({**body, name: value})
    head = data.rstrip().removesuffix(b"}")
    return one_line(head + b"," + dumps(name) + b":" + dumps(value) + b"}")
