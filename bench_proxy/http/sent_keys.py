"""Bench keys in a request: found and judged by their digest, and taken out, so that nothing behind the gate has one.

LiteLLM gets a word in their place, which it refuses like any key that it does not know: neither its logs nor the
server's, which writes query strings, ever hold a bench key.
"""

import re
from dataclasses import dataclass
from urllib.parse import parse_qsl, quote, unquote_plus

from starlette.types import Scope

from bench_proxy.keys import PREFIX, digest_of

SENT = "bench_proxy.sent_key"

IN_ITS_PLACE = "a-bench-key"
"""What others see of it."""

HEADERS = (b"x-litellm-api-key", b"authorization", b"x-api-key", b"x-goog-api-key", b"api-key")
"""The first of these that was sent is judged, whatever stands in the others. Not the first on the wire: fields of
different names have no order (RFC 9110, section 5.3), and proxies change it.
"""

QUERY = "key"
GOOGLES = ("/v1beta/", "/v1/models", "/models")
"""Where Google's clients send the key in the address."""

SCHEME = "bearer "
_PREFIX = PREFIX.encode()
_WHOLE = re.compile(re.escape(PREFIX) + r"[A-Za-z0-9_-]{43,}", re.ASCII)
"""A key where none is looked for: its beginning alone may be anybody's word there."""
_KEY = re.compile(rf"(?<![A-Za-z0-9_-]){re.escape(PREFIX)}\S*|{_WHOLE.pattern}", re.ASCII)
"""What is sent as a key. Random ones of LiteLLM's may hold the same four characters further on."""
_KEY_BYTES = re.compile(_KEY.pattern.encode())


@dataclass(frozen=True, slots=True)
class Sent:
    """A bench key that came with a request; the digest is empty where it has not the form of one."""

    digest: str


def carries(scope: Scope) -> bool:
    """Whether a bench key came with this request, judged or not. Asked of every request, also those for LiteLLM."""
    for _, value in scope["headers"]:
        if _PREFIX in value and _KEY_BYTES.search(value):
            return True
    if PREFIX in scope["path"] and _WHOLE.search(scope["path"]):
        return True
    query = scope["query_string"]
    if _PREFIX not in query and b"%" not in query:  # its name and the key itself may be written in percents
        return False
    return any(_holds_key(piece) for piece in query.split(b"&"))


def is_taken(key: str) -> bool:
    """Whether what is sent as this key is taken for a bench key, so that LiteLLM never sees it."""
    return _KEY.search(key) is not None


def take_out(scope: Scope, path: str) -> None:
    """Take every bench key out of the scope; one that is to be judged leaves its digest under `SENT`.

    The scope itself is changed, which the server reads for its access log.
    """
    if not carries(scope):
        return
    judged = _judged(scope, path)
    if judged.startswith(PREFIX):
        scope[SENT] = Sent(digest_of(judged))
    scope["headers"] = [
        # In any header: operators may have named one of their own for LiteLLM's keys.
        (name, _KEY_BYTES.sub(IN_ITS_PLACE.encode(), value))
        for name, value in scope["headers"]
    ]
    scope["query_string"] = b"&".join(_without_key(piece) for piece in scope["query_string"].split(b"&"))
    if _WHOLE.search(scope["path"]):
        # Typed for the id of a key: it is none, and the server writes paths into its log.
        scope["path"] = _WHOLE.sub(IN_ITS_PLACE, scope["path"])
        scope["raw_path"] = quote(scope["path"]).encode()


def _judged(scope: Scope, path: str) -> str:
    sent: dict[bytes, str] = {}
    for name, value in scope["headers"]:
        if name in HEADERS and name not in sent:
            sent[name] = _token(name, value.decode("latin-1").strip())
    in_headers = next((sent[name] for name in HEADERS if sent.get(name)), "")
    if in_headers or not path.startswith(GOOGLES):
        return in_headers
    return next((value for name, value in _queried(scope["query_string"]) if name == QUERY and value), "")


def _token(name: bytes, value: str) -> str:
    """Empty for a header that holds no key: a proxy on the way may ask for a password of its own in `Authorization`."""
    bearer = value[: len(SCHEME)].lower() == SCHEME
    if bearer:
        return value[len(SCHEME) :].strip()
    return "" if name == b"authorization" else value


def _queried(query: bytes) -> list[tuple[str, str]]:
    return parse_qsl(query.decode("latin-1"), keep_blank_values=True)


def _holds_key(piece: bytes) -> bool:
    text = piece.decode("latin-1")
    name, _, value = text.partition("=")
    expected = _KEY if unquote_plus(name) == QUERY else _WHOLE
    return bool(expected.search(unquote_plus(value)) or _WHOLE.search(unquote_plus(text)))


def _without_key(piece: bytes) -> bytes:
    if not _holds_key(piece):
        return piece
    name, equals, _ = piece.decode("latin-1").partition("=")
    named = equals and not _WHOLE.search(unquote_plus(name))
    return (f"{name}={IN_ITS_PLACE}" if named else IN_ITS_PLACE).encode("latin-1")
