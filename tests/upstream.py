"""A fake OpenAI-compatible model server whose behaviour is scripted by the name of the model it is asked for.

    python -m tests.upstream --port 9100

A name is words joined by `-`, and some of them take a number: `slow300-fail500-a` answers with a 500 after 300 ms.
Words that are not in this table only tell models apart. Any gateway passes a name on unchanged, so no test has to set
anything up here.

| word            | the model                                                                                       |
|-----------------|-------------------------------------------------------------------------------------------------|
| `slow300`       | waits so many milliseconds before it sends anything                                             |
| `gate`          | waits for `release(model)` before it sends anything                                             |
| `step`          | streamed: waits for `release(model)` before each piece of its text                              |
| `pace50`        | streamed: waits so many milliseconds before each piece of its text                              |
| `hang`          | never answers and holds the socket                                                              |
| `drip200`       | for ever sends a byte (streamed: a piece of one character) each so many milliseconds            |
| `once`          | does what its other words say only the first time; after that it is plain                       |
| `later`         | is plain the first time; after that it does what its other words say                            |
| `fail500`       | refuses with that status and OpenAI's error body                                                |
| `rate7`         | refuses with 429 and `Retry-After` in seconds                                                   |
| `context4096`   | refuses with 400 and OpenAI's wording for a prompt that is too long                             |
| `html`          | refuses with 502 and a page                                                                     |
| `garbage`       | answers 200 with something that is not JSON                                                     |
| `empty`         | answers with no text                                                                            |
| `null`          | answers with content null, only reasoning, cut by length                                        |
| `think`         | reasons, then answers                                                                           |
| `length`        | has its text cut by length                                                                      |
| `big`, `huge`   | answers with 1 MB, 20 MB                                                                        |
| `unicode`       | answers with `UNICODE`, in packets that end inside of characters                                |
| `echo`          | answers with the JSON of the request's body                                                     |
| `tools2`        | calls the request's tools, so many at once (1 unless said); with their results it answers       |
| `aloud`         | `tools`: says its text before it calls                                                          |
| `atonce`        | `tools`, streamed: has each call whole in one piece                                             |
| `objects`       | `tools`: has arguments that are objects and not text; streamed as `atonce`                      |
| `idless`        | `tools`: has calls without ids; streamed without indices too, as `atonce`                       |
| `legacy`        | `tools`: makes a `function_call`, as before there were tools                                    |
| `notools400`    | refuses with that status every request that has tools, in Ollama's words                        |
| `badschema`     | refuses with 400 every request that has tools, in OpenAI's words for a schema                   |
| `cached4`       | reports so many prompt tokens as read from a cache                                              |
| `thought3`      | reports so many completion tokens as thought                                                    |
| `in10`, `out5`  | reports so many prompt and completion tokens                                                    |
| `usageless`     | reports no usage                                                                                |
| `cut2`          | closes the socket in the middle of the body; streamed: after so many pieces                     |
| `stall2`        | holds the socket in the middle of the body; streamed: after so many pieces                      |
| `midfail2`      | streamed: sends an error event after so many pieces                                             |
| `unfinished2`   | streamed: ends after so many pieces with neither a finish reason nor `[DONE]`                   |
| `sure97`        | decides with so many percent of confidence                                                      |

Numbers shown are those used when a name gives none. The text is "I am <model>." unless `say(model, text)` set another.
Asked for a decision, at `/v1/decisions` (OpenAI's dialect) or `/v1/systemone` (that of most other providers), a model
chooses the option that `say` named, else the first one, with `sure97`.
`GET /calls` lists what was received, `DELETE /calls` forgets it, `POST /release?model=&count=` lets a `gate` or a
`step` go on.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from types import TracebackType
from typing import Any, NoReturn, Self

from aiohttp import web

DEFAULTS: Mapping[str, int] = {
    "slow": 300,
    "gate": 0,
    "step": 0,
    "pace": 50,
    "hang": 0,
    "drip": 200,
    "once": 0,
    "later": 0,
    "fail": 500,
    "rate": 7,
    "context": 4096,
    "html": 502,
    "garbage": 0,
    "empty": 0,
    "null": 0,
    "think": 0,
    "length": 0,
    "big": 1_000_000,
    "huge": 20_000_000,
    "unicode": 0,
    "echo": 0,
    "tools": 1,
    "aloud": 0,
    "atonce": 0,
    "objects": 0,
    "idless": 0,
    "legacy": 0,
    "notools": 400,
    "badschema": 0,
    "cached": 4,
    "thought": 3,
    "in": 10,
    "out": 5,
    "usageless": 0,
    "cut": 2,
    "stall": 2,
    "midfail": 2,
    "unfinished": 2,
    "sure": 97,
}
WORD = re.compile(r"([a-z]+)(\d*)")

# Line and paragraph separators, NEL, an emoji family joined by ZWJ, a flag, CJK, right-to-left text, combining marks,
# an astral letter.
UNICODE = "a\u2028b\u2029c\u0085d 👩‍👩‍👧‍👦 🇨🇭 漢字かな 한국어 שלום e\u0301 Z\u0351\u0343\u0336 𝔘 ﷽ end"
REASONING = "Let me think."
GARBAGE = b"<<< this is not JSON {{{"
PAGE = b"<html><head><title>502 Bad Gateway</title></head><body><h1>502 Bad Gateway</h1></body></html>"
PIECE = 65_536  # characters of a streamed piece of a long text
PACKET = 7  # bytes of a write of `unicode`: shorter than its longest characters, prime to their lengths
MAX_BODY = 256 * 1024 * 1024

PATHS = ("/v1/chat/completions", "/v1/decisions", "/v1/systemone")

ERROR_TYPES = {
    400: ("invalid_request_error", "bad_request"),
    401: ("invalid_request_error", "invalid_api_key"),
    402: ("insufficient_quota", "insufficient_quota"),
    403: ("permission_error", "forbidden"),
    404: ("invalid_request_error", "model_not_found"),
    429: ("requests", "rate_limit_exceeded"),
}

Json = dict[str, Any]


@dataclass(frozen=True)
class Call:
    """A request that was received; times are those of `time.monotonic`, in seconds."""

    number: int
    model: str
    path: str
    body: Json
    headers: dict[str, str]  # names in lower case
    start: float
    end: float | None = None
    status: int | None = None  # None until the head of the answer left
    hung_up: bool = False  # the client closed the connection before the answer's end


@dataclass(frozen=True)
class Reply:
    """What is sent whole."""

    status: int
    body: bytes
    content_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)


def script(model: str) -> dict[str, int]:
    """The words of a model's name that mean something here, with their numbers."""
    words = {}
    for part in model.split("-"):
        word = WORD.fullmatch(part)
        if word and word[1] in DEFAULTS:
            words[word[1]] = int(word[2]) if word[2] else DEFAULTS[word[1]]
    return words


