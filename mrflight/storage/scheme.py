"""The scheme of a path, which says what store it is of."""

from __future__ import annotations

from urllib.parse import urlsplit

BUCKETS = frozenset({"s3", "s3a"})
NAME_NODES = frozenset({"hdfs", "hopsfs"})


def scheme_of(path: str) -> str:
    """As `mrflight.storage.locate` has it, of ``HDFS://`` as well; empty where there is none."""
    return urlsplit(path[: path.find(":") + 1]).scheme
