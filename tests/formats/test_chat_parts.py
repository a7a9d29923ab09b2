"""Which schemas OpenAI would hold a model to."""

from typing import Any

import pytest

from bench_proxy.formats.chat.parts import is_closed

Json = dict[str, Any]


def closed(**properties: Any) -> Json:
    return {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}


TEXT = {"type": "string"}


@pytest.mark.parametrize(
    "schema",
    [
        closed(),
        closed(a=TEXT, b={"type": ["string", "null"], "description": "Or nothing."}),
        closed(a={"type": "array", "items": closed(b=TEXT)}),
        closed(a={"anyOf": [closed(b=TEXT), {"type": "null"}]}),
        {**closed(a={"$ref": "#/$defs/B"}), "$defs": {"B": closed(c={"enum": [1, 2]})}, "title": "A"},
    ],
)
def test_a_schema_that_lists_all_is_closed(schema: Json) -> None:
    assert is_closed(schema)


@pytest.mark.parametrize(
    "schema",
    [
        {},
        TEXT,
        {"anyOf": [closed(a=TEXT)]},
        {"type": "object"},
        {**closed(a=TEXT), "required": []},
        {k: v for k, v in closed(a=TEXT).items() if k != "additionalProperties"},
        closed(a={}),
        closed(a={"type": ["object", "null"]}),
        closed(a={"oneOf": [closed(b=TEXT)]}),
        closed(a={"type": "array", "items": TEXT, "uniqueItems": True}),
        closed(a={"type": "array", "items": {"type": "object"}}),
        {**closed(a={"$ref": "#/$defs/B"}), "$defs": {"B": {"type": "object"}}},
        {**closed(a=TEXT), "properties": 5},
    ],
)
def test_any_other_is_not(schema: Json) -> None:
    assert not is_closed(schema)
