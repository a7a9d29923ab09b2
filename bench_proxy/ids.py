"""Names that are never given twice: panels, conversations, the calls of their seats, bench keys."""

import secrets
from base64 import b32encode
from datetime import UTC, datetime

RANDOM_BYTES = 10
"""80 bits: sixteen base32 characters without padding."""


def panel_id(now: datetime | None = None) -> str:
    """`p` + UTC `YYYYMMDD-HHMMSS` + `-` + 16 base32 characters."""
    return _dated("p", now)


def conversation_id(now: datetime | None = None) -> str:
    """`r` + UTC `YYYYMMDD-HHMMSS` + `-` + 16 base32 characters."""
    return _dated("r", now)


def key_id(now: datetime | None = None) -> str:
    """Of a bench key: `k` + UTC `YYYYMMDD-HHMMSS` + `-` + 16 base32 characters."""
    return _dated("k", now)


def call_id(panel: str, seat: str, number: int) -> str:
    """The call of one seat: `<panel>.member1`; the first merger, mostly the only one, has no number."""
    return f"{panel}.{seat}" if seat == "merger" and number == 1 else f"{panel}.{seat}{number}"


def _dated(prefix: str, now: datetime | None) -> str:
    at = (now or datetime.now(UTC)).astimezone(UTC).strftime("%Y%m%d-%H%M%S")
    return f"{prefix}{at}-{b32encode(secrets.token_bytes(RANDOM_BYTES)).decode().lower()}"
