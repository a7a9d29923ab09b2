"""Who pays for a seat: the key that a collection was asked with."""

from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any

from litellm.constants import INTERNAL_CALL_ORIGIN_METADATA_KEY
from litellm.litellm_core_utils.internal_call_metadata import (
    FORWARDABLE_IDENTITY_METADATA_KEYS,
    without_budget_reservation,
)

# The key itself stays behind: it would narrow the members to what the key may call by name.
IDENTITY = FORWARDABLE_IDENTITY_METADATA_KEYS - {"user_api_key_auth"}

_payer: ContextVar[Mapping[str, Any]] = ContextVar("bench_payer", default={})  # noqa: B039  read only


def charge(metadata: Mapping[str, Any]) -> None:
    """Let the seats of this context be paid by the caller of the call that has this metadata.

    A call that another one has caused (`internal_call_origin`) is billed, and not counted against the key's rate
    limits: where LiteLLM took the panel for a call of its own, it has counted that one.
    """
    identity = {name: value for name, value in metadata.items() if name in IDENTITY and value is not None}
    origin = {INTERNAL_CALL_ORIGIN_METADATA_KEY: "bench_proxy"}
    # Set also for a caller without a name: a request that was sent behind another one begins in that one's context.
    _payer.set({**without_budget_reservation(identity), **origin} if identity else {})


def payer() -> Mapping[str, Any]:
    """What a seat's call says of it, in LiteLLM's metadata."""
    return _payer.get()
