"""bench-proxy: one line in a LiteLLM config turns a group of models into one model name.

`gateway` is what the config names: `callbacks: [bench_proxy.gateway]`. Importing the package mounts nothing; asking
for `gateway` inside a LiteLLM proxy does.
"""

from typing import Any

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name == "gateway":
        from bench_proxy.wiring import gateway

        return gateway()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
