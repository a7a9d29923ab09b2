"""The HTTP proxy by which a model's server is reached, as LiteLLM's own transport takes it from the environment.

Not left to aiohttp's `trust_env`: that also looks for the user's netrc file at each call, in a thread, and fails when
it finds the server there, since the call has a key of its own.
"""

import os
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import litellm
from litellm.secret_managers.main import str_to_bool


class Proxies:
    """Remembers what was found for each server: the look-up goes through the whole environment."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], str | None] = {}

    def of(self, url: str) -> str | None:
        """The proxy's address, its credentials included; None for a server that is reached directly."""
        try:
            parts = urlsplit(url)
            server = (parts.scheme, parts.hostname or "")
        except ValueError:  # the HTTP client says what is wrong with it
            return None
        if server not in self._found:
            self._found[server] = _proxy_of(*server)
        return self._found[server]


def _proxy_of(scheme: str, host: str) -> str | None:
    unused = litellm.disable_aiohttp_trust_env or str_to_bool(os.environ.get("DISABLE_AIOHTTP_TRUST_ENV"))
    if unused or proxy_bypass(host):
        return None
    proxies = getproxies()
    proxy = proxies.get(scheme) or proxies.get("all")
    return f"http://{proxy}" if proxy and "://" not in proxy else proxy
