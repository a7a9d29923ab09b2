"""The routes under /bench: verdicts, the record, what was asked, what can be called."""

import time
from collections.abc import Callable
from typing import Annotated, Any

from fastapi import APIRouter, Body, Depends, FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Discriminator, Field, Tag
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from bench_proxy.bench import Bench, Caller
from bench_proxy.catalog import Model
from bench_proxy.errors import BenchError, Denied, InvalidRequest, NotFound, WrongContentType
from bench_proxy.http import keys as bench_keys
from bench_proxy.http.answering import Authenticate
from bench_proxy.http.cors import methods_of
from bench_proxy.http.given import Given, Id, Judge, Text
from bench_proxy.keys import KeyStore
from bench_proxy.marks import Pick
from bench_proxy.records import Record, Verdict


class GivenVerdict(Given):
    """`useful` null withdraws the verdict; `real` and `false` are claims that held and that did not."""

    call: Id
    useful: bool | None
    note: Text = ""
    real: list[Text] = Field([], max_length=200)
    false: list[Text] = Field([], max_length=200)
    by: Judge = ""


class GivenPick(Given):
    """`best` is the call of the answer that was the useful one of its panel; null withdraws the pick."""

    panel: Id
    best: Id | None
    note: Text = ""
    by: Judge = ""


VERDICT, PICK = "verdict", "pick"


def _verdict_or_pick(given: Any) -> str:
    return PICK if isinstance(given, dict) and not given.keys().isdisjoint({"panel", "best"}) else VERDICT


Said = Annotated[
    Annotated[GivenVerdict, Tag(VERDICT)] | Annotated[GivenPick, Tag(PICK)], Discriminator(_verdict_or_pick)
]


class GivenCalls(Given):
    calls: Annotated[list[Id], Field(min_length=1, max_length=1000)]


class Fault(BaseModel):
    message: str
    type: str
    param: str | None
    code: str | None


class Refused(BaseModel):
    """Every error, in OpenAI's shape."""

    error: Fault


DESCRIBED: dict[int | str, dict[str, Any]] = {"default": {"model": Refused, "description": "What was wrong."}}
"""What the description of the routes says of errors; without it, FastAPI's own, which never come."""

PATHS = (
    "verdict", "pending", "record", "panels", "conversations", "collections", "models", "keys", "metrics",
    "health/live", "health/ready", "openapi.json",
)  # fmt: skip

Lane = Callable[[str], dict[str, str]]
"""Which way a model is called (`lane`), and why where it is not the lean one (`lane_because`)."""


def build(
    bench: Callable[[], Bench],
    authenticate: Authenticate,
    lane: Lane = lambda _alias: {},
    keys: Callable[[], KeyStore] | None = None,
    current: Callable[[], bool] = lambda: True,
) -> FastAPI:
    """The app that answers everything below /bench; errors have OpenAI's shape. Without `keys` nobody makes any.

    `current` says whether the configuration is that of the file: one that cannot be used is not taken up.
    """
    app = FastAPI(title="bench-proxy", openapi_url="/bench/openapi.json", docs_url=None, redoc_url=None)
    app.include_router(_open_routes(bench, current))
    app.include_router(_routes(bench, authenticate, lane), responses=DESCRIBED)
    if keys is not None:
        app.include_router(bench_keys.build(bench, keys, authenticate), responses=DESCRIBED)
    app.add_exception_handler(BenchError, _bench_error)
    app.add_exception_handler(RequestValidationError, _validation_error)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(Exception, _internal_error)
    return app


def _open_routes(bench: Callable[[], Bench], current: Callable[[], bool]) -> APIRouter:
    """Probes ask nobody who they are: no model call, no LiteLLM call."""
    router = APIRouter(prefix="/bench/health")

    @router.get("/live")
    async def live() -> dict[str, str]:
        return {"status": "ok"}

    @router.get("/ready", responses={503: {"description": "bench-proxy is starting, or the ledger cannot be reached."}})
    async def ready() -> JSONResponse:
        healthy = await bench().ledger.healthy()
        told = {
            "status": "ok" if healthy else "degraded",
            "ledger": "ok" if healthy else "unreachable",
            "configuration": "ok" if current() else "the changed file is not used; the proxy's log says why",
        }
        return JSONResponse(told, status_code=200 if healthy else 503)

    return router


