"""What is measured: which system writes how many events at a time, where, and for how long."""

from __future__ import annotations

import msgspec


class Place(msgspec.Struct, frozen=True):
    """Where the tables of one run lie, and the servers that know them."""

    folder: str
    """A folder on disk that only this run has: the job file, journals and logs."""
    files: str
    """Where the files of tables lie: a folder, or a URL of S3."""
    storage: dict[str, str] = {}
    """The credentials of S3, by the keys of the object_store crate."""
    postgres: str = ""
    """The URI of an empty database, for the catalog of DuckLake and, on S3, of Iceberg."""
    rest: str = ""
    """The address of Iceberg's REST catalog; empty on S3, whose files it cannot write."""
    metadata: str = ""
    """The address of mrflight's metadata server."""
    namespace: str = "main"
    """The namespace of the tables of Iceberg, which only this run has."""


class RunSpec(msgspec.Struct, frozen=True):
    """One run of one system."""

    system: str
    batch: int
    """So many events are written at a time."""
    seconds: float
    events: int
    """The events of the topic, at which a run ends earlier."""
    brokers: str
    topic: str
    place: Place


TABLE = "trips"
WARM_WRITES = 3
"""The writes before the clock starts: they create files, connections and plans."""
