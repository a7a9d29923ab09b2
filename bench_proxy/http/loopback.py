"""Keeps web pages out of a proxy that asks for no key: any page that someone opens can reach loopback.

A page of another origin sends an `Origin`; one whose name was bound to 127.0.0.1 (DNS rebinding) sends its own `Host`.
"""

from ipaddress import ip_address
from urllib.parse import urlsplit

from starlette.datastructures import Headers

from bench_proxy.errors import Denied


def refuse_foreign(headers: Headers) -> None:
    """Raise Denied unless the request was addressed to this machine, by a program or by a page of this very server."""
    host = headers.get("host", "")
    if not _is_loopback(host):
        raise _denied(f'the Host "{host[:100]}" is not this machine; without a key it answers to 127.0.0.1 alone')
    origin = headers.get("origin")
    if origin is not None and _place(origin) != host.lower():
        raise _denied(f'web pages of "{origin[:100]}" may not use a proxy that asks for no key')


def _place(origin: str) -> str:
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""


def _is_loopback(host: str) -> bool:
    if "@" in host:
        return False
    try:
        name = urlsplit(f"//{host}").hostname or ""
        return name == "localhost" or ip_address(name).is_loopback
    except ValueError:
        return False


def _denied(message: str) -> Denied:
    return Denied(f"{message}. Set LITELLM_MASTER_KEY to serve others.", status=403, type="permission_error")
