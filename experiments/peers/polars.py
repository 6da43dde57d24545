"""The clicks job in Polars, by its streaming engine."""

import os
import sys

source, result, os.environ["POLARS_MAX_THREADS"] = sys.argv[1:]

import polars as pl  # noqa: E402  # reads the number of threads when it is imported

weight = pl.when(pl.col("visitor") == "User").then(2).otherwise(1)
clicks = weight.cast(pl.Int64).sum().alias("clicks")
schema = pl.Schema({"url": pl.String, "visitor": pl.String})
pl.scan_csv(source, schema=schema).group_by("url").agg(clicks).sink_parquet(result)
