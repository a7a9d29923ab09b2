"""OpenAI Responses as OpenAI's own models answer them, passed on event by event.

https://platform.openai.com/docs/api-reference/responses-streaming
https://platform.openai.com/docs/guides/reasoning#encrypted-reasoning-items
"""

from typing import Any

from bench_proxy.formats import sse
from bench_proxy.formats.base import one_line
from bench_proxy.formats.relays import Dialect, Hearing, Relayed, Said
from bench_proxy.formats.request import Json
from bench_proxy.formats.responses.items import ReasoningItem
from bench_proxy.formats.responses.turns import ResponsesTurn
from bench_proxy.formats.splicing import added, read, replaced, written
from bench_proxy.formats.unchecked import as_text, inner, kind, objects

OPENINGS = frozenset({"response.created", "response.queued", "response.in_progress"})
ENDS = frozenset({"response.completed", "response.incomplete"})

CALLS = frozenset(
    {"function_call", "custom_tool_call", "computer_call", "local_shell_call", "shell_call", "apply_patch_call"}
)
"""Items that the caller has to answer."""

SPOKEN = frozenset({"message", "reasoning"})
"""Items that are an answer only by the text that comes of them, or not at all."""

FINISH_REASONS = {"max_output_tokens": "length", "content_filter": "content_filter"}

ARGUMENTS = frozenset({"response.function_call_arguments.delta", "response.custom_tool_call_input.delta"})
THOUGHTS = frozenset({"response.reasoning_summary_text.delta", "response.reasoning_text.delta"})
TEXTS = frozenset({"response.output_text.delta", "response.refusal.delta"})

OUR_REASONING = f"{ReasoningItem.prefix}_r"
"""What the ids of reasoning begin with that our own writer made: a conversation's id follows."""


class ResponsesRelaying:
    dialect: Dialect = "responses"

    def fitted(self, body: Json, *, foreign: bool, most_output: int | None) -> Json:
        # Nothing is stored here, so that nothing need be there: what is not said is true at OpenAI.
        changed: dict[str, Any] = {"store": False}
        budget = body.get("max_output_tokens")
        if most_output is not None and isinstance(budget, int) and budget > most_output:
            changed["max_output_tokens"] = most_output
        if isinstance(items := body.get("input"), list):
            changed["input"] = _readable(items, foreign=foreign)
        return {**body, **changed}

    def hearing(self) -> "ResponsesHearing":
        return ResponsesHearing()

    def whole(self, data: bytes, model: str, bench: Json) -> bytes:
        return added(replaced(data, read(data), "model", model), "bench", bench)

    def relay(self, stream: ResponsesTurn, model: str) -> "ResponsesRelay":
        return ResponsesRelay(stream, model)


def _readable(items: list[Any], *, foreign: bool) -> list[Any]:
    left = [item for item in items if kind(item) != "reasoning" or (_is_encrypted(item) and not foreign)]
    # OpenAI knows by an item's id which reasoning led to it, and refuses it alone.
    return left if len(left) == len(items) else [_unnamed(item) for item in left]


def _is_encrypted(item: Json) -> bool:
    """Only so can OpenAI read it: it keeps nothing of what it is not told to store."""
    return bool(item.get("encrypted_content")) and not str(item.get("id") or "").startswith(OUR_REASONING)


def _unnamed(item: Any) -> Any:
    if not isinstance(item, dict):
        return item
    named = item.get("role") == "assistant" or kind(item) in {"function_call", "custom_tool_call"}
    return {name: value for name, value in item.items() if name != "id"} if named else item


class ResponsesHearing(Hearing):
    def event(self, body: Json) -> None:
        if (told := kind(body)) in TEXTS:
            self.said.says(body.get("delta"))
        elif told in THOUGHTS:
            self.said.thinks(body.get("delta"))
        elif told in ARGUMENTS:  # which the end says once more
            self.said.argued += len(as_text(body.get("delta")))
        elif told == "response.output_item.added":
            self._item(inner(body, "item"))
        elif told in ENDS:
            self.over = True
            self._completed(inner(body, "response"))

    def whole(self, body: Json) -> None:
        self.ended = isinstance(body.get("output"), list)
        for item in objects(body.get("output")):
            self._item(item)
            if kind(item) == "message":
                for part in objects(item.get("content")):
                    self.said.says(part.get("text") or part.get("refusal"))
            if kind(item) == "reasoning":
                for part in objects(item.get("summary")):
                    self.said.thinks(part.get("text"))
        self.said.usage = inner(body, "usage")
        self._finished(body)

    def _completed(self, response: Json) -> None:
        """Some servers say at the end only what they have not said in pieces."""
        pieces, self.said = self.said, Said()
        self.whole(response)
        for name in ("texts", "thoughts", "calls", "size", "thought", "argued", "answers"):
            setattr(self.said, name, getattr(self.said, name) or getattr(pieces, name))
        self._finished(response)
        self.ended = True

    def _item(self, item: Json) -> None:
        if (told := kind(item)) in CALLS:
            self.said.calls_for(item.get("call_id"), item.get("name"), item.get("arguments") or item.get("input"))
        elif told and told not in SPOKEN:
            # A tool that OpenAI runs is as much of an answer as one that the caller runs.
            self.said.answers = True

    def _finished(self, response: Json) -> None:
        details = response.get("incomplete_details")
        if isinstance(details, dict):
            self.said.finish_reason = FINISH_REASONS.get(str(details.get("reason")), "length")
        else:
            self.said.finish_reason = "tool_calls" if self.said.calls else "stop"


class ResponsesRelay:
    """Numbers go on behind those of the stream, which has signs of life in between."""

    def __init__(self, stream: ResponsesTurn, model: str) -> None:
        self._stream = stream
        self._model = model
        self._opened = stream.begun

    def write(self, event: Relayed) -> bytes:
        return self._event(event, None)

    def end(self, events: list[Relayed], data: Json) -> bytes:
        return b"".join([self._event(event, data) for event in events])

    def _event(self, event: Relayed, data: Json | None) -> bytes:
        name = kind(event.body)
        if name in OPENINGS and self._opened:
            return b""
        number = self._stream.number()
        if isinstance(response := event.body.get("response"), dict):
            told = {**event.body, "response": self._response(response, data)}
            return sse.relayed(written({**told, "sequence_number": number}), name)
        return sse.relayed(_numbered(event, number), name)

    def _response(self, response: Json, data: Json | None) -> Json:
        """One response has one id, also where the reply had to begin before the member did."""
        if not self._opened and isinstance(id := response.get("id"), str):
            self._stream.id = id
        bench = {} if data is None else {"bench": data}
        return {**response, "id": self._stream.id, "model": self._model, **bench}


def _numbered(event: Relayed, number: int) -> bytes:
    if event.body.get("sequence_number", number) == number:
        return one_line(event.data)
    return replaced(event.data, event.body, "sequence_number", number)