def _routes(bench: Callable[[], Bench], authenticate: Authenticate, lane: Lane) -> APIRouter:
    async def caller(request: Request) -> Caller:
        return await authenticate(request.scope, request.receive, None)

    router = APIRouter(prefix="/bench")

    @router.post("/verdict")
    async def verdict(given: Annotated[Said, Body()], who: Annotated[Caller, Depends(caller)]) -> dict[str, Any]:
        if isinstance(given, GivenPick):
            return await _picked(bench(), given, who)
        said = Verdict(given.call, given.useful, given.note, tuple(given.real), tuple(given.false), given.by)
        judged = await bench().judge(said, who)
        return {
            "call": given.call,
            "recorded": judged.recorded,
            "alias": judged.alias,
            "verdict": given.model_dump(exclude={"call"}),
        }

    @router.post("/pending")
    async def pending(given: Annotated[GivenCalls, Body()], who: Annotated[Caller, Depends(caller)]) -> dict[str, Any]:
        return {"owed": await bench().owed(given.calls, who)}

    @router.get("/record")
    async def record(who: Annotated[Caller, Depends(caller)], collection: str | None = None) -> dict[str, Any]:
        name = _collection(collection)
        return {"collection": collection, "models": [_line(r) for r in await bench().record(name, who)]}

    @router.get("/panels")
    async def panels(
        who: Annotated[Caller, Depends(caller)],
        limit: Annotated[int, Query(ge=1, le=200)] = 50,
        cursor: Annotated[str | None, Query(max_length=128)] = None,
        collection: str | None = None,
    ) -> dict[str, Any]:
        page = await bench().panels(limit, cursor, _collection(collection), who)
        return {"panels": page.rows, "next": page.next}

    @router.get("/panels/{panel}")
    async def panel(panel: str, who: Annotated[Caller, Depends(caller)]) -> Any:
        return await bench().panel(panel, who)

    @router.get("/conversations")
    async def conversations(
        who: Annotated[Caller, Depends(caller)],
        limit: Annotated[int, Query(ge=1, le=200)] = 50,
        cursor: Annotated[str | None, Query(max_length=128)] = None,
        collection: str | None = None,
    ) -> dict[str, Any]:
        page = await bench().conversations(limit, cursor, _collection(collection), who)
        return {"conversations": page.rows, "next": page.next}

    @router.get("/conversations/{conversation}")
    async def conversation(conversation: str, who: Annotated[Caller, Depends(caller)]) -> Any:
        return await bench().conversation(conversation, who)

    @router.get("/collections")
    async def collections(who: Annotated[Caller, Depends(caller)]) -> dict[str, Any]:
        config = bench().config
        models = await who.allowed([f"bench/{name}" for name in config.collections])
        names = [model.removeprefix("bench/") for model in models]
        return {"collections": [_described(bench(), name) for name in names]}

    @router.get("/collections/{name}")
    async def collection(name: str, who: Annotated[Caller, Depends(caller)]) -> dict[str, Any]:
        if name not in bench().config.collections or not await who.allowed([f"bench/{name}"]):
            raise NotFound(f"there is no collection {name[:64]!r}", param="name")
        return _described(bench(), name)

    @router.get("/models")
    async def models(who: Annotated[Caller, Depends(caller)]) -> dict[str, Any]:
        known = {model.alias: model for model in bench().models()}
        left, now = bench().cooling.left(), time.time()
        return {"models": [{**_known(known[a], now, left.get(a)), **lane(a)} for a in await who.allowed(list(known))]}

    @router.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
    async def prometheus(who: Annotated[Caller, Depends(caller)]) -> Response:
        if not who.admin:
            raise Denied("the metrics are over all keys: ask with the master key", status=403, type="permission_error")
        from bench_proxy.http.metrics import CONTENT_TYPE, metrics  # most proxies are never scraped

        return Response(await metrics(bench(), lane), media_type=CONTENT_TYPE)

    return router


async def _picked(bench: Bench, given: GivenPick, who: Caller) -> dict[str, Any]:
    picked = await bench.pick(Pick(given.panel, given.best, given.note, given.by), who)
    over = [{"call": call, "alias": alias} for call, alias in picked.over.items()]
    return {**given.model_dump(), "recorded": picked.recorded, "alias": picked.alias, "over": over}


def _described(bench: Bench, name: str) -> dict[str, Any]:
    settings = bench.config.collections[name].model_dump()
    return {"name": name, "model": f"bench/{name}", **settings, "explorers": bench.config.explorers_of(name)}


