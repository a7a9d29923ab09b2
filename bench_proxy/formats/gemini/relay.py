"""Gemini's API as Google's own models answer it, passed on chunk by chunk.

https://ai.google.dev/api/generate-content#v1beta.GenerateContentResponse
https://ai.google.dev/gemini-api/docs/thought-signatures
"""

from typing import Any

from bench_proxy.formats.base import one_line
from bench_proxy.formats.gemini.turns import GeminiTurn
from bench_proxy.formats.relays import Dialect, Hearing, Relayed
from bench_proxy.formats.request import Json
from bench_proxy.formats.splicing import added, read, replaced
from bench_proxy.formats.unchecked import inner, objects

FINISH_REASONS = {
    "MAX_TOKENS": "length",
    "SAFETY": "content_filter",
    "RECITATION": "content_filter",
    "BLOCKLIST": "content_filter",
    "PROHIBITED_CONTENT": "content_filter",
    "SPII": "content_filter",
    "IMAGE_SAFETY": "content_filter",
}

SIGNATURES = frozenset({"thoughtSignature", "thought_signature"})
CONFIGS = ("generationConfig", "generation_config")
BUDGETS = ("maxOutputTokens", "max_output_tokens")

BESIDE = frozenset({"text", "thought", *SIGNATURES})
"""Fields of a part that are no more than text and its notes; by any other it does something."""


class GeminiRelaying:
    dialect: Dialect = "gemini"

    def fitted(self, body: Json, *, foreign: bool, most_output: int | None) -> Json:
        changed: dict[str, Any] = {}
        for name in CONFIGS:
            if most_output is not None and isinstance(config := body.get(name), dict):
                cut = {budget: most_output for budget in BUDGETS if _is_above(config.get(budget), most_output)}
                changed |= {name: {**config, **cut}} if cut else {}
        if foreign and "contents" in body:
            contents = body["contents"]
            changed["contents"] = (
                [_content(one) for one in contents] if isinstance(contents, list) else _content(contents)
            )
        return {**body, **changed}

    def hearing(self) -> "GeminiHearing":
        return GeminiHearing()

    def whole(self, data: bytes, model: str, bench: Json) -> bytes:
        return added(_by(data, read(data), model), "bench", bench)

    def relay(self, stream: GeminiTurn, model: str) -> "GeminiRelay":
        return GeminiRelay(stream, model)


def _is_above(budget: object, most: int) -> bool:
    return isinstance(budget, int | float) and budget > most


def _content(content: Any) -> Any:
    parts = content.get("parts") if isinstance(content, dict) else None
    if isinstance(parts, list):
        return {**content, "parts": [_unsigned(part) for part in parts]}
    return {**content, "parts": _unsigned(parts)} if isinstance(parts, dict) else content


def _unsigned(part: Any) -> Any:
    if not isinstance(part, dict) or SIGNATURES.isdisjoint(part):
        return part
    return {name: value for name, value in part.items() if name not in SIGNATURES}


class GeminiHearing(Hearing):
    """Nothing but its end says that a stream is over: behind the finish reason there may still be what was used."""

    def event(self, body: Json) -> None:
        for candidate in objects(body.get("candidates")):
            for part in objects(inner(candidate, "content").get("parts")):
                self._part(part)
            if grounding := inner(candidate, "groundingMetadata"):
                self.said.grounding.append(grounding)
            if isinstance(reason := candidate.get("finishReason"), str):
                self._finished(FINISH_REASONS.get(reason, "tool_calls" if self.said.calls else "stop"))
        if not body.get("candidates") and inner(body, "promptFeedback").get("blockReason"):
            self._finished("content_filter")
        # Each chunk says what was used until then.
        self.said.usage = {**self.said.usage, **inner(body, "usageMetadata")}

    def whole(self, body: Json) -> None:
        self.event(body)
        self.ended = isinstance(body.get("candidates"), list) or "promptFeedback" in body

    def _finished(self, reason: str) -> None:
        self.said.finish_reason = reason
        self.ended = True

    def _part(self, part: Json) -> None:
        if part.get("thought") is True:
            self.said.thinks(part.get("text"))
            return
        self.said.says(part.get("text"))
        if "functionCall" in part:
            call = inner(part, "functionCall")
            self.said.calls_for(call.get("id"), call.get("name"), call.get("args"))
        elif not BESIDE.issuperset(part):
            self.said.answers = True


class GeminiRelay:
    def __init__(self, stream: GeminiTurn, model: str) -> None:
        self._chunks = stream.chunks
        self._model = model

    def write(self, event: Relayed) -> bytes:
        return self._chunks.relayed(_by(event.data, event.body, self._model))

    def end(self, events: list[Relayed], data: Json) -> bytes:
        *before, last = events
        chunks = [self.write(event) for event in before]
        chunks.append(self._chunks.relayed(added(_by(last.data, last.body, self._model), "bench", data)))
        return b"".join([*chunks, self._chunks.close()])


def _by(data: bytes, body: Json, model: str) -> bytes:
    return replaced(data, body, "modelVersion", model) if "modelVersion" in body else one_line(data)
