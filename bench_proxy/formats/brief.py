"""Reads what a request says to bench-proxy: the model name, the `bench` object, the `X-Bench-…` headers."""

import re
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from bench_proxy.config import MODEL_PREFIX, REPLY_MODES, Config, ReplyMode, StreamMode, closest
from bench_proxy.errors import InvalidRequest, UnknownModel
from bench_proxy.formats.request import Brief
from bench_proxy.formats.sessions import session_of

BENCH_MODEL = re.compile(r"^bench(?:$|[/:])", re.IGNORECASE)

LONGEST_ECHO = 100
"""Characters of what was sent that an error repeats."""

MOST_LISTED = 100
"""Collections that an error names."""

Alias = Annotated[str, Field(min_length=1, max_length=256, pattern=r"^[^\p{Cc}\p{Zl}\p{Zp}]+$")]
"""No control characters and line ends: a wildcard of LiteLLM's serves any name, and names stand in log lines."""


class Options(BaseModel):
    """The `bench` object of a request."""

    model_config = ConfigDict(extra="forbid", strict=True)

    reply: ReplyMode | None = None
    with_: Annotated[list[Alias], Field(max_length=64)] | None = Field(None, alias="with")
    shape: str | None = None
    explorers: int | None = Field(None, ge=0)
    quorum: int | None = Field(None, ge=1)
    deadline: float | None = Field(None, gt=0, le=86_400, allow_inf_nan=False)
    stream: StreamMode | None = None
    blind: bool | None = None
    partial: Literal["accept", "refuse"] | None = None
    conversation: str | None = Field(None, min_length=1, max_length=512)


def collection_of(model: str) -> str:
    """The name between the prefix and the mode, as it was written: `bench/core:route` → `core`."""
    return model[len(MODEL_PREFIX) :].partition(":")[0]


def is_complete(model: str, config: Config) -> bool:
    """Whether both the collection and the mode exist; if not, the caller is told which do."""
    suffix = model[len(MODEL_PREFIX) :].partition(":")[2]
    named = model.lower().startswith(MODEL_PREFIX) and collection_of(model) in config.collections
    return named and suffix in {"", "latest", *REPLY_MODES}


def is_bench_model(model: object) -> bool:
    """Whether this name is ours: `bench`, `bench/…` or `bench:…`, in any case."""
    return isinstance(model, str) and BENCH_MODEL.match(model) is not None


def read_brief(
    body: Mapping[str, Any],
    headers: Mapping[str, str],
    config: Config,
    callable_collections: Iterable[str],
    *,
    stream: bool,
    include_usage: bool,
) -> Brief:
    """What is asked of us; the body wins over the headers. `headers` has lower-case names.

    Raises InvalidRequest for an option that is unknown or of the wrong type, UnknownModel for a collection that
    this caller cannot call; both say what could have been asked.
    """
    options = _options(body, headers)
    model = str(body["model"])
    collection, mode = _split(model, config, list(callable_collections))
    settings = config.collections[collection]
    if options.shape is not None and options.shape not in config.all_shapes:
        shape = options.shape[:LONGEST_ECHO]
        raise InvalidRequest(
            f'unknown shape "{shape}"{closest(shape, config.all_shapes) or "."}'
            f" The shapes are: {', '.join(config.all_shapes)}.",
            param="bench.shape",
        )
    return Brief(
        model=model,
        collection=collection,
        reply=options.reply or mode or settings.reply,
        stream=stream,
        include_usage=include_usage,
        guests=tuple(dict.fromkeys(options.with_ or ())),
        shape=options.shape,
        explorers=options.explorers,
        quorum=options.quorum,
        deadline=options.deadline,
        stream_mode=options.stream,
        blind=bool(options.blind),
        partial=options.partial or "accept",
        conversation=options.conversation,
        conversation_by="bench.conversation" if options.conversation is None or _says(body) else "header",
        session=session_of(body, headers),
    )


def _says(body: Mapping[str, Any]) -> bool:
    """Whether the body itself says which conversation this is."""
    return (body.get("bench") or {}).get("conversation") is not None


