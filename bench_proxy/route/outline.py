"""What is still open in a JSON text that comes in pieces; each piece is looked at once."""

import re

_MARKS = re.compile(r'\\.|["\\{}\[\]]', re.DOTALL)
_CLOSES = {"{": "}", "[": "]"}


class Outline:
    """It follows strings and brackets and nothing else: whether the text is JSON is for a parser to say."""

    def __init__(self) -> None:
        self._closing: list[str] = []
        self._in_string = False
        self._half = ""
        """A backslash at the end of a piece, whose character has not come."""
        self._opened = False

    def read(self, text: str) -> None:
        text, self._half = self._half + text, ""
        for mark in _MARKS.findall(text):
            if mark == '"':
                self._in_string = not self._in_string
            elif self._in_string:
                self._half = mark if mark == "\\" else ""
            elif mark in _CLOSES:
                self._opened = True
                self._closing.append(_CLOSES[mark])
            elif self._closing and mark == self._closing[-1]:
                self._closing.pop()

    @property
    def closed(self) -> bool:
        """Whether something was opened, and nothing is open any more."""
        return self._opened and not self._closing and not self._in_string

    @property
    def rest(self) -> str:
        """What closes all that is open. A backslash that stands for nothing yet becomes one that stands for itself."""
        return self._half + '"' * self._in_string + "".join(reversed(self._closing))