def text_of(model: str) -> str:
    """What a model answers to any prompt unless a test set another text; `echo` alone depends on the prompt."""
    words = script(model)
    if "empty" in words:
        return ""
    if "unicode" in words:
        return UNICODE
    said = f"I am {model}."
    size = words.get("huge", words.get("big", 0))
    return f"{said} {'0123456789abcde ' * (size // 16 + 1)}"[:size] if size else said


def error(message: str, kind: str, code: str | None, param: str | None = None) -> bytes:
    return json.dumps({"error": {"message": message, "type": kind, "param": param, "code": code}}).encode()


def refusal(model: str, words: Mapping[str, int], body: Json) -> Reply | None:
    """The whole answer of a model that refuses or breaks, whether it was asked to stream or not."""
    if "notools" in words and body.get("tools"):
        said = f"registry.ollama.ai/library/{model}:latest does not support tools"
        return Reply(words["notools"], error(said, "api_error", None))
    if "badschema" in words and body.get("tools"):
        said = f"Invalid schema for function '{body['tools'][0]['function']['name']}': schema must have type 'object'."
        where = "tools[0].function.parameters"
        return Reply(400, error(said, "invalid_request_error", "invalid_function_parameters", where))
    if "fail" in words:
        status = words["fail"]
        kind, code = ERROR_TYPES.get(status, ("server_error", "internal_error"))
        return Reply(status, error(f"{model} fails with {status}.", kind, code))
    if "rate" in words:
        wait = words["rate"]
        body = error(f"Rate limit reached for {model}. Please try again in {wait}s.", *ERROR_TYPES[429])
        return Reply(429, body, headers={"Retry-After": str(wait)})
    if "context" in words:
        window = words["context"]
        said = (
            f"This model's maximum context length is {window} tokens. However, your messages resulted in "
            f"{window + 1000} tokens. Please reduce the length of the messages."
        )
        return Reply(400, error(said, "invalid_request_error", "context_length_exceeded", "messages"))
    if "html" in words:
        return Reply(502, PAGE, "text/html")
    return None


