"""The items that the output of OpenAI Responses is made of, and the events that tell of each while it is written.

https://platform.openai.com/docs/api-reference/responses-streaming
"""

from abc import ABC, abstractmethod
from typing import Any, ClassVar

from bench_proxy.formats.base import Envelope, ToolCall
from bench_proxy.formats.request import ToolName

Json = dict[str, Any]
Event = tuple[str, Json]
"""An event's type and its fields; the reply that it belongs to numbers it."""

IN_PROGRESS = "in_progress"
COMPLETED = "completed"


class OutputItem(ABC):
    """An item of the output while its text comes. `index` is its place in the output, `text` what there is of it."""

    prefix: ClassVar[str]
    """What the ids of this kind begin with."""

    words: ClassVar[str]
    """The events of its text, without `.delta` and `.done`."""

    field: ClassVar[str] = "text"
    """Where all of the text stands when it is done."""

    def __init__(self, envelope: Envelope, index: int, text: str = "") -> None:
        self.id = f"{self.prefix}_{envelope.id}-{index}"
        self.index = index
        self._pieces = [text] if text else []

    @property
    def text(self) -> str:
        return "".join(self._pieces)

    @abstractmethod
    def told(self, status: str) -> Json:
        """The item with the text that it has: `in_progress`, `completed` or `incomplete`."""

    def opening(self) -> list[Event]:
        return [("response.output_item.added", {"output_index": self.index, "item": self.told(IN_PROGRESS)})]

    def piece(self, text: str) -> list[Event]:
        self._pieces.append(text)
        return [(f"{self.words}.delta", {**self._place(), "delta": text, **self._beside_delta()})]

    def closing(self, status: str) -> list[Event]:
        return [
            (f"{self.words}.done", {**self._place(), self.field: self.text, **self._beside_done()}),
            ("response.output_item.done", {"output_index": self.index, "item": self.told(status)}),
        ]

    def _place(self) -> Json:
        return {"item_id": self.id, "output_index": self.index}

    def _beside_delta(self) -> Json:
        return {}

    def _beside_done(self) -> Json:
        return {}


class PartedItem(OutputItem):
    """An item whose text is a part of it, which has events of its own."""

    part: ClassVar[str]
    """The events of the part, without `.added` and `.done`."""

    part_index: ClassVar[str]
    """The field that says which part; there is one."""

    def opening(self) -> list[Event]:
        return [*super().opening(), (f"{self.part}.added", {**self._place(), "part": self._part("")})]

    def closing(self, status: str) -> list[Event]:
        words, item = super().closing(status)
        return [words, (f"{self.part}.done", {**self._place(), "part": self._part(self.text)}), item]

    @abstractmethod
    def _part(self, text: str) -> Json: ...

    def _parts(self, status: str) -> list[Json]:
        """An item begins without its part, which is added to it."""
        return [] if status == IN_PROGRESS else [self._part(self.text)]

    def _place(self) -> Json:
        return {**super()._place(), self.part_index: 0}


class MessageItem(PartedItem):
    prefix = "msg"
    words = "response.output_text"
    part = "response.content_part"
    part_index = "content_index"

    def told(self, status: str) -> Json:
        return {
            "id": self.id,
            "type": "message",
            "status": status,
            "role": "assistant",
            "content": self._parts(status),
        }

    def _part(self, text: str) -> Json:
        return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}

    def _beside_delta(self) -> Json:
        return {"logprobs": []}

    def _beside_done(self) -> Json:
        return {"logprobs": []}


class ReasoningItem(PartedItem):
    """What a model thought aloud. Clients show a summary, whoever's words it has; `content` is for open models' own."""

    prefix = "rs"
    words = "response.reasoning_summary_text"
    part = "response.reasoning_summary_part"
    part_index = "summary_index"

    def told(self, status: str) -> Json:
        return {"id": self.id, "type": "reasoning", "status": status, "summary": self._parts(status)}

    def _part(self, text: str) -> Json:
        return {"type": "summary_text", "text": text}


class CallItem(OutputItem):
    """A call of a tool that the client runs, under the name by which the client knows it."""

    kind: ClassVar[str]

    def __init__(self, envelope: Envelope, index: int, call_id: str, tool: ToolName, text: str = "") -> None:
        super().__init__(envelope, index, text)
        self._call_id = call_id
        self._tool = tool

    def told(self, status: str) -> Json:
        item = {
            "id": self.id,
            "type": self.kind,
            "status": status,
            self.field: self.text,
            "call_id": self._call_id,
            "name": self._tool.name,
        }
        return {**item, "namespace": self._tool.namespace} if self._tool.namespace else item


class FunctionCallItem(CallItem):
    prefix = "fc"
    kind = "function_call"
    words = "response.function_call_arguments"
    field = "arguments"

    def _beside_done(self) -> Json:
        # Some releases of OpenAI's SDKs declare the name as required here, others do not have it.
        return {"name": self._tool.name}


class CustomCallItem(CallItem):
    prefix = "ctc"
    kind = "custom_tool_call"
    words = "response.custom_tool_call_input"
    field = "input"


def call_item(envelope: Envelope, index: int, call: ToolCall, text: str = "") -> CallItem:
    """A call as the item that the caller declared its tool for, with as much of its arguments as `text` says."""
    tool = envelope.tools.get(call.name) or ToolName(call.name)
    kind = CustomCallItem if tool.custom else FunctionCallItem
    return kind(envelope, index, call.id, tool, text)
