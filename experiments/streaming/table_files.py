"""Counts the files of a table, for table 6.1: those with rows, and those that describe them."""

from __future__ import annotations

from pathlib import Path

from pyarrow import fs

from experiments.streaming.outcome import Files


def files_of(location: str, storage: dict[str, str]) -> Files:
    """Return the files below a path or URL, with what ``storage`` has for S3."""
    if not location:
        return Files()
    if storage:
        place: fs.FileSystem = fs.S3FileSystem(
            access_key=storage["aws_access_key_id"],
            secret_key=storage["aws_secret_access_key"],
            endpoint_override=storage["aws_endpoint_url"],
            region=storage["aws_region"],
        )
        path = location.removeprefix("s3://")
    else:
        place, path = fs.LocalFileSystem(), location.removeprefix("file:")
        path = str(Path(path))
    found = place.get_file_info(fs.FileSelector(path, recursive=True, allow_not_found=True))
    sizes = [(each.path, each.size) for each in found if each.is_file]
    data = [size for name, size in sizes if _is_data(name)]
    other = [size for name, size in sizes if not _is_data(name)]
    return Files(len(data), sum(data), len(other), sum(other))


def _is_data(name: str) -> bool:
    """Return whether a file has rows: checkpoints of Delta are Parquet files, too."""
    return name.endswith(".parquet") and "/_delta_log/" not in name