def _split(model: str, config: Config, callable_collections: list[str]) -> tuple[str, ReplyMode | None]:
    """`bench/core:merged` → (`core`, `merged`). Ollama's `:latest` means no mode."""
    if not model.lower().startswith(MODEL_PREFIX) or len(model) == len(MODEL_PREFIX):
        menu = _menu(config, callable_collections)
        raise InvalidRequest(f'"{model[:LONGEST_ECHO]}" names no collection. {menu}', param="model")
    name = collection_of(model)
    suffix = model[len(MODEL_PREFIX) + len(name) + 1 :]
    if name not in callable_collections:
        name = name[:LONGEST_ECHO]
        raise UnknownModel(
            f'there is no collection "{name}"{closest(name, callable_collections) or "."} '
            f"{_menu(config, callable_collections)}",
            param="model",
            code="model_not_found",
        )
    if suffix in {"", "latest"}:
        return name, None
    for mode in REPLY_MODES:
        if suffix == mode:
            return name, mode
    suffix = suffix[:LONGEST_ECHO]
    raise InvalidRequest(
        f'unknown reply mode ":{suffix}"{closest(suffix, REPLY_MODES) or "."} The modes are: '
        f"{', '.join(f':{mode}' for mode in REPLY_MODES)}. {_menu(config, callable_collections)}",
        param="model",
    )


def _menu(config: Config, names: list[str]) -> str:
    if not names:
        return "This key may call no collection."
    lines = []
    for name in islice(names, MOST_LISTED):
        collection = config.collections[name]
        tags = f" [{', '.join(collection.tags)}]" if collection.tags else ""
        lines.append(f"{MODEL_PREFIX}{name}{f': {collection.description}' if collection.description else ''}{tags}")
    if len(names) > MOST_LISTED:
        lines.append(f"and {len(names) - MOST_LISTED} more, which GET /bench/collections lists")
    return "Collections that this key may call: " + "; ".join(lines)


def _options(body: Mapping[str, Any], headers: Mapping[str, str]) -> Options:
    given = body.get("bench")
    if given is not None and not isinstance(given, dict):
        raise InvalidRequest('"bench" must be an object', param="bench")
    merged: dict[str, Any] = {**_from_headers(headers)}
    if body.get("with") is not None:
        merged["with"] = body["with"]
    known = [f.alias or name for name, f in Options.model_fields.items()]
    for key in given or ():
        if key not in known:
            shown = key[:LONGEST_ECHO]
            raise InvalidRequest(
                f"bench.{shown}: unknown key{closest(shown, known) or '.'} The keys are: {', '.join(known)}.",
                param=f"bench.{shown}",
            )
    merged.update({k: v for k, v in (given or {}).items() if v is not None})
    try:
        return Options.model_validate(merged)
    except ValidationError as invalid:
        error = invalid.errors(include_url=False)[0]
        path = ".".join(str(part) for part in error["loc"])
        detail = error["msg"][0].lower() + error["msg"][1:]
        if path == "reply":
            detail = f"is none of the modes that this version answers: {', '.join(REPLY_MODES)}"
        raise InvalidRequest(f"bench.{path}: {detail}", param=f"bench.{path}") from None


HEADER = "x-bench-"
SENT = frozenset({"panel", "collection", "seats", "call", "model"})
"""What replies say in such headers: a gateway that sends them back asks for nothing."""


def _from_headers(headers: Mapping[str, str]) -> dict[str, Any]:
    """The options that clients without a way to add body fields can send. An unknown one is refused like an unknown
    key: who asked to be told blindly must not be told otherwise.
    """
    found: dict[str, Any] = {}
    for header in headers:
        name = header.lower().removeprefix(HEADER)
        if name == header.lower() or name in SENT or not (value := headers[header]):
            continue
        if name not in READ:
            shown = header[:LONGEST_ECHO]
            raise InvalidRequest(
                f"the header {shown} is no option{closest(name, READ) or '.'} The options are: {', '.join(READ)}.",
                param=shown,
            )
        found[name] = READ[name](value)
    return found


def _number(text: str) -> float | str:
    """Text that is no number is left to the check of the options, which says so."""
    try:
        return float(text)
    except ValueError:
        return text


def _whole(text: str) -> int | str:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else text


def _names(text: str) -> list[str]:
    return [alias.strip() for alias in text.split(",") if alias.strip()]


def _yes(text: str) -> bool | str:
    return {"true": True, "1": True, "false": False, "0": False}.get(text.lower(), text)


READ: Mapping[str, Callable[[str], Any]] = {
    "reply": str,
    "with": _names,
    "shape": str,
    "explorers": _whole,
    "quorum": _whole,
    "deadline": _number,
    "stream": str,
    "blind": _yes,
    "partial": str,
    "conversation": str,
}
"""How each option is read from its header, by the name behind X-Bench-."""
