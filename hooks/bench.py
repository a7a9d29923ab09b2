"""For a checkout: `callbacks: [hooks.bench.gateway]`. LiteLLM loads this file by its path, once per mention."""

from bench_proxy import gateway

__all__ = ["gateway"]
