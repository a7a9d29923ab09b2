"""Tool calls put right: members send them in pieces and in odd ways, the caller gets whole ones, one after the other.

How chat completions stream calls: https://platform.openai.com/docs/api-reference/chat-streaming
Servers that copy it leave out ids or indices, give every call the index 0, send arguments as objects, repeat names,
or mix the pieces of several calls. No format but chat has room for the mixed pieces of two calls.
"""

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from io import StringIO

import orjson

from bench_proxy.characters import Characters
from bench_proxy.characters import whole as whole_text
from bench_proxy.errors import UpstreamError
from bench_proxy.formats.base import ToolCall
from bench_proxy.formats.request import ToolName
from bench_proxy.formats.unchecked import as_text
from bench_proxy.route.outline import Outline
from bench_proxy.upstream import CallPiece, Reply, Text, Thought

MOST_HELD = 8 * 1024 * 1024
"""Characters of one answer: its arguments, and the text that had to wait for a call to end."""

CALL_SIZE = 256
"""What a call counts among them, so that calls of nothing have an end too."""

CUT = frozenset({"length", "content_filter"})
"""Finish reasons of an answer that was stopped before its end."""

CALLED = frozenset({"tool_calls", "function_call"})
NO_ARGUMENTS = frozenset({"{}", "null"})
"""What some servers send ahead of the real arguments, in the place of nothing."""


@dataclass(frozen=True, slots=True)
class CallBegun:
    """A call is opened; `call` has its id and its name, and no arguments yet."""

    call: ToolCall


@dataclass(frozen=True, slots=True)
class CallArguments:
    """A piece of the open call's arguments, never empty. Those of a custom tool come in one."""

    text: str


@dataclass(frozen=True, slots=True)
class CallDone:
    """The open call is whole."""


Piece = Text | Thought | CallBegun | CallArguments | CallDone


