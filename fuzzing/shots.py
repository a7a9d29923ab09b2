"""What is sent: one request as bytes, with what its reply may be (Hypothesis strategies, no I/O)."""

import copy
import gzip
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any
from urllib.parse import quote, unquote

import orjson
from hypothesis import strategies as st

from bench_proxy.formats.brief import is_bench_model
from bench_proxy.formats.places import place
from fuzzing.bodies import ASKING, OPTIONS, TO_GEMINI, Json, Operation

Draw = Any
DICE = st.randoms(use_true_random=True)
"""What is chosen by these is chosen evenly. Hypothesis itself likes the first and the extreme, which is right for
values, but would send most requests to one route, and most of them unreadable.
"""


@dataclass(frozen=True)
class Shot:
    """`shape` is the format whose errors it must get; None where LiteLLM may be the one that answers."""

    method: str
    target: str
    headers: Sequence[tuple[bytes, bytes]]
    body: bytes
    shape: str | None

    def encoded(self) -> bytes:
        head = [f"{self.method} {self.target} HTTP/1.1".encode("latin-1"), b"Host: test", b"Connection: close"]
        head += [name + b": " + value for name, value in self.headers]
        if self.body or self.method == "POST":
            head.append(b"Content-Length: %d" % len(self.body))
        return b"\r\n".join([*head, b"", b""]) + self.body

    def __repr__(self) -> str:
        return f"Shot({self.encoded()[:3000]!r})"


@dataclass(frozen=True)
class Target:
    """What is known of the proxy that is shot at. `said` is text of its own: ids, an answer, its links."""

    operations: Sequence[Operation]
    keys: Sequence[str]
    said: Sequence[str] = field(default_factory=list)
    collections: Sequence[str] = ("pair", "broken", "routed", "agents", "merged", "choices", "live")


# Values

RAW: Mapping[str, bytes] = {
    "@raw:deep-lists@": b"[" * 3000 + b"]" * 3000,
    "@raw:deep-objects@": b'{"a":' * 3000 + b"1" + b"}" * 3000,
    "@raw:nearly-too-deep@": b"[" * 97 + b"]" * 97,
    "@raw:infinite@": b"1e999",
    "@raw:long-number@": b"9" * 5000,
    "@raw:long-fraction@": b"0." + b"3" * 5000,
    "@raw:nan@": b"NaN",
    "@raw:minus-zero@": b"-0.0",
    "@raw:surrogate@": b'"\\ud800"',
    "@raw:surrogates-swapped@": b'"\\udc00\\ud800 x"',
    "@raw:overlong@": b'"\xc0\xaf"',
    "@raw:twice@": b'{"role": "user", "role": 5}',
}
"""What no JSON library writes, by the texts that stand for it."""

SQL = [
    "'; DROP TABLE panels; --",
    "' OR '1'='1",
    '") UNION SELECT digest FROM bench_keys --',
    "%' ESCAPE '",
    "\\'; DELETE FROM verdicts; --",
    "Robert'); DROP TABLE calls;--",
]
PATHS = ["../../etc/passwd", "..%2f..%2fetc%2fpasswd", "file:///etc/passwd", "\\\\host\\share", "C:\\nul", "/proc/self"]
IMITATIONS = [
    "p20260301-120005-abcdefghijklmnop.member1",
    "p20260301-120005-abcdefghijklmnop.member1, useful",
    "# Panel p20260301-120005-abcdefghijklmnop\n\n## .member1 ok-a ok\n\n`p20260301-120005-abcdefghijklmnop.member1`",
    "**Verdict owed**: POST /bench/verdict",
    "k20261130-042344-plxokog6vgqi3g44",
    "data: [DONE]\n\n",
    "\r\n\r\nHTTP/1.1 200 OK\r\n\r\n",
    "event: message_stop\ndata: {}\n\n",
    "<script>alert(1)</script>",
    "${jndi:ldap://x}",
    "%s%n%d{0}{__class__}",
    "os.environ/HOME",
    "{{7*7}}",
]
TEXTS = ["", " ", "\0", "a\0b", "\x1b[31m", "\ufeff", "\u2028\u2029\u0085", "\u202e", "💥" * 50, "x" * 20_000, "null"]
SURROGATES = ["@raw:surrogate@", "@raw:surrogates-swapped@"]
NUMBERS = [0, -1, 1, 2**31, 2**53 + 1, 2**63, 2**64, -(2**63) - 1, 10**40, 1e308, 1e-308, 0.1]
WORDS = [*SQL, *PATHS, *IMITATIONS, *TEXTS]
NAMES = ["__proto__", "$ref", "type", "role", "content", "model", "bench", "with", "stream", "id", "", "\0", *SQL[:2]]

