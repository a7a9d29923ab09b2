"""The arguments of a tool call, for the formats that have them as an object on one line and not as text."""

import orjson

BROKEN = "malformed_arguments"
"""Under which name arguments that are no object are given on."""


def as_object(arguments: str) -> orjson.Fragment:
    """The arguments as one JSON object, as they were written: reading them would round large numbers. Never raises.

    What was cut, or written wrongly, keeps its text under a name that no tool knows. So the tool's own check refuses
    it and the model sees what it wrote, where an empty object would run a tool that needs nothing as if that had been
    asked.
    """
    # JSON may have line ends between its tokens, where a space does as well, and none within them.
    written = arguments.replace("\n", " ").replace("\r", " ").strip()
    if not written or written == "null":
        return orjson.Fragment("{}")
    return orjson.Fragment(written) if _is_object(written) else orjson.Fragment(orjson.dumps(_broken(arguments)))


def _is_object(written: str) -> bool:
    try:
        return isinstance(orjson.loads(written), dict)
    except orjson.JSONDecodeError:
        return False


def _broken(arguments: str) -> dict[str, str]:
    """Half a character, which such text may end with, has no UTF-8."""
    return {BROKEN: arguments.encode("utf-8", "replace").decode()}