@dataclass(frozen=True)
class Turn:
    """One answer: what is said, thought and called, and how it ends."""

    number: int
    model: str
    text: str | None
    reasoning: str
    tool_calls: tuple[Json, ...]
    finish: str
    usage: Json | None
    legacy: bool = False
    at_once: bool = False

    def head(self, kind: str) -> Json:
        return {"id": f"chatcmpl-{self.number}", "object": kind, "created": 1_700_000_000, "model": self.model}

    def whole(self) -> Json:
        message: Json = {"role": "assistant", "content": self.text}
        if self.reasoning:
            message["reasoning_content"] = self.reasoning
        if self.tool_calls and self.legacy:
            message["function_call"] = self.tool_calls[0]["function"]
        elif self.tool_calls:
            message["tool_calls"] = list(self.tool_calls)
        answer = self.head("chat.completion")
        answer["choices"] = [{"index": 0, "message": message, "finish_reason": self.finish}]
        if self.usage:
            answer["usage"] = self.usage
        return answer

    def chunk(self, delta: Json, finish: str | None = None) -> Json:
        return {
            **self.head("chat.completion.chunk"),
            "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
        }

    def pieces(self) -> Iterator[Json]:
        """The chunks that carry something of the answer."""
        if self.reasoning:
            yield self.chunk({"reasoning_content": self.reasoning})
        for piece in split(self.text or ""):
            yield self.chunk({"content": piece})
        if self.at_once:
            for index, call in enumerate(self.tool_calls):
                yield self.chunk({"tool_calls": [{"index": index, **call} if "id" in call else call]})
            return
        for delta in tool_deltas(self.tool_calls):
            yield self.chunk({"function_call": delta["function"]} if self.legacy else {"tool_calls": [delta]})

    def ending(self, with_usage: bool) -> Iterator[Json]:
        yield self.chunk({}, self.finish)
        if with_usage and self.usage:
            yield {**self.head("chat.completion.chunk"), "choices": [], "usage": self.usage}


def split(text: str) -> list[str]:
    """Words with the blanks behind them; a long text in large parts."""
    if len(text) > PIECE:
        return [text[start : start + PIECE] for start in range(0, len(text), PIECE)]
    return re.findall(r"\S+\s*|\s+", text)


def tool_deltas(calls: tuple[Json, ...]) -> Iterator[Json]:
    """Each call is opened, then their arguments come in halves, interleaved."""
    for index, call in enumerate(calls):
        yield {"index": index, **call, "function": {"name": call["function"]["name"], "arguments": ""}}
    for half in range(2):
        for index, call in enumerate(calls):
            arguments = call["function"]["arguments"]
            middle = len(arguments) // 2
            yield {"index": index, "function": {"arguments": arguments[middle:] if half else arguments[:middle]}}


def tool_calls(number: int, model: str, words: Mapping[str, int], body: Json, text: str) -> tuple[Json, ...]:
    """Calls of the request's tools in turn, each with the arguments {"query": <model>, "n": <index>}; one that takes an
    `input`, as a custom tool that is told as a function, gets the model's text.
    """
    tools = [tool["function"] for tool in body.get("tools") or [] if "function" in tool] or [{"name": "lookup"}]
    calls = []
    for index in range(1 if "legacy" in words else words["tools"]):
        tool = tools[index % len(tools)]
        takes_text = "input" in ((tool.get("parameters") or {}).get("properties") or {})
        arguments = {"input": text} if takes_text else {"query": model, "n": index}
        written = arguments if "objects" in words else json.dumps(arguments)
        call: Json = {"type": "function", "function": {"name": tool["name"], "arguments": written}}
        calls.append(call if "idless" in words else {"id": f"call_{number}_{index}", **call})
    return tuple(calls)