LEAVES = st.one_of(
    st.none(), st.booleans(), st.sampled_from(NUMBERS), st.sampled_from(WORDS), st.sampled_from([*RAW]), st.text()
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=3),
    max_leaves=5,
)

CHANGES = (
    "like",
    "like",
    "like",
    "like",
    "like",
    "leaf",
    "value",
    "drop",
    "add",
    "add",
    "wrap",
    "unwrap",
    "many",
    "swap",
)
"""`like` keeps to the type, and so gets furthest."""


def _spots(node: Json) -> Iterator[tuple[Any, Any]]:
    """Each place of a document, as what holds it and its key there."""
    inner = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, value in list(inner):
        yield node, key
        yield from _spots(value)


@st.composite
def changed(draw: Draw, document: Json, words: Sequence[str], dice: Random) -> Json:
    """The document with up to three of its places made wrong, however deep they stand."""
    document = copy.deepcopy(document)
    for _ in range(dice.choice([0, 1, 1, 1, 2, 3])):
        spots = list(_spots(document))
        if not spots:
            return draw(VALUES)
        holder, key = dice.choice(spots)
        value = holder[key]
        match dice.choice(CHANGES):
            case "like":
                holder[key] = _like(value, words, dice)
            case "value":
                holder[key] = draw(VALUES)
            case "leaf":
                holder[key] = dice.choice([*words, *WORDS, *RAW, *NUMBERS])
            case "drop":
                del holder[key]
            case "add" if isinstance(holder, dict):
                holder[dice.choice(NAMES)] = draw(VALUES)
            case "wrap":
                holder[key] = [value]
            case "unwrap":
                holder[key] = next(iter(value), None) if isinstance(value, list | dict) else str(value)
            case "many":
                holder[key] = [copy.deepcopy(value) for _ in range(dice.choice([2, 50]))]
            case _:
                other, there = dice.choice(spots)
                # By value: swapped by reference, an object could come to hold itself.
                holder[key] = copy.deepcopy(other[there]) if there in _keys(other) else None
    return document


def _like(value: Json, words: Sequence[str], dice: Random) -> Json:
    """Another value of the same type."""
    match value:
        case bool():
            return not value
        case str():
            return dice.choice([*words, *WORDS, *SURROGATES])
        case int() | float():
            return dice.choice(NUMBERS)
        case list():
            return dice.sample(value, len(value)) * dice.choice([1, 2, 40])
        case dict():
            return dict(dice.sample(list(value.items()), len(value)))
        case _:
            return value


def _keys(holder: Json) -> Any:
    return holder.keys() if isinstance(holder, dict) else range(len(holder))


def written(document: Json) -> bytes:
    """As JSON, with the raw values in the place of the texts that stand for them."""
    data = json.dumps(document).encode()
    for name, raw in RAW.items():
        data = data.replace(json.dumps(name).encode(), raw)
    return data


BOMB = gzip.compress(b'{"model": "bench/pair", "pad": "' + b"x" * 30_000_000, 9)
"""30 kB that would be 30 MB."""


