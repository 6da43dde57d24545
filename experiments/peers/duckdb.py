"""The clicks job in DuckDB."""

import sys

import duckdb

source, result, threads = sys.argv[1:]
database = duckdb.connect()
database.execute(f"set threads = {int(threads)}")
database.execute("set preserve_insertion_order = false")
database.execute(
    f"""
    copy (
        select url, sum(case visitor when 'User' then 2 else 1 end)::bigint as clicks
        from read_csv('{source}', header = true, delim = ',',
                      columns = {{'url': 'varchar', 'visitor': 'varchar'}})
        group by url
    ) to '{result}' (format parquet)
    """
)