def _known(model: Model, now: float, cools_for: float | None) -> dict[str, Any]:
    """`cools_for` in seconds from `now`, which is a Unix time, as all times here are."""
    return {
        "alias": model.alias,
        "role": model.role,
        "family": model.family,
        "chats": model.chats,
        "context_window": model.context_window,
        "max_output": model.max_output,
        "tools": model.tools,
        "vision": model.vision,
        "input_cost_per_token": model.input_cost_per_token,
        "output_cost_per_token": model.output_cost_per_token,
        "explore": model.explore,
        "retired": model.retired,
        "cooling_until": None if cools_for is None else round(now + cools_for, 3),
        "sources": dict(model.sources),
    }


def _collection(given: str | None) -> str | None:
    """Takes `core` and `bench/core`. Collections that are no longer configured still have a record."""
    return None if given is None else given.removeprefix("bench/")


def _line(record: Record) -> dict[str, Any]:
    sums, interval, rating = record.sums, record.interval, record.rating
    return {
        "alias": sums.alias,
        "shape": sums.shape,
        "seated": sums.seated,
        "answered": sums.answered,
        "empty": sums.empty,
        "failed": sums.failed,
        "late": sums.late,
        "useful": sums.useful,
        "not_useful": sums.not_useful,
        "preferred": sums.preferred,
        "not_preferred": sums.not_preferred,
        "claims_held": sums.claims_held,
        "claims_failed": sums.claims_failed,
        "owed": sums.owed,
        "useful_share": None if interval.share is None else round(interval.share, 4),
        "wilson_90": [round(interval.low, 4), round(interval.high, 4)],
        "rating": rating and round(rating.rating, 1),
        "rating_95": rating and [round(rating.low, 1), round(rating.high, 1)],
        "compared": rating.comparisons if rating else 0,
        "last_seated": sums.last_seated_ms / 1000 or None,
        "last_judged": sums.last_judged_ms / 1000 or None,
    }


async def _internal_error(request: Request, _error: Exception) -> JSONResponse:
    return await _bench_error(request, BenchError("internal error in bench-proxy; its log says more"))


async def _bench_error(_request: Request, error: Any) -> JSONResponse:
    """The handlers are registered for one class of error each; the framework's type for them is wider."""
    headers = {}
    if error.status == 401:
        headers["www-authenticate"] = "Bearer"
    if error.retry_after is not None:
        headers["retry-after"] = str(error.retry_after)
    fault = Fault(message=error.message, type=error.type, param=error.param, code=error.code)
    return JSONResponse(Refused(error=fault).model_dump(), status_code=error.status, headers=headers)


async def _validation_error(request: Request, error: Any) -> JSONResponse:
    # What is not known explains best what is missing.
    first = min(error.errors(), key=lambda fault: fault["type"] != "extra_forbidden")
    if isinstance(error.body, bytes):  # FastAPI parses only what is said to be JSON
        kind = request.headers.get("content-type", "")[:100]
        return await _bench_error(request, WrongContentType(f'Content-Type is "{kind}"; send application/json'))
    if first["type"] == "json_invalid":
        return await _bench_error(request, InvalidRequest("the body is not JSON; send one JSON object"))
    place = ".".join(str(part) for part in first["loc"] if part not in {"body", "query", "path", VERDICT, PICK})
    place = place[:200]
    plain = first["msg"].removeprefix("Value error, ")  # what pydantic puts before words of ours
    said = {"extra_forbidden": "unknown key", "missing": "is required"}.get(first["type"], plain)
    message = f'"{place}": {said}' if place else f"the body: {plain}; send one JSON object"
    return await _bench_error(request, InvalidRequest(message, param=place or None))


async def _http_error(request: Request, error: Any) -> JSONResponse:
    if error.status_code == 404:
        return await _bench_error(request, NotFound(f"no such route; under /bench there are: {', '.join(PATHS)}"))
    refused = BenchError(str(error.detail))
    refused.status, refused.type = error.status_code, "invalid_request_error"
    response = await _bench_error(request, refused)
    response.headers.update(error.headers or {})
    if error.status_code == 405:  # the framework names those of one route, of which a path may have several
        path = request.scope["path"].removeprefix(request.scope.get("root_path", ""))
        response.headers["allow"] = ", ".join(methods_of(request.app.routes, path))
    return response
