"""Write the tables of TPC-DS as Parquet files, and its 99 queries, by DuckDB's generator.

    python generate.py SCALE FOLDER

It needs the packages of ``generator.txt`` only.
"""

import sys
from importlib.util import find_spec
from pathlib import Path

import duckdb

scale, folder = float(sys.argv[1]), Path(sys.argv[2])
package = find_spec("duckdb_extension_tpcds")
if package is None or package.origin is None:
    sys.exit("DuckDB's extension tpcds makes the tables: pip install -r generator.txt")
(extension,) = Path(package.origin).parent.rglob("tpcds.duckdb_extension")
with duckdb.connect() as database:
    database.execute(f"load '{extension}'")
    database.execute(f"call dsdgen(sf={scale})")
    for (table,) in database.execute("show tables").fetchall():
        database.execute(f"copy {table} to '{folder}/{table}.parquet'")
    (folder / "queries").mkdir()
    for number, text in database.execute("from tpcds_queries()").fetchall():
        (folder / "queries" / f"q{number}.sql").write_text(text)
