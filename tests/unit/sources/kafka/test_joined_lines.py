"""Tests of the lines that the values of messages become."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mrflight.sources.kafka.formats import joined_lines
from mrflight.sources.kafka.formats.joined_lines import joined_lines as join


@pytest.mark.parametrize("kernel", ["rust", "python"])
@given(
    values=st.lists(st.binary(max_size=20) | st.sampled_from([b"a\nb", b"\r\n", b""])),
    skipped=st.integers(0, 3),
)
def test_each_value_is_a_line(kernel: str, values: list[bytes], skipped: int) -> None:
    if kernel == "rust":
        pytest.importorskip("mrflight._kernel")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(joined_lines, "kernel_language", lambda: kernel)
        chunk = join(pa.array(values, pa.binary()).slice(skipped))
    expected = [each.replace(b"\n", b" ").replace(b"\r", b" ") + b"\n" for each in values]
    assert bytes(chunk) == b"".join(expected[skipped:])
