"""The jobs in Ray Data, with its hash shuffle and with Polars in sorts, as its docs advise."""

import os

import pyarrow as pa
import pyarrow.compute as pc
import ray
from ray.data import DataContext
from ray.data.aggregate import Count, Sum

from experiments.engines import delta, task

_OBJECT_STORE = 0.3
"""The fraction of memory that Ray's object store takes by default."""

this = task.given()
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"  # it would call home
options = {}
if this.memory_bytes:
    store = int(this.memory_bytes * _OBJECT_STORE)
    options = {"object_store_memory": store, "_memory": this.memory_bytes - store}
ray.init(
    num_cpus=this.threads,
    include_dashboard=False,
    log_to_driver=False,
    _temp_dir=this.scratch,
    **options,
)
DataContext.get_current().enable_progress_bars = False
DataContext.get_current().use_polars_sort = True


def weigh(visits: pa.Table) -> pa.Table:
    weight = pc.if_else(pc.equal(visits["visitor"], "User"), 2, 1)
    return pa.table({"url": visits["url"], "weight": weight})


def clicks() -> None:
    weighed = ray.data.read_csv(this.input).map_batches(weigh, batch_format="pyarrow")
    summed = weighed.groupby("url", num_partitions=this.partitions).aggregate(
        Sum("weight", alias_name="clicks")
    )
    summed.write_parquet(this.output)


def zipf() -> None:
    visits = ray.data.read_parquet(this.input).groupby("key", num_partitions=this.partitions)
    summed = visits.aggregate(Sum("value", alias_name="total"), Count(alias_name="visits"))
    summed.write_parquet(this.output)


def repartition() -> None:
    rows = ray.data.read_parquet(this.input)
    rows.repartition(this.partitions, keys=["l_orderkey"]).write_parquet(this.output)
    delta.commit(this.output)


def sort() -> None:
    ray.data.read_parquet(this.input).sort("l_partkey").write_parquet(this.output)


task.do(this, clicks, zipf, repartition, sort)
ray.shutdown()
