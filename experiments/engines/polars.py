"""The jobs in Polars, with its streaming engine.

Its memory budget counts what Polars itself allocates, and makes it spill. The budget is set by
these variables only, which are read when Polars is imported.
"""

import os

from experiments.engines import delta, task

this = task.given()
os.environ["POLARS_MAX_THREADS"] = str(this.threads)
os.environ["POLARS_OOC_SPILL_DIR"] = this.scratch
if this.memory_bytes:
    os.environ["POLARS_OOC_MEMORY_BUDGET_MB"] = str(this.memory_bytes // 1_000_000)

import polars as pl  # noqa: E402


def clicks() -> None:
    weight = pl.when(pl.col("visitor") == "User").then(2).otherwise(1)
    schema = pl.Schema({"url": pl.String, "visitor": pl.String})
    visits = pl.scan_csv(f"{this.input}/*.csv", schema=schema)
    summed = visits.group_by("url").agg(weight.cast(pl.Int64).sum().alias("clicks"))
    sink(summed, "clicks.parquet")


def zipf() -> None:
    visits = parquet().group_by("key")
    sink(visits.agg(pl.col("value").sum().alias("total"), pl.len().alias("visits")), "zipf.parquet")


def repartition() -> None:
    part = (pl.col("l_orderkey").hash() % this.partitions).cast(pl.Int64).alias("part")
    parts = pl.PartitionBy(this.output, key="part", include_key=False)
    parquet().with_columns(part).sink_parquet(  # faster here than sink_delta
        parts,
        compression="snappy",
        row_group_size=1 << 16 if this.memory_bytes else None,  # it holds one for each file
        maintain_order=False,
        mkdir=True,
        engine="streaming",
    )
    delta.commit(this.output, partitioned=True)


def sort() -> None:
    sink(parquet().sort("l_partkey"), "sorted.parquet", maintain_order=True)


def parquet() -> pl.LazyFrame:
    return pl.scan_parquet(f"{this.input}/*.parquet")


def sink(frame: pl.LazyFrame, name: str, maintain_order: bool = False) -> None:
    frame.sink_parquet(
        this.result(name), compression="snappy", maintain_order=maintain_order, engine="streaming"
    )


task.do(this, clicks, zipf, repartition, sort)
