"""What Ollama's replies are made of, a panel's and a turn's: lines of JSON, of which the last one is `done`."""

from datetime import UTC, datetime

from bench_proxy.formats.base import Data, Envelope, Usage, dumps


def rfc3339(seconds: int) -> str:
    """Unix seconds as Ollama writes times."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def head(envelope: Envelope) -> Data:
    return {"model": envelope.model, "created_at": rfc3339(envelope.created)}


def line(value: Data) -> bytes:
    return dumps(value) + b"\n"


def piece(envelope: Envelope, said: Data) -> bytes:
    """A line before the last one."""
    return line({**head(envelope), **said, "done": False})


def last(envelope: Envelope, said: Data, finish_reason: str, usage: Usage, data: Data, *, watched: bool = True) -> Data:
    """The last line, and the whole of a reply that is not streamed. After a call of a tool Ollama says `stop`.
    `watched` says that the answer was seen to come, and its first piece with it.
    """
    return {
        **head(envelope),
        **said,
        "done": True,
        "done_reason": "length" if finish_reason == "length" else "stop",
        **_durations(data, watched=watched),
        "prompt_eval_count": usage.prompt_tokens,
        "eval_count": usage.completion_tokens,
        "bench": data,
    }


def _durations(data: Data, *, watched: bool) -> dict[str, int]:
    """In nanoseconds. What is spent before the first token counts as reading the prompt, where it is known. Clients
    divide by the last one.
    """
    seconds, before = _of_panel(data) if "seats" in data else _of_turn(data)
    total = _nanoseconds(seconds)
    reading = min(_nanoseconds(before), total) if watched else 0
    return {
        "total_duration": total,
        "load_duration": 0,
        "prompt_eval_duration": reading,
        "eval_duration": max(1, total - reading),
    }


def _of_panel(data: Data) -> tuple[float, float]:
    """Of the seats together, which work at the same time, and of the merger after them."""
    seats = data["seats"]
    total = max((seat["seconds"] for seat in seats), default=0) + data.get("merger", {}).get("seconds", 0)
    return total, min((s["first_token_seconds"] for s in seats if "first_token_seconds" in s), default=0)


def _of_turn(data: Data) -> tuple[float, float]:
    """Of the one model that answered; 0 where it is not told."""
    return data.get("seconds") or 0, data.get("first_piece_seconds") or 0


def _nanoseconds(seconds: float) -> int:
    return round(seconds * 1e9)