class Untangling:
    """One answer while it comes. Each piece is passed on at once, unless it has to wait for an open call to end."""

    def __init__(
        self, tools: Mapping[str, ToolName], new_id: Callable[[], str], names: Collection[str] = frozenset()
    ) -> None:
        """`tools` says which ones are custom, `names` has the names of all tools of the request: by them a name is
        known that comes in pieces. `new_id` makes the id of a call that came without one.
        """
        self._tools = tools
        self._new_id = new_id
        self._names = names
        self._queue: deque[_Call | _Said] = deque()
        self._by_id: dict[str, _Call] = {}
        self._by_index: dict[int, _Call] = {}
        self._last: _Call | None = None
        self._given: set[str] = set()
        self._held = 0

    @property
    def calls(self) -> int:
        """How many calls have been begun."""
        return len(self._given)

    def heard(self, event: Text | Thought | CallPiece) -> list[Piece]:
        """What can be passed on now. Raises UpstreamError when more would have to be held than any answer is."""
        if isinstance(event, CallPiece):
            return self._called(event)
        if not self._queue:
            return [event]
        self._hold(len(event.text))
        last = self._queue[-1]
        if isinstance(last, _Said) and type(last.first) is type(event):
            last.more.write(event.text)
        else:
            self._queue.append(_Said(event))
        return self._advance()

    def end(self, finish_reason: str | None) -> tuple[list[Piece], str]:
        """What is left, and the finish reason as it has to be."""
        left: list[Piece] = []
        for waiting in self._queue:
            if isinstance(waiting, _Said):
                left.append(waiting.event())
            else:
                left += self._close(waiting, cut=finish_reason in CUT)
        self._queue.clear()
        return left, _reason(finish_reason, self.calls)

    def _called(self, piece: CallPiece) -> list[Piece]:
        text = as_text(piece.arguments)
        call = self._known(piece)
        if call is None or self._is_another(call, piece, text):
            call = self._new(piece)
        else:
            self._identify(call, piece)
        # Behind a whole object nothing can stand: it is sent a second time.
        if text and not call.done and not (text.startswith("{") and call.has_object):
            self._hold(len(text))
            text = call.take(text)
        self._last = call
        # Mostly there is one open call, whose pieces pass.
        if len(self._queue) == 1 and call.begun and not call.done and not call.custom and call.send(text):
            return [CallArguments(text)]
        return self._advance()

    # Which call a piece belongs to.

    def _known(self, piece: CallPiece) -> "_Call | None":
        """The call that the piece names by its id, else the one at its index, else the last one."""
        at_index = None if piece.index is None else self._by_index.get(piece.index)
        if piece.id and (known := self._by_id.get(piece.id)) is not None:
            # Two calls may have been given one id; then the index tells them apart.
            return at_index if at_index is not None and at_index.sent_id == piece.id else known
        if at_index is not None:
            return at_index
        if piece.index is None or (self._last is not None and self._last.index is None and not piece.name):
            return self._last
        return None

    def _is_another(self, call: "_Call", piece: CallPiece, text: str) -> bool:
        """Whether the piece begins a call of its own, though its id, its index or its place is that of `call`."""
        if not piece.name or not call.name:
            return False
        if piece.id and piece.id == call.sent_id:
            elsewhere = piece.index is not None and call.index is not None and piece.index != call.index
            return elsewhere or (text.startswith("{") and call.has_object and text != call.arguments)
        if piece.id:
            # An id may also come behind the name.
            return bool(call.sent_id or call.begins or piece.name != call.name)
        if piece.name != call.name and not self._joined(call, piece.name):
            return call.whole or not call.begins
        return text.startswith("{") and call.whole

    def _new(self, piece: CallPiece) -> "_Call":
        self._hold(CALL_SIZE)
        call = _Call(piece.index, piece.id or "", piece.name or "", self._is_custom(piece.name or ""))
        if piece.index is not None:
            self._by_index[piece.index] = call
        if piece.id:
            self._by_id.setdefault(piece.id, call)
        self._queue.append(call)
        return call

    def _identify(self, call: "_Call", piece: CallPiece) -> None:
        """Take what the piece says of its call beside arguments."""
        if piece.id and not call.sent_id:
            call.sent_id = piece.id
            self._by_id.setdefault(piece.id, call)
        if piece.name and not call.begun:
            call.name = self._joined(call, piece.name) or call.name or piece.name
            call.custom = self._is_custom(call.name)

    def _joined(self, call: "_Call", more: str) -> str:
        """The name with the piece behind it, if a tool's name begins so; empty if none does. Most servers that send
        a name again send the whole of it.
        """
        joined = call.name + more
        if not call.name or call.begins or (more == call.name and more in self._names):
            return ""
        return joined if any(name.startswith(joined) for name in self._names) else ""

    def _is_custom(self, name: str) -> bool:
        return name in self._tools and self._tools[name].custom

    # What is passed on.

    def _advance(self) -> list[Piece]:
        """The front of the queue as far as it has come. A whole call leaves it when something waits behind."""
        out: list[Piece] = []
        while self._queue:
            front = self._queue[0]
            if isinstance(front, _Said):
                out.append(front.event())
            else:
                self._catch_up(front, out)
                if len(self._queue) == 1 or not front.whole:
                    break
                out += self._close(front)
            self._queue.popleft()
        return out

    def _catch_up(self, call: "_Call", out: list[Piece]) -> None:
        if not call.begun:
            if not call.name or not (call.begins or self._is_final(call.name)):
                return
            out.append(self._begin(call))
        if not call.custom and (text := call.unsent()):
            out.append(CallArguments(text))

    def _is_final(self, name: str) -> bool:
        """Whether no more of the name can come."""
        return not any(len(other) > len(name) and other.startswith(name) for other in self._names)

    def _begin(self, call: "_Call") -> CallBegun:
        call.begun = True
        id = call.sent_id if call.sent_id and call.sent_id not in self._given else self._new_id()
        self._given.add(id)
        return CallBegun(ToolCall(whole_text(id), whole_text(call.name)))

    def _close(self, call: "_Call", *, cut: bool = False) -> list[Piece]:
        """All of the call that has not been sent. One without a name can be run by nobody, and is left out."""
        call.done = True
        if not call.name:
            return []
        out: list[Piece] = [] if call.begun else [self._begin(call)]
        call.take_rest()
        text = _input(call) if call.custom else call.unsent() + _missing(call, cut=cut)
        if text:
            out.append(CallArguments(text))
        return [*out, CallDone()]

    def _hold(self, size: int) -> None:
        self._held += size
        if self._held > MOST_HELD:
            raise UpstreamError("bad_response", 502, "the tool calls are larger than any answer is")


class _Said:
    """Text, or thoughts, that wait for the call before them."""

    __slots__ = ("first", "more")

    def __init__(self, first: Text | Thought) -> None:
        self.first = first
        self.more = StringIO()

    def event(self) -> Text | Thought:
        return replace(self.first, text=self.first.text + self.more.getvalue())


