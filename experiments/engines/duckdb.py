"""The jobs in DuckDB."""

import duckdb

from experiments.engines import delta, task

this = task.given()
database = duckdb.connect(config={"threads": this.threads, "temp_directory": this.scratch})
database.execute("set preserve_insertion_order = false")
if this.memory_bytes:
    database.execute(f"set memory_limit = '{this.memory_bytes}B'")
parquet = f"read_parquet('{this.input}/*.parquet')"


def clicks() -> None:
    database.execute(
        f"""
        copy (
            select url, sum(case visitor when 'User' then 2 else 1 end)::bigint as clicks
            from read_csv('{this.input}/*.csv', header = true, delim = ',',
                          columns = {{'url': 'varchar', 'visitor': 'varchar'}})
            group by url
        ) to '{this.result("clicks.parquet")}' (format parquet)
        """
    )


def zipf() -> None:
    database.execute(
        f"""
        copy (
            select key, sum(value)::bigint as total, count(*) as visits
            from {parquet} group by key
        ) to '{this.result("zipf.parquet")}' (format parquet)
        """
    )


def repartition() -> None:
    rows = f"select *, (hash(l_orderkey) % {this.partitions})::bigint as part from {parquet}"
    if this.memory_bytes:  # delta-rs would exceed the limit, so DuckDB writes
        copy = f"copy ({rows}) to '{this.output}' (format parquet, partition_by (part))"
        database.execute(copy)
        delta.commit(this.output, partitioned=True)
    else:  # this is faster
        from deltalake import write_deltalake

        reader = database.sql(rows).to_arrow_reader()
        write_deltalake(this.output, reader, partition_by=["part"])


def sort() -> None:
    database.execute(
        f"copy (from {parquet} order by l_partkey) "
        f"to '{this.result('sorted.parquet')}' (format parquet)"
    )


task.do(this, clicks, zipf, repartition, sort)
