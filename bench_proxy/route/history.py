"""A conversation retold such that no member's server refuses it: each call has one result, right behind it, as text.

https://platform.openai.com/docs/api-reference/chat/create#chat-create-messages
Agents that were interrupted leave calls without results; the order of roles and the parts of messages that other
formats allow are refused by one vendor or another, or by the chat templates of open models.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Any

import orjson

from bench_proxy.errors import InvalidRequest, OneVendorsOwn
from bench_proxy.formats import images
from bench_proxy.formats.arguments import BROKEN
from bench_proxy.formats.chat.parts import flat, function_call, text_part
from bench_proxy.formats.request import Json

SHOWN = frozenset({"text", "image_url", "file", "input_audio", "video_url"})
"""Parts of a user's message that some members may take. Who cannot see is not asked about images."""

NO_RESULT = "[no result: the call was interrupted]"
IMAGES_FOLLOW = "[the images of this result follow]"
LONGEST_ECHO = 100


def retold(messages: Sequence[Json]) -> Sequence[Json]:
    """The same object when nothing has to change. Raises InvalidRequest for what no member could be told."""
    told = list(_paired(_each(messages)))
    if len(told) == len(messages) and all(one is other for one, other in zip(told, messages, strict=True)):
        return messages
    if not told:
        raise InvalidRequest('"messages" hold neither text nor tool calls', param="messages")
    return told


# Each message by itself.


def _each(messages: Sequence[Json]) -> Iterator[Json]:
    begun = False
    for place, message in enumerate(messages):
        role = message.get("role")
        if role in {"system", "developer"}:
            # Templates of open models take it only as the first message.
            yield {**message, "role": "user"} if begun else message
            continue
        begun = True
        if role == "assistant":
            if (said := _assistant(message, place)) is not None:
                yield said
        else:
            if role == "user" and isinstance(content := message.get("content"), list):
                _check(content)
            yield message


def _check(parts: Sequence[Json]) -> None:
    for part in parts:
        kind = part.get("type")
        if kind == "image_url":
            images.check(part)
        elif kind not in SHOWN:
            raise OneVendorsOwn(
                f'a content part of type "{str(kind)[:LONGEST_ECHO]}" is read by its vendor alone: send text or images',
                param="messages",
            )


def _assistant(message: Json, place: int) -> Json | None:
    """None of a message that says and calls nothing, which vendors refuse."""
    sent, legacy = message.get("tool_calls"), message.get("function_call")
    content = _said(message)
    if sent and not isinstance(sent, list):
        field = f"messages.{place}.tool_calls"
        raise InvalidRequest(f'"{field}" should be a list', param=field)
    calls = [_call(call, place, index) for index, call in enumerate(sent or ())]
    if isinstance(legacy, dict):
        calls.append(_call({"function": legacy}, place, len(calls)))
    if not calls and content is None:
        return None
    changed: dict[str, Any] = {}
    if content is not message.get("content"):
        changed["content"] = content
    if calls and (legacy or any(one is not other for one, other in zip(calls, sent or (), strict=True))):
        changed["tool_calls"] = calls
    # An empty list of calls is refused too.
    gone = {"function_call"} if legacy else {"tool_calls"} if sent is not None and not calls else set()
    if not changed and not gone:
        return message
    return {**{key: value for key, value in message.items() if key not in gone}, **changed}


def _said(message: Json) -> Any:
    """The text of an assistant's message, None if it is blank. Parts that are no text are its maker's business."""
    content = message.get("content")
    if isinstance(content, str):
        return content if content.strip() else _refusal(message)
    if not isinstance(content, list):
        return _refusal(message)
    texts = [text_part(part["refusal"]) if part.get("type") == "refusal" else part for part in content if _text(part)]
    if len(texts) == len(content) and all(one is other for one, other in zip(texts, content, strict=True)):
        return content or _refusal(message)
    return flat(texts) if texts else _refusal(message)


def _refusal(message: Json) -> str | None:
    refusal = message.get("refusal")
    return refusal if isinstance(refusal, str) and refusal.strip() else None


def _text(part: Json) -> bool:
    """Whether it is text, or a refusal, that says something."""
    kind = part.get("type")
    text = part.get(kind) if kind in {"text", "refusal"} else None
    return isinstance(text, str) and bool(text.strip())


