"""NumPy values become Arrow arrays, without the modules that `pa.array` would import."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest

from mrflight.compute.arrays import to_arrow, to_numpy

LOADED = """
import sys
import pyarrow as pa
from mrflight.system.lazy_pandas import lazy_pandas
from mrflight.compute.sorting import is_new, sort_indices
from mrflight.config.sort_key import ascending
from mrflight.compute.singleton_groups import split_singleton_groups

lazy_pandas()
rows = pa.table({"k": ["b", "c", "a", "b"], "n": [4, 3, 2, 1]})
print(sort_indices(rows, ascending(["k", "n"])).to_pylist())
print(is_new(rows.select(["k"])).to_pylist())
print([len(part) for part in split_singleton_groups(rows, ["k"])])
print([name for name in ("numpy.ma", "pandas") if name in sys.modules])
"""


@pytest.mark.parametrize("kind", ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "?"])
@pytest.mark.parametrize("count", [0, 1, 8, 13])
def test_values_and_types_match_pyarrow(kind: str, count: int) -> None:
    values = (np.arange(count) % 3).astype(kind)
    made = to_arrow(values)
    made.validate(full=True)
    assert made.equals(pa.array(values))
    assert to_arrow(values[1:]).equals(pa.array(values[1:]))


def test_a_slice_of_an_array_becomes_numpy_values() -> None:
    assert to_numpy(pa.array([5, 6, 7, 8], pa.int32())[1:3]).tolist() == [6, 7]


def test_sorting_and_grouping_load_neither_pandas_nor_masked_arrays() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOADED], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == ["[2, 3, 0, 1]", "[True, True, True, True]", "[2, 2]", "[]"]
