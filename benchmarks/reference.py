"""The practical limit: a fan-out over aiohttp that does nothing else. No keys, no limits, no record, no errors."""

import argparse
import asyncio
import json

import aiohttp
import orjson
import uvloop
from aiohttp import web


class FanOut:
    """`collections` are names of models by the name that is asked for."""

    def __init__(self, upstream: str, collections: dict[str, list[str]]) -> None:
        self._url = f"{upstream}/v1/chat/completions"
        self._collections = collections
        self._session: aiohttp.ClientSession | None = None

    async def answer(self, request: web.Request) -> web.StreamResponse:
        body = orjson.loads(await request.read())
        asked = body["model"].removeprefix("bench/")
        # A model that is no collection answers alone, as it does behind every gateway.
        members = self._collections.get(asked, [asked])
        texts = await asyncio.gather(*(self._ask({**body, "model": member, "stream": False}) for member in members))
        text = "\n\n".join(f"## {member}\n\n{said}" for member, said in zip(members, texts, strict=True))
        answered = texts[0] if asked not in self._collections else text
        if body.get("stream"):
            chunk = {"choices": [{"index": 0, "delta": {"content": answered}, "finish_reason": "stop"}]}
            return web.Response(body=b"data: " + orjson.dumps(chunk) + b"\n\ndata: [DONE]\n\n")
        message = {"role": "assistant", "content": answered}
        whole = {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
        return web.Response(body=orjson.dumps(whole), content_type="application/json")

    async def _ask(self, body: dict[str, object]) -> str:
        if self._session is None:
            self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))
        async with self._session.post(self._url, data=orjson.dumps(body), headers=JSON) as response:
            answer = orjson.loads(await response.read())
        text: str = answer["choices"][0]["message"]["content"]
        return text


JSON = {"content-type": "application/json"}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.reference")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--upstream", required=True)
    parser.add_argument("--collections", type=json.loads, required=True)
    given = parser.parse_args()
    app = web.Application(client_max_size=2**30)
    app.router.add_post("/v1/chat/completions", FanOut(given.upstream, given.collections).answer)
    web.run_app(app, host="127.0.0.1", port=given.port, print=None, loop=uvloop.new_event_loop())


if __name__ == "__main__":
    main()
