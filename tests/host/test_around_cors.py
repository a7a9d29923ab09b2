"""What we rely on in LiteLLM's app: where its CORS stands, and that an app of ours can stand around it."""

from typing import Any

import pytest
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

from bench_proxy.host.mount import put_around_cors


@pytest.fixture
def app() -> Any:
    """Imported late: its warnings are let pass while a test runs."""
    from litellm.proxy.proxy_server import app as litellms

    return litellms


class Around:
    def __init__(self, inner: ASGIApp) -> None:
        self.app = inner

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        raise AssertionError


def around(outermost: Any) -> list[Any]:
    """The apps of a stack, from the outside."""
    found = [outermost]
    while hasattr(found[-1], "app"):
        found.append(found[-1].app)
    return found


def test_litellms_cors_is_found_and_nothing_else_moves(app: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "middleware_stack", app.build_middleware_stack())
    before = around(app.middleware_stack)
    cors = [index for index, part in enumerate(before) if isinstance(part, CORSMiddleware)]
    assert len(cors) == 1
    put_around_cors(Around)
    after = around(app.middleware_stack)
    assert isinstance(after.pop(cors[0]), Around)
    assert after == before


def test_it_stands_around_everything_where_there_is_no_cors(app: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async def bare(scope: Scope, receive: Receive, send: Send) -> None: ...

    inner = Around(bare)
    monkeypatch.setattr(app, "middleware_stack", inner)
    put_around_cors(Around)
    assert around(app.middleware_stack)[1:] == [inner, bare]
