"""The format and the compression of a file, by its suffix."""

from __future__ import annotations

import posixpath

from mrflight.config.spec import InputFormat

_FORMATS: dict[str, InputFormat] = {
    ".csv": "csv",
    ".tsv": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".arrow": "arrow",
    ".arrows": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
}
_COMPRESSIONS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}


def format_of(path: str) -> InputFormat | None:
    """Return the format that the suffix stands for; None if it is of no known format."""
    stem, suffix = posixpath.splitext(path.lower())
    if suffix not in _COMPRESSIONS:
        return _FORMATS.get(suffix)
    inner = _FORMATS.get(posixpath.splitext(stem)[1])
    return inner if inner in ("csv", "json") else None


def compression_of(path: str) -> str | None:
    """Return pyarrow's name for the codec of a text file; None for plain text."""
    return _COMPRESSIONS.get(posixpath.splitext(path.lower())[1])


def is_tab_separated(path: str) -> bool:
    """Return whether the suffix is .tsv, compressed or not."""
    stem, suffix = posixpath.splitext(path.lower())
    return (posixpath.splitext(stem)[1] if suffix in _COMPRESSIONS else suffix) == ".tsv"
