"""Make a Delta table of Parquet files that an engine wrote, in their folder."""

from __future__ import annotations


def commit(folder: str, partitioned: bool = False) -> None:
    """Commit the files below ``folder``; ``partitioned`` if they are in folders ``part=NUMBER``."""
    from deltalake import Field, Schema, convert_to_deltalake

    if partitioned:
        column = Schema([Field("part", "long")])
        convert_to_deltalake(folder, partition_by=column, partition_strategy="hive")
    else:
        convert_to_deltalake(folder)
