"""Text that models' servers send in pieces, with its characters whole: half a surrogate pair has no UTF-8 (pure)."""

import re

SURROGATE = re.compile("[\ud800-\udfff]")


def whole(text: str) -> str:
    """The text with its pairs joined, and the sign for a character that is none in the place of a lone half."""
    if text.isascii() or not SURROGATE.search(text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


class Characters:
    """Joins what was cut between two pieces."""

    def __init__(self) -> None:
        self._half = ""

    def take(self, text: str) -> str:
        """What is whole of this piece and what waited before it; a first half at its end waits for the second."""
        if not self._half and text.isascii():
            return text
        text = self._half + text
        self._half = text[-1:] if "\ud800" <= text[-1:] <= "\udbff" else ""
        return whole(text.removesuffix(self._half))

    def rest(self) -> str:
        """What still waits at the end: half a character, which becomes the sign for one that is none."""
        text, self._half = whole(self._half), ""
        return text