def turn(number: int, model: str, words: Mapping[str, int], body: Json, said: str | None) -> Turn:
    """The answer of a model that does answer."""
    text: str | None = text_of(model) if said is None else said
    calls: tuple[Json, ...] = ()
    finish = "length" if "length" in words or "null" in words else "stop"
    if "echo" in words and said is None:
        text = json.dumps(body)
    if "null" in words:
        text = None
    messages = body.get("messages") or [{}]
    if "tools" in words and messages[-1].get("role") != "tool":
        calls = tool_calls(number, model, words, body, text or "")
        text, finish = text if "aloud" in words else None, "function_call" if "legacy" in words else "tool_calls"
    tokens = words.get("in", DEFAULTS["in"]), words.get("out", DEFAULTS["out"])
    usage: Json = {"prompt_tokens": tokens[0], "completion_tokens": tokens[1], "total_tokens": sum(tokens)}
    if "cached" in words:
        usage["prompt_tokens_details"] = {"cached_tokens": words["cached"]}
    if "thought" in words:
        usage["completion_tokens_details"] = {"reasoning_tokens": words["thought"]}
    return Turn(
        number=number,
        model=model,
        text=text,
        reasoning=REASONING if "null" in words or "think" in words else "",
        tool_calls=calls,
        finish=finish,
        usage=None if "usageless" in words else usage,
        legacy="legacy" in words,
        at_once=not {"atonce", "idless", "objects"}.isdisjoint(words),
    )


def decided(body: Json, sure: int, said: str | None) -> Json:
    """The answers to choice questions, in the dialect in which they were asked."""
    if "state" in body:
        asked = {name: list(question["criteria"]) for name, question in body["questions"].items()}
    else:
        asked = {question["name"]: [o["value"] for o in question["choices"]] for question in body["questions"]}
    answers = [choice(name, options, said or options[0], sure / 100) for name, options in asked.items()]
    usage = {"input_tokens": 10, "output_tokens": 1}
    if "state" in body:
        named = {answer.pop("name"): answer for answer in answers}
        return {"model": body["model"], "answers": named, "usage": usage}
    for answer in answers:
        answer["probabilities"] = [{"value": v, "probability": p} for v, p in answer["probabilities"].items()]
    return {"model": body["model"], "answers": answers, "usage": {**usage, "total_tokens": 11}}


def choice(name: str, options: list[str], chosen: str, confidence: float) -> Json:
    rest = (1 - confidence) / max(1, len(options) - 1)
    probabilities = {option: confidence if option == chosen else rest for option in options}
    return {
        "type": "choice",
        "name": name,
        "choice": chosen,
        "confidence": confidence,
        "probabilities": probabilities,
    }


async def for_ever() -> NoReturn:
    await asyncio.Event().wait()
    raise AssertionError("nothing sets that event")


