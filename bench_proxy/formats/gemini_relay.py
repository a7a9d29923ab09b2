"""Gemini's API as Google's own models answer it, passed on chunk by chunk.

https://ai.google.dev/api/generate-content#v1beta.GenerateContentResponse
https://ai.google.dev/gemini-api/docs/thought-signatures
"""

from typing import Any

from bench_proxy.formats.base import one_line
from bench_proxy.formats.gemini_turns import GeminiTurn
from bench_proxy.formats.relays import Dialect, Relayed, Said
from bench_proxy.formats.request import Json
from bench_proxy.formats.splicing import added, read, replaced
from bench_proxy.formats.unchecked import count, inner, objects

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

    def understood(self, data: bytes) -> Said:
        body = read(data)
        said = Said()
        _understand(said, body)
        return said

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


class GeminiHearing:
    """Nothing but its end says that a stream is over: behind the finish reason there may still be what was used."""

    def __init__(self) -> None:
        self.said = Said()
        self.last: list[Relayed] = []
        self.over = False

    def heard(self, data: bytes) -> list[Relayed]:
        body = read(data)
        _understand(self.said, body)
        event = Relayed(data, body)
        if self.last or self.said.finish_reason is not None:
            self.last.append(event)
            return []
        return [event]

    def ran_out(self) -> bool:
        self.over = bool(self.last)
        return self.over


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


def _understand(said: Said, body: Json) -> None:
    for candidate in objects(body.get("candidates")):
        for part in objects(inner(candidate, "content").get("parts")):
            _part(said, part)
        if isinstance(reason := candidate.get("finishReason"), str):
            calls = "tool_calls" if said.calls else "stop"
            said.finish_reason = FINISH_REASONS.get(reason, calls)
    _used(said, inner(body, "usageMetadata"))


def _part(said: Said, part: Json) -> None:
    if part.get("thought") is True:
        said.thinks(part.get("text"))
        return
    said.says(part.get("text"))
    if not BESIDE.issuperset(part):
        said.does(called="functionCall" in part)


def _used(said: Said, usage: Json) -> None:
    """Each chunk says what was used until then. Thoughts are counted beside the answer."""
    prompt, answer = count(usage, "promptTokenCount"), count(usage, "candidatesTokenCount")
    thoughts, cached = count(usage, "thoughtsTokenCount"), count(usage, "cachedContentTokenCount")
    if prompt is not None:
        said.prompt_tokens = prompt + (count(usage, "toolUsePromptTokenCount") or 0)
    if answer is not None or thoughts is not None:
        said.completion_tokens = (answer or 0) + (thoughts or 0)
    said.reasoning_tokens = said.reasoning_tokens if thoughts is None else thoughts
    said.cached_tokens = said.cached_tokens if cached is None else cached