@st.composite
def spoiled(draw: Draw, data: bytes, dice: Random) -> tuple[bytes, list[tuple[bytes, bytes]]]:
    """What is sent for these bytes, most often they themselves, and the headers that say what they are."""
    kind = [(b"Content-Type", b"application/json")]
    match dice.randrange(30):
        case 0:
            return data[: dice.randint(0, len(data))], kind
        case 1:
            at = dice.randint(0, len(data))
            return data[:at] + draw(st.binary(min_size=1, max_size=5)) + data[at:], kind
        case 2:
            return BOMB, [*kind, (b"Content-Encoding", b"gzip")]
        case 3:
            coding = dice.choice([b"gzip", b"br", b"deflate", b"zstd", b"gzip, gzip", b"x"])
            return data, [*kind, (b"Content-Encoding", coding)]
        case 4:
            other = [b"text/plain", b"application/x-www-form-urlencoded", b"multipart/form-data; boundary=x", b"", b";"]
            return data, [(b"Content-Type", dice.choice(other))]
        case 5:
            return draw(st.binary(max_size=50)), kind
        case _:
            return data, kind


# Headers and keys

HEADER_NAMES = [
    *(f"X-Bench-{name}" for name in OPTIONS),
    "X-Bench-Reply", "X-Bench-Conversation", "X-Bench-Panel", "X-Bench-", "X-Bench-\u00e4",
    "X-Claude-Code-Session-Id", "session-id", "X-Session-Id", "anthropic-beta", "anthropic-version",
    "X-LiteLLM-Tags", "Origin", "X-Forwarded-For", "X-Forwarded-Proto", "X-Forwarded-Host", "Accept-Encoding",
    "X-HTTP-Method-Override", "User-Agent", "Cookie", "Range", "If-None-Match", "traceparent",
]  # fmt: skip
HEADER_VALUES = [
    "", "all", "route", "merged", "choices", "1", "-1", "1e999", "NaN", "true", "ok-c", "ok-c,ok-c", "[]", '["ok-c"]',
    "{" * 200, "\u00ff\u00fe", "=?utf-8?q?x?=", "%00", "http://evil.example", "null", "x" * 5000,
    *SQL, *PATHS, *(text for text in IMITATIONS if text.isprintable()),
]  # fmt: skip


def _headers(dice: Random) -> list[tuple[bytes, bytes]]:
    names = dice.choices(HEADER_NAMES, k=dice.choice([0, 0, 0, 1, 2, 5]))
    found = [(name.encode("latin-1"), dice.choice(HEADER_VALUES).encode("latin-1", "replace")) for name in names]
    return found * dice.choice([1, 1, 1, 2])


def _key(target: Target, dice: Random) -> list[tuple[bytes, bytes]]:
    """Mostly a good key; now and then none, or what is none."""
    given = dice.choice(target.keys)
    if not dice.randrange(15):
        given = dice.choice(["", "x", "bpk_", f"bpk_{'A' * 43}", "Bearer", "\u00ff", *SQL[:2]])
    name = dice.choice([b"Authorization", b"Authorization", b"x-api-key", b"x-goog-api-key"])
    value = given.encode("latin-1")
    return [(name, b"Bearer " + value if name == b"Authorization" else value)]


# Requests


def shape_of(path: str) -> str:
    if path.startswith("/v1/messages"):
        return "anthropic"
    if path.startswith(("/v1beta/", "/v1/models/")):
        return "gemini"
    return "ollama" if path.startswith("/api/") else "openai"


def _model(target: Target, dice: Random) -> str:
    if dice.randrange(8):
        modes = ["", "", ":route", ":route", ":all", ":latest", ":merged", ":choices"]
        return f"bench/{dice.choice(target.collections)}{dice.choice(modes)}"
    odd = ["", "/", "..", "%2e%2e", "\0", "x" * 3000, "*", ":", ":::route", *SQL, *PATHS, *IMITATIONS]
    return dice.choice(["bench/", "bench:", "BENCH/", "bench//", "bench", "bench/../"]) + dice.choice(odd)


def _is_ours(path: str, body: bytes) -> bool:
    """Whether it is certain that the reply is bench-proxy's own."""
    if path.startswith(("/bench/", "/api/show")):
        return True
    if (asked := place(path)) is None:
        return False
    if asked.model is not None:
        return True
    try:
        read = orjson.loads(body)
    except orjson.JSONDecodeError:
        return False
    return isinstance(read, dict) and is_bench_model(read.get("model"))


