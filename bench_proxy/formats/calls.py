"""Which call of a tool a result belongs to: in a chat it names it by an id, in other formats by the tool's name."""

from collections.abc import Iterable

from bench_proxy.formats.chat.parts import function_call
from bench_proxy.formats.request import Json


class Calls:
    """The calls of a conversation while it is read, in order."""

    def __init__(self) -> None:
        self._count = 0
        self._open: dict[str, str] = {}

    def made(self, calls: Iterable[tuple[str | None, str, str]]) -> list[Json]:
        """The calls of one message: of each its id, if it was sent, the tool's name, and the arguments as JSON."""
        made: list[Json] = [function_call(id or self._new(), name, arguments) for id, name, arguments in calls]
        # Results follow the message that they belong to.
        self._open = {call["id"]: call["function"]["name"] for call in made} or self._open
        return made

    def answered(self, id: str | None, name: str | None) -> str:
        """The call of this result: the one that it names, else the first of its tool, else the first of all."""
        named = id if id in self._open else next((call for call, tool in self._open.items() if tool == name), None)
        found = named or id or next(iter(self._open), None) or self._new()
        self._open.pop(found, None)
        return found

    def _new(self) -> str:
        self._count += 1
        return f"call_{self._count}"
