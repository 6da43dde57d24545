"""Rows that the benchmarks share."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

ROWS = 100_000
URLS = 20_000
SEED = 20260101


@pytest.fixture(scope="session")
def clicks() -> pa.RecordBatch:
    """Return 100,000 rows: ``url`` string of 20,000 values, ``weight`` int64, ``day`` date32."""
    random = np.random.default_rng(SEED)
    urls = pa.array([f"https://example.org/page/{number}" for number in range(URLS)])
    days = pa.array(random.integers(19_000, 19_365, ROWS).astype(np.int32))
    return pa.record_batch(
        {
            "url": urls.take(pa.array(random.integers(0, URLS, ROWS))),
            "weight": pa.array(random.integers(0, 1_000, ROWS)),
            "day": days.cast(pa.date32()),
        }
    )
