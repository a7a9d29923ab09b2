"""A proxy that asks for no key makes everybody our admin; `access.require_key` takes that back on bench routes."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from litellm.proxy import proxy_server
from litellm.proxy.auth.user_api_key_auth import is_no_auth_dev_mode
from starlette.types import Receive, Scope

from bench_proxy.bench import Caller
from bench_proxy.errors import Denied

Authenticate = Callable[[Scope, Receive, Mapping[str, Any] | None], Awaitable[Caller]]


def is_keyless() -> bool:
    """Whether LiteLLM lets in everybody, who then is our admin. Custom authentication needs no master key, and says
    itself who is an admin.
    """
    return proxy_server.user_custom_auth is None and is_no_auth_dev_mode(
        proxy_server.master_key, proxy_server.general_settings
    )


def requiring_key(authenticate: Authenticate, required: Callable[[], bool]) -> Authenticate:
    """LiteLLM's authentication for callers without a bench key: while one is `required`, nobody without is let in."""

    async def authenticated(scope: Scope, receive: Receive, body: Mapping[str, Any] | None) -> Caller:
        if required() and is_keyless():
            raise Denied(
                "Authentication Error, this proxy wants a bench key; send one that its operator made, by"
                " `bench-proxy key create` with a master key set or while access.require_key is false",
                status=401,
                type="auth_error",
                code="401",
            )
        return await authenticate(scope, receive, body)

    return authenticated
