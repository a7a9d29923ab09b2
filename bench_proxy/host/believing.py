"""What LiteLLM has said of its master key, believed while nothing could make it say anything else.

LiteLLM looks at a request for more than a millisecond before it lets it in: two fifths of what a panel costs. Most of
what it looks for are keys, teams, users and budgets, which are in its database. A proxy without one has its master
key, and what it says of that follows from the request and from settings that stand in a file.
"""

import hashlib
import time
from collections.abc import Collection, Mapping
from typing import Any

import litellm
import orjson
from litellm.constants import LITELLM_PROXY_MASTER_KEY_ALIAS
from litellm.proxy import proxy_server
from litellm.proxy._types import UserAPIKeyAuth
from starlette.types import Scope

BELIEVED_SECONDS = 60.0
"""LiteLLM would say the same for longer: this bounds how long we are wrong about what else may change its mind."""

MOST_BELIEVED = 1000
LONGEST_ID = 256
LONGEST = 256 * 1024
"""Bytes of a request beside its conversation, of which tools are the most, that are worth a comparison."""

SETTINGS = frozenset({"background_health_checks", "health_check_details", "health_check_interval", "master_key"})
"""What LiteLLM's `general_settings` may hold for its answer to follow from the request alone. Others may count
requests, look at addresses or ask a program of the operator's, and so may those that LiteLLM is yet to have.
"""

CONVERSATION = frozenset(
    {"contents", "input", "instructions", "messages", "prompt", "system", "systemInstruction", "system_instruction"}
)
"""Fields of a body, in any of the formats, that LiteLLM does not read to tell who is asking, but for budgets."""


class Believed:
    """What LiteLLM said, and by what metadata it bills a call."""

    def __init__(self, auth: UserAPIKeyAuth, identity: Mapping[str, Any]) -> None:
        self.auth = auth
        self.identity = identity
        self._changeable = [name for name, value in vars(auth).items() if type(value) in {dict, list}]

    def anew(self) -> UserAPIKeyAuth:
        """For one request, whose hooks may write into it."""
        auth = self.auth.model_copy()
        fields = vars(auth)  # LiteLLM's class looks at each field that is set by its name
        for name in self._changeable:
            fields[name] = fields[name].copy()
        return auth


class Believing:
    """Remembers requests by a digest of all that they say beside their conversation: path, address, each header, each
    other field.
    """

    def __init__(self) -> None:
        self._said: dict[bytes, tuple[float, Believed]] = {}

    def __len__(self) -> int:
        return len(self._said)

    def of(self, scope: Scope, body: Mapping[str, Any] | None) -> tuple[bytes | None, Believed | None]:
        """By what such a request is remembered, None where it is not to be; and what is believed of it."""
        digest = _digest(scope, body) if _follows() else None
        if digest is None:
            return None, None
        until, believed = self._said.get(digest, (0.0, None))
        return digest, believed if time.monotonic() < until else None

    def remember(self, digest: bytes, said: Believed) -> None:
        # What else LiteLLM keeps of a request is an end user's id, which may be as long as a caller likes.
        if said.auth.api_key != LITELLM_PROXY_MASTER_KEY_ALIAS or len(said.auth.end_user_id or "") > LONGEST_ID:
            return
        self._said.pop(digest, None)
        self._said[digest] = (time.monotonic() + BELIEVED_SECONDS, said)
        if len(self._said) > MOST_BELIEVED:
            del self._said[next(iter(self._said))]


def _follows() -> bool:
    """Whether LiteLLM's answer follows from the request: there is no database, nothing is asked or told beside it, and
    nothing is counted.
    """
    settings: Collection[str] = proxy_server.general_settings
    return (
        proxy_server.master_key is not None
        and proxy_server.prisma_client is None
        and proxy_server.user_custom_auth is None
        and proxy_server.open_telemetry_logger is None
        and not litellm.max_budget
        and not litellm.service_callback
        and SETTINGS.issuperset(settings)
    )


def _digest(scope: Scope, body: Mapping[str, Any] | None) -> bytes | None:
    """None for a request that is too long, or that is not JSON as we write it."""
    try:
        said = orjson.dumps(None if body is None else {k: v for k, v in body.items() if k not in CONVERSATION})
    except TypeError:  # an integer above 64 bits
        return None
    if len(said) > LONGEST:
        return None
    client = (scope.get("client") or ("",))[0]
    place = (scope["method"], scope["path"], scope.get("root_path"), scope["query_string"], client)
    # No header has a line end, and what is behind the last one is JSON.
    headers = [b"%b: %b" % header for header in scope["headers"] if header[0] != b"content-length"]
    known = [repr((proxy_server.master_key, *place)).encode(), *headers, said]
    return hashlib.blake2b(b"\n".join(known), digest_size=32).digest()
