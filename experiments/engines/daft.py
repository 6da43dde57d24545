"""The jobs in Daft, with its native runner. Daft reads its memory limit when it is imported."""

import os

from experiments.engines import task

this = task.given()
os.environ["DAFT_PROGRESS_BAR"] = "0"
os.environ["DO_NOT_TRACK"] = "1"  # otherwise it sends telemetry before it works
if this.memory_bytes:
    os.environ["DAFT_MEMORY_LIMIT"] = str(this.memory_bytes)

import daft  # noqa: E402
from daft import col  # noqa: E402

daft.set_runner_native(num_threads=this.threads)


def clicks() -> None:
    visits = daft.read_csv(
        f"{this.input}/*.csv",
        infer_schema=False,
        schema={"url": daft.DataType.string(), "visitor": daft.DataType.string()},
    )
    weight = (col("visitor") == "User").cast(daft.DataType.int64()) + 1
    weighed = visits.select("url", weight.alias("weight"))
    summed = weighed.groupby("url").agg(col("weight").sum().alias("clicks"))
    summed.write_parquet(this.output)


def zipf() -> None:
    total, visits = col("value").sum().alias("total"), col("value").count().alias("visits")
    daft.read_parquet(f"{this.input}/*.parquet").groupby("key").agg(total, visits).write_parquet(
        this.output
    )


def repartition() -> None:
    rows = daft.read_parquet(f"{this.input}/*.parquet")
    part = (col("l_orderkey").hash() % this.partitions).cast(daft.DataType.int64())
    rows.with_column("part", part).write_deltalake(this.output, partition_cols=["part"])


def sort() -> None:
    daft.read_parquet(f"{this.input}/*.parquet").sort("l_partkey").write_parquet(this.output)


task.do(this, clicks, zipf, repartition, sort)