class Upstream:
    """The server in a thread of its own: `with Upstream() as upstream: … upstream.url …`."""

    def __init__(self, port: int = 0, host: str = "127.0.0.1") -> None:
        """Port 0 takes a free one; `port` is the real one once the server has started."""
        self.host, self.port = host, port
        self._changed = threading.Condition()
        self._calls: dict[int, Call] = {}
        self._count = 0
        self._texts: dict[str, str] = {}
        self._permits: defaultdict[str, asyncio.Semaphore] = defaultdict(lambda: asyncio.Semaphore(0))
        self._stopping = False

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    @property
    def api_base(self) -> str:
        """What an OpenAI client takes as its base URL."""
        return f"{self.url}/v1"

    def start(self) -> Self:
        started: Future[None] = Future()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve(started)), name="upstream", daemon=True)
        self._thread.start()
        started.result(timeout=10)
        return self

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    # What tests ask and say, from any thread.

    def calls(self, model: str | None = None) -> list[Call]:
        """The requests received since `clear`, in order; those for one model if it is named."""
        with self._changed:
            return [call for call in self._calls.values() if model in (None, call.model)]

    def wait_for(self, condition: Callable[[list[Call]], object], timeout: float = 10) -> list[Call]:
        """Wait until the list of calls is as wanted and return it; TimeoutError says what it was instead."""
        with self._changed:
            if not self._changed.wait_for(lambda: condition(list(self._calls.values())), timeout):
                seen = [(call.model, call.status, call.end is not None, call.hung_up) for call in self._calls.values()]
                raise TimeoutError(f"after {timeout} s the calls (model, status, ended, hung up) were {seen}")
            return list(self._calls.values())

    def say(self, model: str, text: str) -> None:
        """Let a model answer with this text until `clear`."""
        self._texts[model] = text

    def release(self, model: str, count: int = 1) -> None:
        """Let so many waits of a `gate` or a `step` of this model go on, now or when they come."""
        self._loop.call_soon_threadsafe(self._release, model, count)

    def clear(self) -> None:
        """Forget the calls, the texts and the releases; calls under way go on, unlisted."""
        with self._changed:
            self._calls.clear()
        self._texts.clear()
        self._loop.call_soon_threadsafe(self._permits.clear)

    # The server, in its own thread.

    async def _serve(self, started: Future[None]) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        app = web.Application(client_max_size=MAX_BODY)
        app.router.add_get("/calls", self._list_calls)
        app.router.add_delete("/calls", self._delete_calls)
        app.router.add_post("/release", self._post_release)
        # LiteLLM looks here by itself for the limits of its models, at times of its own: no call that a test made.
        app.router.add_get("/v1/models", self._list_models)
        app.router.add_route("*", "/{path:.*}", self._receive)
        runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=0)
        try:
            await runner.setup()
            await web.TCPSite(runner, self.host, self.port, backlog=2048).start()
            self.port = runner.addresses[0][1]
        except OSError as fault:
            await runner.cleanup()
            started.set_exception(fault)
            return
        started.set_result(None)
        await self._stop.wait()
        self._stopping = True
        await runner.cleanup()

    async def _list_calls(self, request: web.Request) -> web.StreamResponse:
        return web.json_response([asdict(call) for call in self.calls(request.query.get("model"))])

    async def _delete_calls(self, request: web.Request) -> web.StreamResponse:
        self.clear()
        return web.Response(status=204)

    async def _list_models(self, request: web.Request) -> web.StreamResponse:
        return web.json_response({"object": "list", "data": []})

    async def _post_release(self, request: web.Request) -> web.StreamResponse:
        self._release(request.query["model"], int(request.query.get("count", "1")))
        return web.Response(status=204)

    def _release(self, model: str, count: int) -> None:
        for _ in range(count):
            self._permits[model].release()

    def _note(self, number: int, **news: Any) -> None:
        with self._changed:
            if number in self._calls:
                self._calls[number] = replace(self._calls[number], **news)
                self._changed.notify_all()

    def _open(self, request: web.Request, body: Json) -> tuple[Call, bool]:
        """Record a call; also whether it is the first one for its model."""
        headers = {name.lower(): value for name, value in request.headers.items()}
        model = str(body.get("model", ""))
        with self._changed:
            self._count += 1
            call = Call(self._count, model, request.path, body, headers, time.monotonic())
            first = all(other.model != model for other in self._calls.values())
            self._calls[call.number] = call
            self._changed.notify_all()
        return call, first

    async def _receive(self, request: web.Request) -> web.StreamResponse:
        data = await request.read()
        try:
            body = json.loads(data) if data else {}
        except ValueError:
            body = None
        call, first = self._open(request, body if isinstance(body, dict) else {})
        try:
            if request.method != "POST" or request.path not in PATHS:
                said = error(f"There is no {request.method} {request.path} here.", "invalid_request_error", None)
                return await self._whole(request, call, Reply(404, said))
            if not isinstance(body, dict) or not call.model:
                said = error("The body has to be a JSON object with a model.", "invalid_request_error", None)
                return await self._whole(request, call, Reply(400, said))
            return await self._play(request, call, first)
        except (asyncio.CancelledError, ConnectionError):
            self._note(call.number, hung_up=not self._stopping)
            raise
        finally:
            self._note(call.number, end=time.monotonic())

    async def _play(self, request: web.Request, call: Call, first: bool) -> web.StreamResponse:
        words = script(call.model)
        if ("once" in words and not first) or ("later" in words and first):
            words = {}
        if "slow" in words:
            await asyncio.sleep(words["slow"] / 1000)
        if "gate" in words:
            await self._permits[call.model].acquire()
        if "hang" in words:
            await for_ever()
        if reply := refusal(call.model, words, call.body):
            return await self._whole(request, call, reply)
        if call.path != "/v1/chat/completions":
            return await self._decide(request, call, words)
        said = turn(call.number, call.model, words, call.body, self._texts.get(call.model))
        if call.body.get("stream"):
            return await self._stream(request, call, words, said)
        if "garbage" in words:
            return await self._whole(request, call, Reply(200, GARBAGE))
        if "drip" in words:
            return await self._drip(await self._begin(request, call, Reply(200, b"")), words["drip"], b" ")
        data = json.dumps(said.whole(), ensure_ascii="unicode" not in words).encode()
        return await self._whole(request, call, Reply(200, data), words)

    async def _decide(self, request: web.Request, call: Call, words: Mapping[str, int]) -> web.StreamResponse:
        if "garbage" in words:
            return await self._whole(request, call, Reply(200, GARBAGE))
        answer = decided(call.body, words.get("sure", DEFAULTS["sure"]), self._texts.get(call.model))
        return await self._whole(request, call, Reply(200, json.dumps(answer).encode()), words)

    async def _begin(self, request: web.Request, call: Call, reply: Reply) -> web.StreamResponse:
        response = web.StreamResponse(
            status=reply.status, headers={"X-Request-Id": f"req-{call.number}", **reply.headers}
        )
        response.content_type = reply.content_type
        if reply.body:
            response.content_length = len(reply.body)
        await response.prepare(request)
        self._note(call.number, status=reply.status)
        return response

    async def _whole(
        self, request: web.Request, call: Call, reply: Reply, words: Mapping[str, int] | None = None
    ) -> web.StreamResponse:
        response = await self._begin(request, call, reply)
        words = words or {}
        if "cut" in words or "stall" in words:
            await response.write(reply.body[: len(reply.body) // 2])
            return await self._break_off(request, response, words)
        if "unicode" in words:
            await write_split(response, reply.body)
            await response.write_eof()
        else:
            await response.write_eof(reply.body)
        return response

    async def _stream(
        self, request: web.Request, call: Call, words: Mapping[str, int], said: Turn
    ) -> web.StreamResponse:
        response = await self._begin(request, call, Reply(200, b"", "text/event-stream", {"Cache-Control": "no-cache"}))
        if "garbage" in words:
            await response.write_eof(b"data: " + GARBAGE + b"\n\n")
            return response
        if "drip" in words:
            return await self._drip(response, words["drip"], event(said.chunk({"content": "."})))
        broken = min((words[word] for word in ("cut", "stall", "midfail", "unfinished") if word in words), default=None)
        raw = "unicode" in words
        await response.write(event(said.chunk({"role": "assistant", "content": ""})))
        for index, piece in enumerate(said.pieces()):
            if index == broken:
                return await self._break_off(request, response, words)
            if "step" in words:
                await self._permits[call.model].acquire()
            if "pace" in words:
                await asyncio.sleep(words["pace"] / 1000)
            data = event(piece, raw)
            await (write_split(response, data) if raw else response.write(data))
        if broken is not None:
            return await self._break_off(request, response, words)
        with_usage = bool((call.body.get("stream_options") or {}).get("include_usage"))
        for chunk in said.ending(with_usage):
            await response.write(event(chunk))
        await response.write_eof(b"data: [DONE]\n\n")
        return response

    async def _drip(self, response: web.StreamResponse, pause: int, drop: bytes) -> NoReturn:
        while True:
            await response.write(drop)
            await asyncio.sleep(pause / 1000)

    async def _break_off(
        self, request: web.Request, response: web.StreamResponse, words: Mapping[str, int]
    ) -> web.StreamResponse:
        if "stall" in words:
            await for_ever()
        if "cut" in words:
            # Closing after what is buffered has left, without the end that the framing promised.
            if request.transport:
                request.transport.close()
            return response
        if "midfail" in words:
            await response.write(
                b"data: " + error("The model failed in the middle.", "server_error", "internal_error") + b"\n\n"
            )
        await response.write_eof()
        return response


def event(chunk: Json, raw: bool = False) -> bytes:
    return b"data: " + json.dumps(chunk, ensure_ascii=not raw).encode() + b"\n\n"


async def write_split(response: web.StreamResponse, data: bytes) -> None:
    for start in range(0, len(data), PACKET):
        await response.write(data[start : start + PACKET])


def main() -> None:
    parser = argparse.ArgumentParser(description="A fake model server, scripted by the names of its models.")
    parser.add_argument("--port", type=int, default=9100)
    parser.add_argument("--host", default="127.0.0.1")
    options = parser.parse_args()
    with Upstream(options.port, options.host) as upstream, suppress(KeyboardInterrupt):
        print(f"upstream on {upstream.url}", flush=True)  # noqa: T201 - a command's output
        threading.Event().wait()


if __name__ == "__main__":
    main()
