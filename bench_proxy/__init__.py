"""bench-proxy: one line in a LiteLLM config turns a group of models into one model name.

`gateway` is what the config names: `callbacks: [bench_proxy.gateway]`. Importing the package mounts nothing; asking
for `gateway` inside a LiteLLM proxy does. `install` is for Python programs that have a LiteLLM router and no proxy.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bench_proxy.sdk import install as install

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name == "gateway":
        from bench_proxy.wiring import gateway

        return gateway()
    if name == "install":
        from bench_proxy.sdk import install

        return install
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
