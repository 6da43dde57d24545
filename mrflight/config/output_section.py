"""``[output]``: the table that a job commits."""

from __future__ import annotations

from typing import Literal

import msgspec

from mrflight.config.formats import CATALOG_FORMATS, OutputFormat, ParquetCodec
from mrflight.config.service_uri import shown_section
from mrflight.config.unstored_columns import UnstoredColumns


class OutputSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``[output]``: where the result is committed."""

    table: str
    format: OutputFormat = "delta"
    mode: Literal["error", "append", "overwrite", "merge"] = "error"
    keys: list[str] = []
    """The key columns of a merge."""
    order_by: str | None = None
    """A merge keeps, of several result rows with one key, the one with the greatest value here."""
    delete_when: str | None = None
    """An SQL predicate. A merge deletes the rows of the table whose key is that of a result row for
    which it holds."""
    schema: Literal["fixed", "evolve"] = "fixed"
    """``evolve`` adds new columns of the result to a table that is appended to."""
    partition_by: list[str] = []
    compression: ParquetCodec | None = None
    """The codec of parquet files; by default zstd."""
    catalog: str | None = None
    """The URI of the catalog of an Iceberg or DuckLake table, or a reference to a secret that has
    it."""
    warehouse: str | None = None
    """The warehouse of an Iceberg catalog, if it needs one: a path or a URL."""
    catalog_options: dict[str, str] = {}
    """Further properties of the catalog. Values may be references to secrets."""
    data_path: str | None = None
    """The folder of the files of a new DuckLake."""
    unstored: UnstoredColumns | None = None
    """The columns of change events that a merge does not store. A job file cannot have them."""

    def __repr__(self) -> str:
        return shown_section(self)

    @property
    def in_catalog(self) -> bool:
        """True if ``table`` is the name of a table in a catalog, and not a path."""
        return self.format in CATALOG_FORMATS

    @property
    def paths(self) -> list[str]:
        """The paths that are written, as far as the job file names them."""
        if self.in_catalog:
            return [*filter(None, (self.warehouse, self.data_path))]
        return [self.table]


NO_OUTPUT = OutputSection(table="")
"""Stands for the output of a stage whose rows another stage reads, and of a job whose rows its
caller reads."""
