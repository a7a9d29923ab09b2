"""What a panel does not take, and the words that say so: refused before any model is asked."""

from bench_proxy.config import ReplyMode
from bench_proxy.errors import InvalidRequest
from bench_proxy.formats import images
from bench_proxy.formats.request import ChatRequest, Json

USE_ROUTE = (
    "A panel asks several models side by side and runs no tools; ask the same collection with the model suffix :route,"
    " which picks one of them and leaves its tools to you."
)


def refuse(request: ChatRequest, reply: ReplyMode = "all") -> None:
    """Raise InvalidRequest for tools, several choices, and parts that are neither text nor a readable image.

    In mode `choices` the seats are the choices, however many were asked for.
    """
    settings = request.settings
    for name in ("tools", "functions", "web_search_options"):
        # An empty list is no tools; empty options are a search with its defaults.
        if settings.get(name) or settings.get(name) == {}:
            raise InvalidRequest(f"{name} cannot be used on a panel. {USE_ROUTE}", param=name)
    for message in request.messages:
        if message.get("tool_calls") or message.get("function_call") or message.get("role") in {"tool", "function"}:
            raise InvalidRequest(f"the conversation holds a tool call, which a panel does not take. {USE_ROUTE}")
    if (n := settings.get("n")) not in {None, 1} and reply != "choices":
        raise InvalidRequest(f"n is {n}, and a panel gives one answer a seat; leave n out", param="n")
    if "audio" in (settings.get("modalities") or ()) or settings.get("audio"):
        raise InvalidRequest("audio answers are not given by a panel; ask for text", param="modalities")
    for part in request.parts():
        _refuse_part(part)


def _refuse_part(part: Json) -> None:
    kind = part.get("type")
    if kind in {"text", "refusal"}:
        return
    if kind != "image_url":
        raise InvalidRequest(f'a content part of type "{str(kind)[:100]}" is not taken by a panel: send text or images')
    images.check(part)
