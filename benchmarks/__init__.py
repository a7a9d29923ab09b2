"""What bench-proxy costs, against a LiteLLM proxy without it: `python -m benchmarks`."""
