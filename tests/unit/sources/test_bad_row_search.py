"""The search for the rows of a chunk that cannot be read."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mrflight.config.text_options import CsvOptions
from mrflight.sources.bad_row_search import find_bad_rows
from mrflight.sources.chunk import Chunk
from mrflight.sources.csv_decoder import CsvDecoder


@given(
    st.lists(st.booleans(), max_size=600),
    st.sampled_from(["Row #1", "Row #7", "in row 3", "none is named", "Row #999"]),
)
def test_bad_rows_are_found_whatever_is_named(are_bad: list[bool], named: str) -> None:
    rows = {10 * i: b"%d\n" % is_bad for i, is_bad in enumerate(are_bad)}

    def decode(chunk: Chunk) -> None:
        if b"1" in bytes(chunk):
            raise ValueError(named)

    bad = {10 * i: named for i, is_bad in enumerate(are_bad) if is_bad}
    assert find_bad_rows(rows, decode) == bad


@pytest.mark.parametrize("every", [1, 100, 5_000])
def test_a_bad_row_costs_few_reads(every: int) -> None:
    columns, types = ["n", "s"], {"n": pa.int64(), "s": pa.string()}
    decoder = CsvDecoder(columns, columns, types, CsvOptions())
    count = 1_000 if every == 1 else 10_000
    rows = {i: b"1,x\n" if i % every else b"x,1\n" for i in range(count)}
    sizes: list[int] = []

    def decode(chunk: Chunk) -> None:
        sizes.append(chunk.size)
        decoder.decode(chunk)

    bad = find_bad_rows(rows, decode)
    assert list(bad) == list(range(0, count, every))
    assert len(sizes) <= 2 * len(bad) + 2 + count // 512 + 1
    assert sum(sizes) <= 4 * (3 * count + 8192 * min(len(bad), 16) + 512 * len(bad))
