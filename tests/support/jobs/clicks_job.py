"""The clicks job: its file, its map, its input in any format, and what is to come out."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet

from tests.support.queries.oracle import grouped

VISITS = pa.table(
    {
        "url": [f"www.s{i % 997:09}.com" if i % 50 else None for i in range(20_000)],
        "visitor": ["User" if i % 3 else "Robot" for i in range(20_000)],
        "ms": [i * 7919 % 100_003 for i in range(20_000)],
    }
)


JOB = """
[job]
name = "clicks"
[inputs.visits]
path = "visits/*"
map = "clicks:weigh"
key = ["url"]
[shuffle]
partitions = 7
[reduce]
group_by = ["url"]
aggregate = { clicks = "sum(weight)", visits = "count(*)", slowest = "max(ms)" }
[output]
table = "out/clicks"
mode = "overwrite"
[cluster]
workers = 2
data_servers = 2
"""


WEIGH = """
import pyarrow as pa
import pyarrow.compute as pc

def weigh(batch):
    weight = pc.if_else(pc.equal(batch["visitor"], "User"), 2, 1).cast(pa.int32())
    return pa.record_batch({"url": batch["url"], "weight": weight, "ms": batch["ms"]})
"""


def write_visits(folder: Path, kind: str) -> None:
    folder.mkdir()
    for part in range(4):
        piece = VISITS.slice(part * 5_000, 5_000)
        path = folder / f"visits-{part}.{kind}"
        if kind == "csv":
            pyarrow.csv.write_csv(piece, path)
        elif kind == "parquet":
            pyarrow.parquet.write_table(piece, path, row_group_size=1_500)
        elif kind == "arrow":
            pyarrow.feather.write_feather(piece, path, compression="uncompressed", chunksize=1_500)
        else:
            path.write_text(pl.from_arrow(piece).write_ndjson())


def as_read(kind: str) -> pa.Table:
    """The visits as a file of this kind gives them: csv knows no null among its strings."""
    if kind != "csv":
        return VISITS
    return VISITS.set_column(0, "url", VISITS["url"].fill_null(""))


def expected_clicks(visits: pa.Table) -> pa.Table:
    weight = [2 if visitor == "User" else 1 for visitor in VISITS["visitor"].to_pylist()]
    table = visits.append_column("weight", pa.array(weight)).append_column(
        "one", pa.array([1] * len(weight))
    )
    return grouped(
        table, ["url"], clicks=("weight", "sum"), visits=("one", "sum"), slowest=("ms", "max")
    )
