"""A job of three stages: sums by key and group, the greatest of each group, and these in order."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

FILES, ROWS = 4, 20_000  # of each file
KEYS, GROUPS = 500, 40

JOB = """
[job]
name = "stages"
[stages.sums.inputs.rows]
path = "in/*.parquet"
key = ["key"]
[stages.sums.shuffle]
partitions = 12
[stages.sums.reduce]
group_by = ["key", "group"]
aggregate = { total = "sum(value)" }
[inputs.sums]
stage = "sums"
[shuffle]
partitions = 5
replicas = REPLICAS
[reduce]
group_by = ["group"]
aggregate = { greatest = "max(total)", keys = "count(*)" }
sort_by = ["greatest desc", "group"]
[cluster]
workers = 2
data_servers = 3
[output]
table = "out"
format = "parquet"
"""


JOIN_JOB = """
[job]
name = "joins"
[stages.sums.inputs.rows]
path = "in/*.parquet"
key = ["key"]
[stages.sums.shuffle]
partitions = 12
[stages.sums.reduce]
group_by = ["key"]
aggregate = { total = "sum(value)" }
[inputs.sums]
stage = "sums"
key = ["key"]
[inputs.rows]
path = "in/*.parquet"
key = ["key"]
[shuffle]
partitions = 8
replicas = REPLICAS
[reduce]
join = "inner"
[cluster]
workers = 2
data_servers = 3
[output]
table = "out"
format = "parquet"
"""


def joined(rows: pa.Table) -> pa.Table:
    """Return the result of `JOIN_JOB`, sorted by all columns."""
    sums = rows.group_by("key").aggregate([("value", "sum")])
    found = sums.rename_columns(["key", "total"]).join(rows, "key", join_type="inner")
    return found.sort_by([(name, "ascending") for name in found.column_names])


def write_rows(folder: Path, seed: int) -> pa.Table:
    """Write and return the job's input; keys and groups are random."""
    folder.mkdir()
    random = np.random.default_rng(seed)
    tables = []
    for file in range(FILES):
        columns = {
            "key": random.integers(0, KEYS, ROWS),
            "group": random.integers(0, GROUPS, ROWS),
            "value": random.integers(-50, 50, ROWS),
        }
        tables.append(pa.table(columns))
        pq.write_table(tables[-1], folder / f"{file}.parquet")
    return pa.concat_tables(tables)


def expected(rows: pa.Table) -> pa.Table:
    """Return the result that the job should have."""
    sums = rows.group_by(["key", "group"]).aggregate([("value", "sum")])
    found = sums.group_by("group").aggregate([("value_sum", "max"), ("value_sum", "count")])
    named = found.select(["group", "value_sum_max", "value_sum_count"])
    result = named.rename_columns(["group", "greatest", "keys"])
    return result.sort_by([("greatest", "descending"), ("group", "ascending")])


def result_of(folder: Path) -> pa.Table:
    """Return the rows that the job wrote, in the order of the part files."""
    paths = sorted((folder / "out").glob("part-*.parquet"))
    return pa.concat_tables([pq.read_table(path) for path in paths])