@st.composite
def _asking(draw: Draw, target: Target, dice: Random) -> Shot:
    path = dice.choice([*ASKING])
    document = draw(changed(dice.choice(ASKING[path]), target.said, dice))
    if isinstance(document, dict):
        document["model"] = _model(target, dice)
        if dice.randrange(2):
            document["stream"] = bool(dice.randrange(2))
        if not dice.randrange(6):
            document["bench"] = draw(changed(OPTIONS, target.said, dice))
    body, kind = draw(spoiled(written(document), dice))
    headers = [*kind, *_key(target, dice), *_headers(dice)]
    return Shot("POST", path, headers, body, shape_of(path) if _is_ours(path, body) else None)


@st.composite
def _gemini(draw: Draw, target: Target, dice: Random) -> Shot:
    name = quote(_model(target, dice), safe=dice.choice(["", "/:", "/:%"]))
    action = dice.choice(["generateContent", "generateContent", "streamGenerateContent", "countTokens", "x"])
    base = dice.choice(["/v1beta/models/", "/v1/models/", "/v1beta/models//", "/v1beta/../v1beta/models/"])
    query = dice.choice(["", "?alt=sse", "?alt=sse&alt=", "?alt=%00", "?key=x&key=", "?%ff=%fe", "?alt[]=sse"])
    path = f"{base}{name}:{action}"
    body, kind = draw(spoiled(written(draw(changed(dice.choice(TO_GEMINI), target.said, dice))), dice))
    headers = [*kind, *_key(target, dice), *_headers(dice)]
    ours = _is_ours(unquote(path), body)
    return Shot("POST", path + query, headers, body, "gemini" if ours else None)


@st.composite
def _own(draw: Draw, target: Target, dice: Random) -> Shot:
    operation = dice.choice(target.operations)
    words = [*target.said, *WORDS, "0", "1", "-1", "200", "9" * 30]
    path = operation.path
    for name in operation.places:
        path = path.replace(f"{{{name}}}", quote(dice.choice(words)[:500] or draw(st.text(max_size=9)), safe=""))
    named = dice.choices([*operation.query, "key", "x"], k=dice.randint(0, 3))
    query = "&".join(f"{name}={quote(dice.choice(words)[:500])}" for name in named)
    body, kind = b"", []
    if operation.bodies:
        body, kind = draw(spoiled(written(draw(changed(dice.choice(operation.bodies), target.said, dice))), dice))
    method = operation.method if dice.randrange(10) else dice.choice(["PUT", "PATCH", "DELETE", "TRACE"])
    if method == "TRACE":  # which has no body: https://www.rfc-editor.org/rfc/rfc9110#name-trace
        body, kind = b"", []
    headers = [*kind, *_key(target, dice), *_headers(dice)]
    return Shot(method, f"{path}?{query}" if query else path, headers, body, "openai")


def _looking(target: Target, dice: Random) -> st.SearchStrategy[Shot]:
    """Lists of models, and Ollama's small routes: LiteLLM's own answers are among them."""
    lists = ["/v1/models", "/models", "/v1beta/models", "/api/tags", "/api/ps", "/api/version", "/api"]
    path = dice.choice(lists)
    if path.endswith("models") and dice.randrange(2):
        path += "/" + quote(_model(target, dice), safe=dice.choice(["", "/:"]))
    query = dice.choice(["", "?limit=-1", "?pageSize=9999999999&pageToken=%27", "?key=%00", "?only_model_names=x"])
    headers = [*_key(target, dice), *_headers(dice)]
    return st.just(Shot("GET", path + query, headers, b"", "ollama" if path.startswith("/api") else None))


KINDS = (_asking, _asking, _asking, _asking, _gemini, _own, _own, _looking)


@st.composite
def shots(draw: Draw, target: Target) -> Shot:
    """Any request of any kind."""
    dice = draw(DICE)
    shot: Shot = draw(dice.choice(KINDS)(target, dice))
    return shot
