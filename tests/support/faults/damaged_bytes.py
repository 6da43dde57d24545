"""Bytes that were something valid, for Hypothesis."""

from __future__ import annotations

from hypothesis import strategies as st


@st.composite
def damaged(draw: st.DrawFn, whole: st.SearchStrategy[bytes]) -> bytes:
    """Bytes of something valid, a few of them changed, lost or doubled."""
    data = bytearray(draw(whole))
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(data)))
        cut = draw(st.integers(0, 3))
        data[at : at + cut] = draw(
            st.binary(max_size=3) | st.sampled_from([b"/", b"9", b'"', b"{"])
        )
    return bytes(data)