def _call(call: Any, place: int, index: int) -> Json:
    """The call as one of a function, with an id and with arguments that are an object."""
    kind = "custom" if isinstance(call, dict) and call.get("type") == "custom" else "function"
    told = call.get(kind) if isinstance(call, dict) else None
    name = told.get("name") if isinstance(told, dict) else None
    if not isinstance(call, dict) or not isinstance(told, dict) or not isinstance(name, str):
        field = f"messages.{place}.tool_calls.{index}.{kind}.name"
        raise InvalidRequest(f'"{field}" is required, and should be a text', param=field)
    id = call.get("id")
    # The place of a message is the same in each turn, and so is the id.
    named = id if isinstance(id, str) and id else f"call_{place}_{index}"
    if kind == "custom":
        return function_call(named, name, json.dumps({"input": told.get("input") or ""}, ensure_ascii=False))
    arguments = _arguments(told.get("arguments"))
    if named is id and arguments is told.get("arguments") and call.get("type") == "function":
        return call
    return {**call, **function_call(named, name, arguments)}


def _arguments(sent: object) -> str:
    """What a model wrote wrongly goes on as text under a name of its own: most servers parse the arguments."""
    if isinstance(sent, str):
        if _is_object(sent):
            return sent
        sent = {BROKEN: sent} if sent.strip() else {}
    return json.dumps(sent if isinstance(sent, dict) else {} if sent is None else {BROKEN: sent}, ensure_ascii=False)


def _is_object(text: str) -> bool:
    try:
        return isinstance(orjson.loads(text), dict)
    except orjson.JSONDecodeError:
        return False


# Calls and their results.


class _Run:
    """The results of the calls of one message; each call has its name by its id."""

    def __init__(self, calls: Sequence[Json]) -> None:
        self.waiting = {call["id"]: call["function"]["name"] for call in calls}
        self._names = dict(self.waiting)
        self._results: list[Json] = []

    def take(self, id: str, result: Json) -> None:
        del self.waiting[id]
        if result.get("role") != "tool" or result.get("tool_call_id") != id:
            result = {"role": "tool", "tool_call_id": id, "content": result.get("content")}
        self._results.append(result)

    def messages(self) -> Iterator[Json]:
        """The results, and behind the last one the images that stood in them, which only a user may show."""
        pictures: list[Json] = []
        for result in self._results:
            told, found = _split(result)
            yield told
            if found:
                id = result["tool_call_id"]
                pictures += [text_part(f"[images of the result of {self._names[id]}, call {id}]"), *found]
        for id in self.waiting:
            yield {"role": "tool", "tool_call_id": id, "content": NO_RESULT}
        if pictures:
            yield {"role": "user", "content": pictures}


def _paired(messages: Iterator[Json]) -> Iterator[Json]:
    """A result goes to the last call of its id; a second one is dropped, one without a call is told by the user."""
    out: list[Json | _Run] = []
    runs: dict[str, _Run] = {}
    last: _Run | None = None
    for message in messages:
        if message.get("role") in {"tool", "function"}:
            sent = message.get("tool_call_id")
            id = sent if isinstance(sent, str) and sent else _unnamed(message, last)
            if (run := runs.get(id)) is None:
                out.append(_orphan(message))
            elif id in run.waiting:
                run.take(id, message)
            continue
        out.append(message)
        if message.get("role") == "assistant" and message.get("tool_calls"):
            last = _Run(message["tool_calls"])
            runs |= dict.fromkeys(last.waiting, last)
            out.append(last)
    for one in out:
        if isinstance(one, _Run):
            yield from one.messages()
        else:
            yield one


def _unnamed(result: Json, run: _Run | None) -> str:
    """The call of a result that names none: the first of its tool, else the first."""
    waiting = run.waiting if run else {}
    same = (id for id, name in waiting.items() if name == result.get("name"))
    return next(same, next(iter(waiting), ""))


def _orphan(result: Json) -> Json:
    told, found = _split(result)
    of = result.get("tool_call_id") or result.get("name")
    content = told["content"]
    parts = [text_part(content)] if isinstance(content, str) else content
    return {"role": "user", "content": flat([text_part(f"[result of {of}, whose call is not here]"), *parts, *found])}


def _split(result: Json) -> tuple[Json, list[Json]]:
    """The result as text, and its images. Parts that are neither are named: the model should know what it misses."""
    content = result.get("content")
    if isinstance(content, str):
        return result, []
    parts = content if isinstance(content, list) else []
    if parts and all(part.get("type") == "text" for part in parts):
        return result, []
    found = [part for part in parts if part.get("type") == "image_url"]
    for image in found:
        images.check(image)
    texts = [_as_text(part) for part in parts if part.get("type") != "image_url"]
    texts = texts or ([text_part(IMAGES_FOLLOW)] if found else [])
    return {**result, "content": flat(texts)}, found


def _as_text(part: Json) -> Json:
    kind = part.get("type")
    return part if kind == "text" else text_part(f"[left out: {str(kind)[:LONGEST_ECHO]}]")
