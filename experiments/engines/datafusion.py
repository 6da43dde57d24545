"""The jobs in DataFusion."""

import pyarrow as pa
from datafusion import (
    DataFrame,
    DataFrameWriteOptions,
    ParquetWriterOptions,
    RuntimeEnvBuilder,
    SessionConfig,
    SessionContext,
)

from experiments.engines import delta, task

this = task.given()
runtime = RuntimeEnvBuilder().with_temp_file_path(this.scratch)
if this.memory_bytes:
    runtime = runtime.with_fair_spill_pool(this.memory_bytes)
session = SessionContext(SessionConfig().with_target_partitions(this.threads), runtime)


def clicks() -> None:
    schema = pa.schema([("url", pa.string()), ("visitor", pa.string())])
    session.register_csv("visits", this.input, schema=schema)
    weight = "case visitor when 'User' then 2 else 1 end"
    write(session.sql(f"select url, sum({weight}) as clicks from visits group by url"))


def zipf() -> None:
    session.register_parquet("visits", this.input)
    query = "select key, sum(value) as total, count(*) as visits from visits group by key"
    write(session.sql(query))


def repartition() -> None:
    session.register_parquet("lineitem", this.input)
    # Its SQL has no hash of integers, so this is Knuth's multiplicative one without its low bits.
    part = f"(l_orderkey * 2654435761 / 65536) % {this.partitions}"
    rows = session.sql(f"select *, {part} as part from lineitem")
    options = DataFrameWriteOptions(partition_by="part")  # faster than its stream into delta-rs
    rows.write_parquet(this.output, written_as(), write_options=options)
    delta.commit(this.output, partitioned=True)


def sort() -> None:
    session.register_parquet("lineitem", this.input)
    rows = session.sql("select * from lineitem order by l_partkey")
    rows.write_parquet(this.result("sorted.parquet"), written_as())


def write(rows: DataFrame) -> None:
    rows.write_parquet(this.output, written_as())


def written_as() -> ParquetWriterOptions:
    """Return the options for writing. Under a cap row groups are smaller.

    DataFusion holds one row group for each file that it writes.
    """
    options = {"max_row_group_size": 1 << 16} if this.memory_bytes else {}
    return ParquetWriterOptions(compression="snappy", **options)


task.do(this, clicks, zipf, repartition, sort)
