"""Outputs: part files at their final names, then one commit, and files that jobs left behind.

Which rows are written is decided in `tasks`, and the stores are in `storage`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from mrflight.config.formats import CATALOG_FORMATS
from mrflight.config.output_section import OutputSection
from mrflight.config.service_uri import shown_uri
from mrflight.errors import OutputError
from mrflight.sinks.commit.base import Sink
from mrflight.storage import locate

TABLE_FORMATS = ("delta", *CATALOG_FORMATS)
"""The formats of tables with a schema of their own, which columns can be added to."""
PARQUET_FORMATS = (*TABLE_FORMATS, "parquet")
"""The formats whose part files are Parquet."""


def open_sink(
    spec: OutputSection,
    base: Path,
    options: Mapping[str, str],
    job_id: str,
    app_id: str | None,
) -> Sink:
    """Return the sink of ``[output]``, whose relative paths start from ``base``.

    ``app_id`` stands for the job's ``run_id``, under which one commit counts. This looks at the
    output and raises OutputError for what cannot work, before anything is written.
    """
    _check(spec)
    if spec.format == "iceberg":
        from mrflight.sinks.iceberg.sink import IcebergSink

        return IcebergSink(spec, base, options, job_id, app_id)
    if spec.format == "ducklake":
        from mrflight.sinks.ducklake.sink import DuckLakeSink

        return DuckLakeSink(spec, base, options, job_id, app_id)
    location = locate(spec.table, base, options)
    if spec.mode == "merge":
        from mrflight.sinks.delta.merge_sink import MergeSink

        return MergeSink(location, spec, job_id, app_id)
    if spec.format == "delta":
        from mrflight.sinks.delta.sink import DeltaSink

        return DeltaSink(location, spec, job_id, app_id)
    from mrflight.sinks.folder.sink import FolderSink

    return FolderSink(location, spec, job_id, app_id)


def output_url(spec: OutputSection, base: Path, options: Mapping[str, str]) -> str:
    """Return the URL of the output for messages, without secrets."""
    if not spec.in_catalog:
        return locate(spec.table, base, options).url
    return f"{spec.table} in {shown_uri(spec.catalog)}"


def _check(spec: OutputSection) -> None:
    """Raise OutputError for keys of ``[output]`` that do not go together."""
    for column in spec.partition_by:
        if spec.partition_by.count(column) > 1:
            raise OutputError(
                f"output.partition_by must not name {column!r} more than once; remove one"
            )
    if spec.compression is not None and spec.format not in PARQUET_FORMATS:
        raise OutputError(
            f"output.compression: {spec.format} files are not compressed; leave it out, or use "
            "delta, iceberg, ducklake or parquet"
        )
    _check_catalog(spec)
    _check_evolution(spec)


_CATALOG_KEYS = {
    "catalog": CATALOG_FORMATS,
    "warehouse": ("iceberg",),
    "catalog_options": ("iceberg",),
    "data_path": ("ducklake",),
}
"""The keys of ``[output]`` that are for tables in a catalog, and for which formats."""


def _check_catalog(spec: OutputSection) -> None:
    if spec.in_catalog and spec.mode == "merge":
        raise OutputError(
            f"output.mode: merge is for Delta tables, and the format is {spec.format}; use append "
            "or overwrite"
        )
    for key, formats in _CATALOG_KEYS.items():
        if getattr(spec, key) and spec.format not in formats:
            raise OutputError(
                f"output.{key} is for tables in a catalog, and the format is {spec.format}; leave "
                f"it out, or set output.format to {' or '.join(map(repr, formats))}"
            )
    if spec.format == "ducklake" and not spec.catalog:
        raise OutputError(
            "output.catalog is missing; a DuckLake table is in a catalog: write catalog = "
            '"duckdb:///lake.db", or the URL of another one'
        )


def _check_evolution(spec: OutputSection) -> None:
    if spec.schema == "fixed" or (spec.format in TABLE_FORMATS and spec.mode == "append"):
        return
    if spec.format not in TABLE_FORMATS:
        reason = f"a folder of {spec.format} files has no schema that columns are added to"
    elif spec.mode == "overwrite":
        reason = "overwrite takes the schema of the result anyway"
    else:
        reason = f"the mode is {spec.mode}"
    raise OutputError(
        "output.schema: evolve is for mode append on Delta, Iceberg and DuckLake tables, and "
        f"{reason}; leave it out"
    )
