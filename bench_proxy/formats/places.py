"""Which format is spoken where: a row for each path."""

from collections.abc import Mapping

from bench_proxy.formats.base import Place
from bench_proxy.formats.chat import ChatFormat
from bench_proxy.formats.responses import ResponsesFormat

CHAT = ChatFormat()
RESPONSES = ResponsesFormat()

PLACES: Mapping[str, Place] = {
    "/v1/chat/completions": Place(CHAT),
    "/chat/completions": Place(CHAT),
    "/v1/responses": Place(RESPONSES),
    "/responses": Place(RESPONSES),
}


def place(path: str) -> Place | None:
    """What a POST to this path asks for; None when no format of ours is spoken there."""
    return PLACES.get(path)
