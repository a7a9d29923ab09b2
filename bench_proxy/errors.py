"""Every error that bench-proxy raises, with the status and the words that a client sees.

    BenchError                        500  server_error
    ├── InvalidRequest                400  invalid_request_error
    │   ├── UnknownModel              404
    │   ├── NotFound                  404
    │   ├── BodyTooLarge              413
    │   ├── PromptTooLarge            413
    │   ├── ContextOverflow           400  route mode, in the vendors' own words
    │   ├── OneVendorsOwn             400  route mode, where no member is that vendor's
    │   └── WrongContentType          415
    ├── RequestTimeout                408  timeout_error
    ├── Denied                        as LiteLLM said: its key, budget, rate-limit, guardrail and route refusals
    │   └── InsteadOfModels           400, or an answer where none has begun: what a guardrail says in the models' place
    ├── Overloaded                    429  rate_limit_error, with Retry-After
    │   └── BudgetSpent               429  a bench key's tokens or cost of the day
    ├── NobodyCanSit                  503  no model of the collection can be seated
    ├── Stopping                      503  the proxy stops before the panel is over
    ├── PanelFailed                   429 | 413 | 502 | 504: no seat answered
    ├── TurnFailed                    429 | 502 | 504, or as a member said of the caller's own fault
    └── LedgerUnavailable             503  a verdict that cannot be kept is refused, not lost

    UpstreamError                     what a model's failed call becomes; it fills a seat, never a response
    ConfigError                       stops the start; lists every fault

The formats decide how an error is written (`formats/`); nothing here knows HTTP beyond a status.
"""

from collections.abc import Mapping, Sequence
from typing import Any


class BenchError(Exception):
    """An error that a client may see.

    `message` says what was wrong, with which value, and what to do. `param` names the field at fault, `code` is a
    word for programs, `retry_after` is in seconds, `data` is the panel's `bench` object where one exists.
    """

    status = 500
    type = "server_error"
    hopeless = False
    """Whether clients are told not to ask again: they do so by themselves after a 5xx."""

    def __init__(
        self,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        retry_after: int | None = None,
        data: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.code = code
        self.retry_after = retry_after
        self.data = data


class InvalidRequest(BenchError):
    status = 400
    type = "invalid_request_error"


class UnknownModel(InvalidRequest):
    status = 404


class NotFound(InvalidRequest):
    status = 404


class BodyTooLarge(InvalidRequest):
    status = 413


class PromptTooLarge(InvalidRequest):
    status = 413


class ContextOverflow(InvalidRequest):
    """A conversation that is larger than any member takes. Agents compact and go on at the vendors' own words for it,
    and give up at a 413. `tokens` is its size, `window` the largest one there is, where that is known.
    """

    def __init__(self, tokens: int, window: int | None, *, data: Mapping[str, Any] | None = None) -> None:
        most = f"maximum context length is {window} tokens" if window else "context window is exceeded"
        super().__init__(
            f"This model's {most}. However, your messages resulted in {tokens} tokens. "
            "Please reduce the length of the messages.",
            param="messages",
            code="context_length_exceeded",
            data=data,
        )
        self.tokens = tokens
        self.window = window


class OneVendorsOwn(InvalidRequest):
    """What only the vendor that it is made for can take, as a tool that it runs itself."""


class WrongContentType(InvalidRequest):
    status = 415


class RequestTimeout(BenchError):
    status = 408
    type = "timeout_error"


class Denied(BenchError):
    """LiteLLM refused the request before a panel was seated; status, type and headers are its own."""

    def __init__(
        self,
        message: str,
        *,
        status: int,
        type: str,
        param: str | None = None,
        code: str | None = None,
        retry_after: int | None = None,
    ) -> None:
        super().__init__(message, param=param, code=code, retry_after=retry_after)
        self.status = status
        self.type = type


class InsteadOfModels(Denied):
    """A guardrail answers in the models' place, with `message`. Where an answer can still begin, that is the answer."""

    def __init__(self, message: str) -> None:
        super().__init__(message, status=400, type="invalid_request_error", code="content_filter")


class Overloaded(BenchError):
    status = 429
    type = "rate_limit_error"


class BudgetSpent(Overloaded):
    hopeless = True

    def __init__(self, message: str, *, retry_after: int | None = None) -> None:
        super().__init__(message, code="budget_spent", retry_after=retry_after)


class NobodyCanSit(BenchError):
    status = 503


class Stopping(BenchError):
    status = 503


class LedgerUnavailable(BenchError):
    status = 503


class PanelFailed(BenchError):
    """No seat answered; `status` says why they all failed (429, 413, 504, else 502). Or some did, and that was refused.

    `retry_after` says that asking again can help; without it a client that does so pays for each model once more.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int,
        code: str = "no_seat_answered",
        retry_after: int | None = None,
        data: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message, code=code, retry_after=retry_after, data=data)
        self.status = status
        self.type = {429: "rate_limit_error", 413: "invalid_request_error"}.get(status, "server_error")
        self.hopeless = retry_after is None


class TurnFailed(BenchError):
    """No member answered a turn; `status` says why. `hopeless` when each of them would fail the same way again."""

    def __init__(
        self,
        message: str,
        *,
        status: int,
        code: str = "no_member_answered",
        retry_after: int | None = None,
        hopeless: bool = False,
        data: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message, code=code, retry_after=retry_after, data=data)
        self.status = status
        self.type = "rate_limit_error" if status == 429 else "server_error"
        self.hopeless = hopeless


class UpstreamError(Exception):
    """A model's call that failed, in our words.

    `kind` is one of `KINDS`; `status` is the HTTP status that the model's server gave, or the one that fits;
    `message` holds no key and no address; `retry_after` is in seconds; `context_window` is in tokens, as the model's
    server stated it.
    """

    def __init__(
        self,
        kind: str,
        status: int,
        message: str,
        *,
        retry_after: float | None = None,
        context_window: int | None = None,
    ) -> None:
        super().__init__(f"{kind} ({status}): {message}")
        self.kind = kind
        self.status = status
        self.message = message
        self.retry_after = retry_after
        self.context_window = context_window


KINDS = frozenset(
    {
        "authentication",
        "bad_request",
        "bad_response",
        "cancelled",
        "connection",
        "content_policy",
        "context_window",
        "cooling",
        "internal",
        "not_found",
        "overloaded",
        "permission",
        "rate_limit",
        "server_error",
        "timeout",
        "tools",
    }
)


class ConfigError(Exception):
    """The `bench:` block cannot be used; `faults` are lines of the form `path: what is wrong`."""

    def __init__(self, source: str, faults: Sequence[str]) -> None:
        self.source = source
        self.faults = tuple(faults)
        count = f"{len(faults)} fault{'s' if len(faults) != 1 else ''}"
        super().__init__("\n".join([f"{source}: {count} in the bench configuration", *(f"  {f}" for f in faults)]))