class _Call:
    """A call as far as it has come. `sent_id` is the id that the server sent, `done` that the caller has all of it."""

    __slots__ = (
        "_characters", "_is_object", "_nothing", "_outline", "_read", "_sent", "_written",
        "begun", "custom", "done", "index", "name", "sent_id", "size",
    )  # fmt: skip

    def __init__(self, index: int | None, sent_id: str, name: str, custom: bool) -> None:
        self.index = index
        self.sent_id = sent_id
        self.name = name
        self.custom = custom
        self.begun = False
        self.done = False
        self.size = 0
        self._characters = Characters()
        self._written = StringIO()
        self._sent = 0
        self._nothing = False
        self._outline = Outline()
        self._read = 0
        self._is_object: bool | None = None

    def take(self, text: str) -> str:
        """Returns what was taken: half a character waits for the other half."""
        if not self.size and text.strip() in NO_ARGUMENTS:
            self._nothing = True
            return ""
        text = self._characters.take(text)
        self._written.write(text)
        self.size += len(text)
        return text

    def take_rest(self) -> None:
        self.size += self._written.write(self._characters.rest())

    def unsent(self) -> str:
        """What was not sent yet; it is taken for sent from now on."""
        text, self._sent = self._from(self._sent), self.size
        return text

    def send(self, text: str) -> bool:
        """Take the text for sent, if it is all that was not sent yet: that is cheaper than to look it up."""
        is_all = bool(text) and self._sent + len(text) == self.size
        if is_all:
            self._sent = self.size
        return is_all

    @property
    def arguments(self) -> str:
        return self._written.getvalue() or "{}" * self._nothing

    @property
    def begins(self) -> bool:
        """Whether anything of its arguments has come."""
        return self.size > 0 or self._nothing

    @property
    def whole(self) -> bool:
        return self.has_object or (self._nothing and not self.size)

    @property
    def has_object(self) -> bool:
        """Whether its arguments are an object, to which nothing can be added. They are parsed once, when all that they
        opened is closed.
        """
        if self._is_object is None and self.outline().closed:
            self._is_object = is_object(self.arguments)
        return bool(self._is_object)

    def outline(self) -> Outline:
        if self._read < self.size:
            self._outline.read(self._from(self._read))
            self._read = self.size
        return self._outline

    def _from(self, start: int) -> str:
        if start == self.size:
            return ""
        self._written.seek(start)
        return self._written.read()


def whole(reply: Reply, tools: Mapping[str, ToolName], new_id: Callable[[], str]) -> tuple[Sequence[ToolCall], str]:
    """The calls of a whole answer, and its finish reason, by the same rules. Raises UpstreamError when they are larger
    than any answer is.
    """
    untangling = Untangling(tools, new_id)
    pieces: list[Piece] = []
    for index, call in enumerate(call for call in reply.calls if call.name):
        pieces += untangling.heard(replace(call, index=index))
    left, finish_reason = untangling.end(reply.finish_reason)
    calls: list[ToolCall] = []
    for piece in (*pieces, *left):
        if isinstance(piece, CallBegun):
            calls.append(piece.call)
        elif isinstance(piece, CallArguments):
            calls[-1] = replace(calls[-1], arguments=calls[-1].arguments + piece.text)
    return calls, finish_reason


def is_object(text: str) -> bool:
    return _object(text) is not None


def _object(text: str) -> dict[str, object] | None:
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    return value if isinstance(value, dict) else None


def _missing(call: _Call, *, cut: bool) -> str:
    """What makes an object of the arguments, if anything behind them can. What was cut stays as it is: closed, it
    would be run as if the model had meant no more.
    """
    if not call.size or not call.arguments.strip():
        return "{}"
    rest = "" if cut or call.has_object else call.outline().rest
    return rest if rest and is_object(call.arguments + rest) else ""


def _input(call: _Call) -> str:
    """The text for a custom tool: models are told to give it as `input`."""
    for arguments in (call.arguments, call.arguments + call.outline().rest):
        if (given := _object(arguments)) is not None:
            text = given.get("input", None if given else "")
            return text if isinstance(text, str) else call.arguments
    return call.arguments


def _reason(finish_reason: str | None, calls: int) -> str:
    if calls:
        return finish_reason if finish_reason in CUT else "tool_calls"
    return "stop" if not finish_reason or finish_reason in CALLED else finish_reason
