"""What methods of the data frames of other libraries are called here."""

from __future__ import annotations

_METHODS = {
    "agg": ("aggregate",),
    "collect": ("compute", "execute", "fetchall", "to_table"),
    "count": ("height", "shape"),
    "distinct": ("drop_duplicates", "dropDuplicates", "unique"),
    "filter": ("where", "query"),
    "group_by": ("groupBy", "groupby"),
    "head": ("fetch", "take"),
    "join": ("merge",),
    "map": ("apply", "mapInArrow", "mapInPandas", "map_batches", "pipe"),
    "rename": ("withColumnRenamed",),
    "schema": ("columns", "dtypes", "printSchema"),
    "select": ("project", "selectExpr"),
    "show": ("display", "print"),
    "sort_by": ("orderBy", "order", "order_by", "sort", "sort_values"),
    "to_arrow": ("arrow", "toArrow"),
    "to_pandas": ("df", "toPandas"),
    "to_polars": ("pl",),
    "union": ("append", "concat", "unionAll", "unionByName", "vstack"),
    "with_columns": ("assign", "withColumn", "withColumns"),
    "write_csv": ("sink_csv", "to_csv"),
    "write_delta": ("write_deltalake", "saveAsTable"),
    "write_parquet": ("save", "sink_parquet", "to_parquet", "write"),
}
"""The names that Polars, pandas, DuckDB and Spark have for the methods of a `Dataset`."""

_HERE = {other: name for name, others in _METHODS.items() for other in others}


def why_no_attribute(name: str) -> str:
    """Return the message about an attribute that a `Dataset` does not have."""
    hint = f"; it is called {_HERE[name]} here" if name in _HERE else ""
    return f"'Dataset' object has no attribute {name!r}{hint}"
