"""The systems: the thesis's four, stock deltalake, and mrflight's ways."""

from __future__ import annotations

from dataclasses import dataclass

DISK, S3 = "disk", "s3"


@dataclass(frozen=True)
class System:
    """A system under test."""

    name: str
    title: str
    format: str
    """Of its table: delta, iceberg or ducklake; or log."""
    answered: str
    """What has happened when a write has ended."""
    published: str = ""
    """What the thesis calls it."""
    storages: tuple[str, ...] = (DISK, S3)
    is_stream: bool = False
    """True for ``mrflight ingest``, which reads the topic itself."""


SYSTEMS = {
    system.name: system
    for system in (
        System(
            "ducklake",
            "DuckLake",
            "ducklake",
            "a Parquet file is written, not synced, and the catalog in PostgreSQL has committed it",
            "DuckLake",
        ),
        System(
            "ducklake-inlined",
            "DuckLake, inlined",
            "ducklake",
            "the rows are in PostgreSQL, synced",
            "DuckLake + Inlining",
        ),
        System(
            "iceberg-pyiceberg",
            "Iceberg (PyIceberg)",
            "iceberg",
            "a Parquet file and metadata are written, not synced, and the catalog has committed",
            "Iceberg (PyIceberg)",
        ),
        System(
            "iceberg-duckdb",
            "Iceberg (DuckDB)",
            "iceberg",
            "as with PyIceberg",
            "Iceberg (DuckDB)",
            (DISK,),
        ),
        System(
            "delta",
            "Delta (deltalake)",
            "delta",
            "a Parquet file and an entry of the log are written, not synced",
        ),
        System(
            "mrflight-log",
            "mrflight, log",
            "log",
            "the rows are on the disk of a data server, synced; they can be read",
        ),
        System(
            "mrflight-appender",
            "mrflight, log, 64 in flight",
            "log",
            "as with the log; up to 63 later writes are begun meanwhile",
        ),
        System(
            "mrflight-delta",
            "mrflight, Delta",
            "delta",
            "rows and offsets are committed; the Parquet file and the entry of the log are synced",
            is_stream=True,
        ),
        System(
            "mrflight-iceberg",
            "mrflight, Iceberg",
            "iceberg",
            "the catalog has committed both; the Parquet file is synced, the metadata is not",
            is_stream=True,
        ),
        System(
            "mrflight-ducklake",
            "mrflight, DuckLake",
            "ducklake",
            "the catalog in PostgreSQL has committed both; the Parquet file is synced",
            is_stream=True,
        ),
    )
}


def chosen(names: str, storage: str) -> list[System]:
    """Return the systems of a list with commas that can write there; ValueError for others."""
    wanted = names.split(",") if names else list(SYSTEMS)
    if unknown := set(wanted) - SYSTEMS.keys():
        raise ValueError(f"unknown systems: {sorted(unknown)}; there are {', '.join(SYSTEMS)}")
    return [SYSTEMS[name] for name in wanted if storage in SYSTEMS[name].storages]
