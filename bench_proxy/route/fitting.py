"""A request made such that any member can answer it: what only one vendor takes is said otherwise, or left out."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from bench_proxy.catalog import Model
from bench_proxy.errors import InvalidRequest, OneVendorsOwn
from bench_proxy.formats.request import ChatRequest, Json, ToolName
from bench_proxy.route.history import retold
from bench_proxy.route.toolbox import offered

BUDGETS = ("max_tokens", "max_completion_tokens")


@dataclass(frozen=True, slots=True)
class Prepared:
    """A request as members get it. `tools` has the tools that the caller knows otherwise, by the members' name for
    them; `left_out` are those that no member is told of. `names` are all tools that members may call. `refused` is why
    only a member can take it that speaks the caller's own format.
    """

    request: ChatRequest
    tools: Mapping[str, ToolName]
    left_out: tuple[str, ...] = ()
    names: frozenset[str] = frozenset()
    refused: OneVendorsOwn | None = None


def prepare(request: ChatRequest) -> Prepared:
    """Done once a turn. The request is never changed in place, and stays the same object where it is fit already.

    Raises InvalidRequest for what no member could honour, OneVendorsOwn for what one might that is of that vendor.
    """
    _refuse(request.settings)
    offer = offered(request.settings, request.tools)
    messages = retold(request.messages)
    if messages is not request.messages:
        request = ChatRequest(messages, offer.settings, offer.tools)
    elif offer.settings is not request.settings or offer.tools is not request.tools:
        request = replace(request, settings=offer.settings, tools=offer.tools)
    return Prepared(request, offer.tools, offer.left_out, offer.names)


def prepare_for_any(request: ChatRequest) -> Prepared:
    """The same for a request that is also there in the caller's own words: it may go to its vendor's members only."""
    try:
        return prepare(request)
    except OneVendorsOwn as refused:
        return Prepared(request, request.tools, refused=refused)


def fit(request: ChatRequest, model: Model) -> ChatRequest:
    """The request with no more room for the answer than the model has: servers refuse what is above it."""
    cut = {name: model.max_output for name in BUDGETS if _is_above(request.settings.get(name), model.max_output)}
    return replace(request, settings={**request.settings, **cut}) if cut else request


def _is_above(budget: object, most: int | None) -> bool:
    return most is not None and isinstance(budget, int) and budget > most


def _refuse(settings: Json) -> None:
    if (n := settings.get("n")) not in {None, 1}:
        raise InvalidRequest(f"n is {n}, and a conversation goes on with one answer; leave n out", param="n")
    if "audio" in (settings.get("modalities") or ()) or settings.get("audio"):
        raise InvalidRequest("audio answers are not given here; ask for text", param="modalities")
