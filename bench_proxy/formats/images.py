"""Which images reach a model: those by http(s), and inline ones as base64."""

import re

from bench_proxy.errors import InvalidRequest
from bench_proxy.formats.request import Json

INLINE_IMAGE = re.compile(r"data:image/[a-z0-9.+-]+;base64,", re.IGNORECASE)
BASE64 = re.compile(r"[A-Za-z0-9+/]{2,}[A-Za-z0-9+/=\r\n]*")
LOOKED_AT = 1000
"""Characters of an image that are looked at from either end: all of a large one would take long."""


def check(part: Json) -> None:
    """Raise InvalidRequest for a part of type `image_url` whose image no model can be sent."""
    image = part.get("image_url")
    url = image.get("url") if isinstance(image, dict) else image
    if not isinstance(url, str):
        raise InvalidRequest("an image needs a url: http(s), or base64 as data:image/…", param="messages")
    if not (url[:8].lower().startswith(("https://", "http://")) or _is_inline(url)):
        raise InvalidRequest(f'an image must be http(s) or base64 "data:image/…", not "{url[:20]}…"', param="messages")


def _is_inline(url: str) -> bool:
    head = INLINE_IMAGE.match(url)
    if head is None:
        return False
    data = url[head.end() : head.end() + LOOKED_AT]
    rest = url[max(head.end(), len(url) - LOOKED_AT) :]
    return bool(BASE64.fullmatch(data) and re.fullmatch(r"[A-Za-z0-9+/=\r\n]+", rest))
