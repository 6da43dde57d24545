"""A partition that is much larger than the others, and small enough for a test."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mrflight.planner.reduce_tasks import ReduceTaskPlan, split_skewed
from mrflight.scheduler import reduce_stage, stage_output

FILES = 4
ROWS = 150_000  # of each file: more than the first look of a map's combiner

ORDER = [("key", "ascending"), ("value", "ascending")]


def watch_slices(
    monkeypatch: pytest.MonkeyPatch, min_bytes: int = 10_000, partition_bytes: int = 600_000
) -> list[ReduceTaskPlan]:
    """Collect the slices that a job plans, and let it slice small partitions as well."""
    found: list[ReduceTaskPlan] = []

    def plan(*arguments: object) -> list[ReduceTaskPlan]:
        planned = partial(split_skewed, min_bytes=min_bytes)(*arguments)  # type: ignore[arg-type]
        found.extend(planned)
        return planned

    monkeypatch.setattr(reduce_stage, "split_skewed", plan)
    monkeypatch.setattr(stage_output, "split_skewed", plan)
    monkeypatch.setattr("mrflight.planner.partition_count.AUTO_PARTITION_BYTES", partition_bytes)
    return found


def write_rows(folder: Path, seed: int) -> pa.Table:
    """Write rows of which a fifth have key 7, too few to be combined, and the others unique keys.

    Values are large, because small ones would be sent in fewer bytes.
    """
    folder.mkdir()
    random = np.random.default_rng(seed)
    tables = []
    for file in range(FILES):
        key = random.permutation(ROWS) + file * ROWS + 8
        key[random.random(ROWS) < 0.2] = 7
        tables.append(pa.table({"key": key, "value": np.arange(ROWS) + file * ROWS + 2**40}))
        pq.write_table(tables[-1], folder / f"{file}.parquet")
    return pa.concat_tables(tables)
