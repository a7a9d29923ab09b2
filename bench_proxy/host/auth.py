"""LiteLLM decides who is in: its keys, budgets and limits, applied once to a bench request."""

import hashlib
import logging
from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from typing import Any

from fastapi import HTTPException
from litellm.proxy import proxy_server
from litellm.proxy._types import LitellmUserRoles, ProxyErrorTypes, ProxyException, UserAPIKeyAuth
from litellm.proxy.auth.auth_checks import can_key_call_resolved_model
from litellm.proxy.auth.auth_utils import is_request_body_safe
from litellm.proxy.auth.user_api_key_auth import user_api_key_auth
from litellm.proxy.common_utils.http_parsing_utils import safe_set_request_parsed_body
from litellm.proxy.litellm_pre_call_utils import LiteLLMProxyRequestSetup
from starlette.requests import Request
from starlette.types import Message, Receive, Scope

from bench_proxy.bench import Caller
from bench_proxy.config import MODEL_PREFIX
from bench_proxy.errors import BenchError, Denied
from bench_proxy.host.believing import Believed, Believing
from bench_proxy.host.billing import charge
from bench_proxy.host.keyless import is_keyless

log = logging.getLogger("bench_proxy")

LIST_PATH = "/v1/models"
"""A route that every key may use; our own routes are none that LiteLLM knows, and it refuses those to most keys."""

REJECTED = "Rejected Request: "
"""How LiteLLM begins what it says of a field that a request's body may not have, `api_base` for one."""

KEY_HEADERS = {
    "api_key": "authorization",
    "azure_api_key_header": "api-key",
    "anthropic_api_key_header": "x-api-key",
    "google_ai_studio_api_key_header": "x-goog-api-key",
    "azure_apim_header": "ocp-apim-subscription-key",
    "custom_litellm_key_header": "x-litellm-api-key",
}


class Authentication:
    """An `Authenticate` by LiteLLM's own; what it said of a request is believed of one that says the same."""

    def __init__(self) -> None:
        self._believing = Believing()

    async def __call__(self, scope: Scope, receive: Receive, body: Mapping[str, Any] | None) -> Caller:
        """Who is calling. `body` is what was asked, with `model` being the collection; None on routes of our own. What
        the task that asks goes on to call is billed to this key.

        Raises Denied with LiteLLM's status and words.
        """
        if body is None:
            scope = {**scope, "path": LIST_PATH, "raw_path": LIST_PATH.encode(), "method": "GET"}
            # LiteLLM reads the body, which whoever answers the route may have read already: there is no second one.
            receive = _nothing
        request = Request(scope, receive)
        # LiteLLM reads the model from here, and does not parse the body a second time.
        safe_set_request_parsed_body(request, dict(body or {}))
        digest, said = self._believing.of(scope, body)
        if said is None:
            said = await _said_by_litellm(request, billed=body is not None)
            if digest is not None:
                self._believing.remember(digest, said)
        else:
            # As LiteLLM would have left it: callbacks and tracing are told of it.
            request.state.litellm_received_at = datetime.now(UTC)
        if body is not None:
            charge(said.identity)
        return _caller(said.anew())


async def _said_by_litellm(request: Request, *, billed: bool) -> Believed:
    try:
        auth = await user_api_key_auth(request, **{k: request.headers.get(h) for k, h in KEY_HEADERS.items()})
    except Exception as error:
        raise denied(error) from error
    return Believed(auth, _identity(auth) if billed else {})


def _identity(auth: UserAPIKeyAuth) -> Mapping[str, Any]:
    """What LiteLLM says of a key in the metadata of its calls, by which it bills them."""
    said = LiteLLMProxyRequestSetup.add_user_api_key_auth_to_request_metadata(
        data={"metadata": {}}, user_api_key_dict=auth, _metadata_variable_name="metadata"
    )
    metadata: Mapping[str, Any] = said["metadata"]
    return metadata


def check_body(body: Mapping[str, Any]) -> None:
    """Of a caller whom LiteLLM has not authenticated, and whose body it so has not looked at. Raises Denied."""
    try:
        is_request_body_safe(
            dict(body), proxy_server.general_settings, proxy_server.llm_router, str(body.get("model", ""))
        )
    except ValueError as error:
        raise _rejected(str(error)) from error


