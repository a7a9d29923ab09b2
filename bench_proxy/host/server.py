"""LiteLLM's proxy, started by us."""

from pathlib import Path


def serve(config: Path, host: str, port: int) -> None:
    """Run until stopped. Its command line is the public way to start it, and sets up more than its app does."""
    from litellm.proxy.proxy_cli import run_server

    run_server(["--config", str(config), "--host", host, "--port", str(port)], standalone_mode=False)
