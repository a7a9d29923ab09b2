"""A server that answers as it is told, and what a lane says of it."""

from dataclasses import dataclass, field

from aiohttp import web
from litellm import Router

from bench_proxy.formats.request import ChatRequest
from bench_proxy.host.lean import LeanLane
from bench_proxy.host.reporting import Reporting
from bench_proxy.host.upstream import RouterLane
from bench_proxy.upstream import Call, Event, Upstream


async def heard(lane: Upstream, call: Call, *, stream: bool) -> list[Event]:
    if not stream:
        return [await lane.complete(call)]
    async with lane.stream(call) as events:
        return [event async for event in events]


@dataclass
class Odd:
    """A server that answers every call with these bytes and headers, and keeps what it was sent."""

    body: bytes
    kind: str = "application/json"
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    seen: list[bytes] = field(default_factory=list)

    async def answer(self, request: web.Request) -> web.Response:
        self.seen.append(await request.read())
        return web.Response(status=self.status, body=self.body, headers={"Content-Type": self.kind, **self.headers})


HELLO = ChatRequest([{"role": "user", "content": "Hi"}], {})


async def told(
    odd: Odd,
    *,
    stream: bool,
    forced: str = "auto",
    model: str = "openai/m",
    request: ChatRequest = HELLO,
) -> list[Event]:
    """What the lean lane says of this server, or with `forced` the router's."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", odd.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    base = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    params = {"model": model, "api_base": base, "api_key": "n"}
    router = Router(model_list=[{"model_name": "it", "litellm_params": params}], disable_cooldowns=True)
    lean = LeanLane(lambda: router, RouterLane(lambda: router), Reporting(), lambda: {"it": forced})
    assert bool(lean.why_router("it")) == (forced == "router")
    try:
        return await heard(lean, Call("it", request, 20), stream=stream)
    finally:
        await lean.close()
        await runner.cleanup()


def sse(*events: str) -> bytes:
    return "".join(f"data: {event}\n\n" for event in (*events, "[DONE]")).encode("utf-8", "surrogateescape")
