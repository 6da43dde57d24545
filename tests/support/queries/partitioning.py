"""Key columns to be partitioned, and where each of their rows was placed."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from hypothesis import settings
from hypothesis import strategies as st

from mrflight.shuffle.client.partitioners import Partitioner
from tests.support.suite.examples import some_of

examples = settings(max_examples=some_of(100), derandomize=True)
few_examples = settings(max_examples=some_of(25), derandomize=True)


texts = st.none() | st.text(max_size=3)
floats = st.none() | st.sampled_from([-0.0, 0.0, math.nan, 1.5, -2.0, math.inf, -math.inf])


def batch_of(**columns: pa.Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def placed(partitioner: Partitioner, batch: pa.RecordBatch, partitions: int) -> list[int]:
    """The partition of each row, once all have shown to be partitions."""
    ids = partitioner.ids(batch)
    assert (ids.type, len(ids), ids.null_count) == (pa.int32(), batch.num_rows, 0)
    of_row: list[int] = ids.to_pylist()
    assert all(0 <= partition < partitions for partition in of_row)
    return of_row


def layouts(values: Sequence[str | None]) -> list[pa.Array]:
    """The same strings, or their bytes, in every layout that Arrow has."""
    plain = pa.array(values, pa.string())
    ends = pa.array(np.arange(1, len(values) + 1, dtype=np.int32))
    return [
        plain,
        plain.cast(pa.large_string()),
        plain.cast(pa.string_view()),
        plain.cast(pa.binary()),
        plain.cast(pa.large_binary()),
        plain.cast(pa.binary()).cast(pa.binary_view()),
        plain.dictionary_encode(),
        plain.dictionary_encode("encode"),
        plain.cast(pa.large_string()).dictionary_encode(),
        pa.RunEndEncodedArray.from_arrays(ends, plain),
        pa.concat_arrays([pa.array(["x", None]), plain]).slice(2),
    ]
