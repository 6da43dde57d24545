"""The jobs in Dask, with a process per core and P2P shuffles, which keep their data on disk."""

import dask
import dask.dataframe as dd
from distributed import Client, LocalCluster

from experiments.engines import delta, task

dask.config.set({"dataframe.shuffle.method": "p2p", "temporary-directory": None})


def clicks() -> None:
    types = {"url": "string[pyarrow]", "visitor": "string[pyarrow]"}
    visits = dd.read_csv(f"{this.input}/*.csv", dtype=types, engine="pyarrow")
    weighed = visits.assign(clicks=1 + (visits.visitor == "User").astype("int64"))
    summed = weighed.groupby("url").clicks.sum(split_out=this.partitions)
    summed.reset_index().to_parquet(this.output, write_index=False)


def zipf() -> None:
    visits = dd.read_parquet(this.input)
    summed = visits.groupby("key").agg({"value": ["sum", "count"]}, split_out=this.partitions)
    summed.columns = ["total", "visits"]
    summed.reset_index().to_parquet(this.output, write_index=False)


def repartition() -> None:
    rows = dd.read_parquet(this.input, dtype_backend="pyarrow")
    rows.shuffle("l_orderkey", npartitions=this.partitions).to_parquet(
        this.output, write_index=False
    )
    delta.commit(this.output)


def sort() -> None:
    rows = dd.read_parquet(this.input, dtype_backend="pyarrow")
    rows.sort_values("l_partkey").to_parquet(this.output, write_index=False)


if __name__ == "__main__":  # its workers import this module
    this = task.given()
    limit = this.memory_bytes // this.threads if this.memory_bytes else "auto"
    with (
        LocalCluster(
            n_workers=this.threads,
            threads_per_worker=1,
            processes=True,
            memory_limit=limit,
            local_directory=this.scratch,
            dashboard_address=None,
        ) as cluster,
        Client(cluster),
    ):
        task.do(this, clicks, zipf, repartition, sort)
