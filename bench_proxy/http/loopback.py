"""Keeps web pages out of a proxy that asks for no key: any page that someone opens can reach loopback.

A page of another origin sends an `Origin`; one whose name was bound to 127.0.0.1 (DNS rebinding) sends its own `Host`.
"""

import re
from collections.abc import Collection
from ipaddress import ip_address
from urllib.parse import urlsplit

from starlette.datastructures import Headers

from bench_proxy.config import Access
from bench_proxy.errors import Denied

_HOST = re.compile(r"(?P<name>[a-z0-9_-]+(?:\.[a-z0-9_-]+)*\.?|\[[0-9a-f:.]+\])(?::\d{1,5})?")


def refuse_foreign(headers: Headers, access: Access) -> None:
    """Raise Denied unless the request was addressed to this machine, or an allowed name, and sent by a program, by a
    page of this very server, or by one of an allowed origin.
    """
    host = headers.get("host", "")
    if not (_is_loopback(host) or _is_named(host, access.allowed_hosts)):
        raise _denied(
            f'the Host "{host[:100]}" is not this machine; without a key it answers to 127.0.0.1, and to the names in'
            " access.allowed_hosts"
        )
    origin = headers.get("origin")
    if not (origin in access.allowed_origins or _is_own_page(headers)):
        raise _denied(
            f'web pages of "{origin[:100] if origin else ""}" may not use a proxy that asks for no key, unless they are'
            " in access.allowed_origins"
        )


def refuse_pages(headers: Headers) -> None:
    """Raise Denied for pages that are not this server's own: what an operator allows others is bench alone."""
    if not _is_own_page(headers):
        raise _denied("web pages of another origin may ask this proxy for bench models alone, as it asks for no key")


def _is_own_page(headers: Headers) -> bool:
    """Or a program, which sends no origin."""
    origin = headers.get("origin")
    return origin is None or _place(origin) == headers.get("host", "").lower()


def _place(origin: str) -> str:
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""


def _is_loopback(host: str) -> bool:
    # Nothing but a name and a port: `localhost#.example.com` is a loopback address for nobody but a parser of URLs.
    if (parts := _HOST.fullmatch(host.lower())) is None:
        return False
    name = parts["name"].strip("[]")
    try:
        return name == "localhost" or ip_address(name).is_loopback
    except ValueError:
        return False


def _is_named(host: str, allowed: Collection[str]) -> bool:
    """`name` is this name on any port, `name:8080` on that one, `*.name` each name that ends so."""
    parts = _HOST.fullmatch(host.lower())
    if parts is None:
        return False
    forms = (parts["name"], parts[0])
    return any(one in forms or (one[:2] == "*." and any(form.endswith(one[1:]) for form in forms)) for one in allowed)


def _denied(message: str) -> Denied:
    return Denied(f"{message}. Set LITELLM_MASTER_KEY to serve others.", status=403, type="permission_error")
