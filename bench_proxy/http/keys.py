"""`/bench/keys`: an admin makes bench keys, looks at them and revokes them."""

import time
from collections.abc import Callable
from typing import Annotated, Any

from fastapi import APIRouter, Body, Depends, Query, Request
from pydantic import AfterValidator, Field
from starlette.responses import JSONResponse

from bench_proxy.bench import Bench, Caller
from bench_proxy.config import MODEL_PREFIX, closest
from bench_proxy.errors import Denied, InvalidRequest, NotFound
from bench_proxy.http.answering import Authenticate
from bench_proxy.http.given import Given, Id
from bench_proxy.ids import key_id
from bench_proxy.keys import BenchKey, KeyStore, Limits, Use, digest_of, new_key


def _printed(name: str) -> str:
    """It stands in lists that terminals show."""
    if not name.isprintable():
        raise ValueError("must hold no line ends and no control characters")
    return name


LAST_TIME = 253_402_300_799
"""The end of the year 9999, as a Unix time in seconds."""


class GivenKey(Given):
    """`collections` null are all; `expires` is a Unix time in seconds."""

    name: Annotated[str, Field(min_length=1, max_length=100), AfterValidator(_printed)]
    collections: Annotated[list[Id], Field(min_length=1, max_length=1000)] | None = None
    requests_a_minute: Annotated[int, Field(ge=1, le=10**6)] | None = None
    tokens_a_day: Annotated[int, Field(ge=1, le=10**15)] | None = None
    cost_a_day: Annotated[float, Field(gt=0, le=10**9, allow_inf_nan=False)] | None = None
    expires: Annotated[float, Field(ge=0, le=LAST_TIME, allow_inf_nan=False)] | None = None


def build(bench: Callable[[], Bench], keys: Callable[[], KeyStore], authenticate: Authenticate) -> APIRouter:
    async def admin(request: Request) -> Caller:
        who = await authenticate(request.scope, request.receive, None)
        if not who.admin:
            message = "bench keys are made, listed and revoked by an admin: ask with the master key"
            raise Denied(message, status=403, type="permission_error")
        return who

    router = APIRouter(prefix="/bench/keys", dependencies=[Depends(admin)])

    @router.post("", status_code=201)
    async def make(given: Annotated[GivenKey, Body()]) -> JSONResponse:
        secret, now_ms = new_key(), _now_ms()
        key = _key(given, secret, list(bench().config.collections), now_ms)
        await keys().make_key(key)
        # The only time that it is told.
        body = {"key": secret, **key.as_json(Use())}
        return JSONResponse(body, status_code=201, headers={"cache-control": "no-store"})

    @router.get("")
    async def listed(
        limit: Annotated[int, Query(ge=1, le=200)] = 50,
        cursor: Annotated[str | None, Query(max_length=128)] = None,
    ) -> dict[str, Any]:
        page = await keys().bench_keys(limit, cursor)
        return {"keys": [key.as_json(today) for key, today in page.keys], "next": page.next}

    @router.delete("/{id}")
    async def revoke(id: str) -> dict[str, Any]:
        if (revoked := await keys().revoke_key(id[:128], _now_ms())) is None:
            raise NotFound(
                "there is no bench key with this id; GET /bench/keys and bench-proxy key list have all", param="id"
            )
        key, today = revoked
        return key.as_json(today)

    return router


def _key(given: GivenKey, secret: str, configured: list[str], now_ms: int) -> BenchKey:
    """Raises InvalidRequest."""
    names = None if given.collections is None else [name.removeprefix(MODEL_PREFIX) for name in given.collections]
    for name in names or ():
        if name not in configured:
            known = ", ".join(configured) or "none"
            near = closest(name[:100], configured) or "."
            raise InvalidRequest(
                f'there is no collection "{name[:100]}"{near} The collections are: {known}', param="collections"
            )
    expires_ms = None if given.expires is None else round(1000 * given.expires)
    if expires_ms is not None and expires_ms <= now_ms:
        raise InvalidRequest(
            f'"expires": {given.expires:.0f} is over; send a Unix time in seconds that is to come',
            param="expires",
        )
    return BenchKey(
        id=key_id(),
        name=given.name,
        digest=digest_of(secret),
        last_four=secret[-4:],
        at_ms=now_ms,
        collections=None if names is None else tuple(dict.fromkeys(names)),
        limits=Limits(given.requests_a_minute, given.tokens_a_day, given.cost_a_day),
        expires_ms=expires_ms,
    )


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
