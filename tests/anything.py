"""Any text and any JSON, for tests of what is read and written."""

from hypothesis import strategies as st

SEPARATORS = "a\u2028b\u2029c\u0085d\x0b\x0c\x1c\x1d\x1e\r\n e"
TEXT = st.text(st.characters(codec="utf-8") | st.sampled_from(SEPARATORS + '\N{GRINNING FACE}\\"/[]{},'))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
