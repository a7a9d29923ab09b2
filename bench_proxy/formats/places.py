"""Which format is spoken where: a row for each path, and a reader for paths that name a model."""

from collections.abc import Mapping

from bench_proxy.formats.anthropic import format as anthropic
from bench_proxy.formats.anthropic.relay import MessagesRelaying
from bench_proxy.formats.base import Place
from bench_proxy.formats.chat.format import ChatFormat
from bench_proxy.formats.completions import CompletionsFormat
from bench_proxy.formats.gemini import format as gemini
from bench_proxy.formats.ollama.format import OllamaChat, OllamaGenerate
from bench_proxy.formats.responses.format import ResponsesFormat
from bench_proxy.formats.responses.relay import ResponsesRelaying

CHAT = ChatFormat()
COMPLETIONS = CompletionsFormat()
RESPONSES = ResponsesFormat()
MESSAGES = anthropic.MessagesFormat()
MESSAGES_TO_COUNT = anthropic.MessagesFormat(anthropic.Conversation)
NATIVE_RESPONSES = ResponsesRelaying()

PLACES: Mapping[str, Place] = {
    "/v1/chat/completions": Place(CHAT),
    "/chat/completions": Place(CHAT),
    "/v1/responses": Place(RESPONSES, native=NATIVE_RESPONSES),
    "/responses": Place(RESPONSES, native=NATIVE_RESPONSES),
    "/v1/completions": Place(COMPLETIONS),
    "/completions": Place(COMPLETIONS),
    "/v1/messages": Place(MESSAGES, native=MessagesRelaying()),
    "/v1/messages/count_tokens": Place(MESSAGES_TO_COUNT, count=anthropic.count),
    "/api/chat": Place(OllamaChat(), host_path="/v1/chat/completions"),
    "/api/generate": Place(OllamaGenerate(), host_path="/v1/chat/completions"),
}


def place(path: str, query: bytes = b"") -> Place | None:
    """What a POST to this path, already decoded, asks for; None when no format of ours is spoken there."""
    return PLACES.get(path) or gemini.place(path, query)
