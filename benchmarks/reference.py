"""The practical limit: a fan-out over aiohttp that does nothing else. No keys, no limits, no record, no errors.

A stream is of one model, and is passed on as it comes.
"""

import argparse
import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager

import aiohttp
import orjson
import uvloop
from aiohttp import web


class FanOut:
    """`collections` are names of models by the name that is asked for."""

    def __init__(self, upstream: str, collections: dict[str, list[str]]) -> None:
        self._url = f"{upstream}/v1/chat/completions"
        self._collections = collections
        self._session: aiohttp.ClientSession

    async def connected(self, _: web.Application) -> AsyncIterator[None]:
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as self._session:
            yield

    async def answer(self, request: web.Request) -> web.StreamResponse:
        body = orjson.loads(await request.read())
        asked = body["model"].removeprefix("bench/").removesuffix(":route")
        # A model that is no collection answers alone, as it does behind every gateway.
        members = self._collections.get(asked, [asked])
        if body.get("stream"):
            return await self._relay(request, {**body, "model": members[0]})
        texts = await asyncio.gather(*(self._ask({**body, "model": member}) for member in members))
        text = "\n\n".join(f"## {member}\n\n{said}" for member, said in zip(members, texts, strict=True))
        answered = texts[0] if asked not in self._collections else text
        message = {"role": "assistant", "content": answered}
        whole = {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
        return web.Response(body=orjson.dumps(whole), content_type="application/json")

    async def _ask(self, body: dict[str, object]) -> str:
        async with self._post(body) as response:
            answer = orjson.loads(await response.read())
        text: str = answer["choices"][0]["message"]["content"]
        return text

    async def _relay(self, request: web.Request, body: dict[str, object]) -> web.StreamResponse:
        out = web.StreamResponse(headers={"content-type": "text/event-stream"})
        async with self._post(body) as response:
            await out.prepare(request)
            async for piece in response.content.iter_any():
                await out.write(piece)
        return out

    def _post(self, body: dict[str, object]) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        return self._session.post(self._url, data=orjson.dumps(body), headers=JSON)


JSON = {"content-type": "application/json"}


def build(upstream: str, collections: dict[str, list[str]]) -> web.Application:
    fan_out = FanOut(upstream, collections)
    app = web.Application(client_max_size=2**30)
    app.cleanup_ctx.append(fan_out.connected)
    app.router.add_post("/v1/chat/completions", fan_out.answer)
    return app


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.reference")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--upstream", required=True)
    parser.add_argument("--collections", type=json.loads, required=True)
    given = parser.parse_args()
    app = build(given.upstream, given.collections)
    web.run_app(app, host="127.0.0.1", port=given.port, print=None, loop=uvloop.new_event_loop())


if __name__ == "__main__":
    main()
