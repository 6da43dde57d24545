"""Tests of samples: whole parts of the input, spread evenly, and every row at most once."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mrflight.config.input_spec import InputSpec
from mrflight.errors import JobFileError
from mrflight.sources import open_source
from mrflight.sources.arrow_source import ArrowReader
from mrflight.sources.base import Source
from mrflight.sources.sampling import take_sample
from mrflight.sources.text_source import split_bytes_evenly
from mrflight.storage import locate
from mrflight.storage.store import FileVersion
from tests.support.suite.messages import refused

MIB = 1 << 20


def source_of(sizes: list[int]) -> Source:
    """Return the source of files with these sizes."""
    paths = {f"{number:05}.csv": size for number, size in enumerate(sizes)}
    splits = [
        split
        for path, size in paths.items()
        for split in split_bytes_evenly(path, FileVersion(size), 64 * MIB)
    ]
    reader = ArrowReader(pa.schema([]), root=locate("/", Path("/"), {}))
    return Source("a", reader, tuple(paths), sum(sizes), tuple(splits))


sizes = st.lists(st.integers(0, 300 * MIB), min_size=1, max_size=20)


@given(sizes, st.floats(0.001, 1))
def test_a_sample_has_its_fraction_of_every_stretch_of_the_input(
    sizes: list[int], fraction: float
) -> None:
    source = source_of(sizes)
    sample = take_sample(source, fraction)
    assert sample.sampled_from_bytes == sum(sizes)
    assert sample.size_bytes == sum(split.size_bytes for split in sample.splits)
    assert list(sample.files) == sorted({split.path for split in sample.splits})
    taken = [(split.path, split.start, split.stop) for split in sample.splits]
    assert taken == sorted(taken)
    seen = sampled = 0
    for path, size in zip(source.files, sizes, strict=True):
        bounds = [(start, stop) for at, start, stop in taken if at == path]
        assert all(0 <= start < stop <= size or size == 0 for start, stop in bounds)
        assert all(a[1] < b[0] for a, b in pairwise(bounds))
        seen, sampled = seen + size, sampled + sum(stop - start for start, stop in bounds)
        assert abs(sampled - fraction * seen) <= 8 * MIB


@pytest.mark.parametrize("format", ["csv", "parquet"])
def test_the_rows_of_a_sample_come_once_and_from_all_over_the_input(
    format: str, tmp_path: Path
) -> None:
    rows = pa.table({"n": range(200_000), "text": [f"row {n}" for n in range(200_000)]})
    if format == "csv":
        pacsv.write_csv(rows, tmp_path / "a.csv")
    else:
        pq.write_table(rows, tmp_path / "a.parquet", row_group_size=5_000)
    spec = InputSpec(path=f"a.{format}", sample=0.25)
    source = open_source("a", spec, tmp_path, {}, 64 * MIB)
    read = [n for split in source.splits for b in source.reader.read(split) for n in b["n"]]
    numbers = [n.as_py() for n in read]
    assert numbers == sorted(set(numbers))
    quarters = [sum(n // 50_000 == quarter for n in numbers) for quarter in range(4)]
    assert all(7_500 < each < 17_500 for each in quarters)


@pytest.mark.parametrize("fraction", [0.0, -1.0, 1.5, float("nan")])
def test_a_fraction_must_be_one(fraction: float, tmp_path: Path) -> None:
    with refused(JobFileError, "inputs.a.sample"):
        open_source("a", InputSpec(path="a.csv", sample=fraction), tmp_path, {}, MIB)