def caller_of(metadata: Mapping[str, Any]) -> Caller:
    """Who made a call that LiteLLM has authenticated itself, by its metadata; LiteLLM's own calls have no key."""
    auth = metadata.get("user_api_key_auth")
    return _caller(auth) if isinstance(auth, UserAPIKeyAuth) else Caller("litellm", admin=False, allowed=_none)


async def _nothing() -> Message:
    return {"type": "http.request", "body": b"", "more_body": False}


def denied(error: Exception) -> BenchError:
    """LiteLLM's refusal with its status; without a database some of its 401s have other names."""
    raised, error = error, _meant(error)
    if isinstance(error, ProxyException):
        status = _status(error.code)
        message, headers = str(error.message), error.headers or {}
        kind = str(getattr(error.type, "value", error.type))
        without_database = proxy_server.prisma_client is None
        if without_database and (error.type == ProxyErrorTypes.no_db_connection or "prisma" in message.lower()):
            status, kind = 401, str(ProxyErrorTypes.auth_error.value)
            message = "Authentication Error, this key is not known. Send the proxy's master key as a Bearer token."
    elif isinstance(error, HTTPException):
        status, headers = error.status_code, error.headers or {}
        message, kind = str(error.detail), "auth_error" if error.status_code in {401, 403} else "invalid_request_error"
    elif error is not raised:
        # LiteLLM was about to say this, in these words.
        status, kind, headers = 401, "auth_error", {}
        message = f"Authentication Error, {error}"
    else:
        log.error("LiteLLM could not tell who is asking: %s: %s", type(error).__name__, error)
        status, kind, headers = 401, "auth_error", {}
        message = "Authentication Error, this request could not be authenticated; the proxy's log says why"
    if REJECTED in message:
        return _rejected(message)
    retry_after = {k.lower(): v for k, v in dict(headers).items()}.get("retry-after")
    return Denied(
        message,
        status=status,
        type=kind,
        code=str(status),
        retry_after=int(retry_after) if isinstance(retry_after, str) and retry_after.isdigit() else None,
    )


def _rejected(message: str) -> Denied:
    """A fault of the body, which LiteLLM finds while it authenticates: no other key would help."""
    said = message[message.index(REJECTED) :].partition(". ")[0] if REJECTED in message else message
    return Denied(said, status=400, type="invalid_request_error", code="400")


async def _none(_models: Collection[str]) -> list[str]:
    return []


def _meant(error: Exception) -> Exception:
    """While it handles a refusal, LiteLLM imports the database's library; where that is not installed, the refusal
    is the context of the import's error.
    """
    while isinstance(error, ImportError) and isinstance(error.__context__, Exception):
        error = error.__context__
    return error


def _status(code: object) -> int:
    try:
        status = int(str(code))
    except ValueError:
        return 401
    return status if 400 <= status <= 599 else 401


def _caller(auth: UserAPIKeyAuth) -> Caller:
    keyless = is_keyless()
    admin = keyless or auth.user_role == LitellmUserRoles.PROXY_ADMIN

    async def allowed(models: Collection[str]) -> list[str]:
        return [m for m in models if await _may_call(auth, m)]

    return Caller(owner="local" if keyless else _owner(auth), admin=admin, allowed=allowed, key=auth)


async def _may_call(auth: UserAPIKeyAuth, model: str) -> bool:
    router = proxy_server.llm_router
    # A key without a list of models may call any name, also one that nobody serves.
    if not model.startswith(MODEL_PREFIX) and (router is None or not router.get_model_list(model_name=model)):
        return False
    try:
        await can_key_call_resolved_model(
            model=model, llm_model_list=proxy_server.llm_model_list, valid_token=auth, llm_router=router
        )
    except ProxyException:
        return False
    return True


def _owner(auth: UserAPIKeyAuth) -> str:
    """What the ledger knows of a key: a hash, also when LiteLLM's own handle is the key itself."""
    who = auth.api_key or auth.user_id or auth.team_id or "anonymous"
    return hashlib.sha256(f"bench:{who}".encode()).hexdigest()[:32]
