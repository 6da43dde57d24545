"""Reads the places of events in the table of a stream, batch by batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pyarrow as pa

from mrflight.sources import open_source
from mrflight.streams.stream_table import StreamTable

PLACE = ("_topic", "_partition", "_offset")
"""The columns that say which event a row is."""

_DEAD_LETTER_PLACE = ("topic", "partition", "offset")
_SPLIT_BYTES = 32 << 20


class TableOffsets:
    """The places of the events that one version of a table has."""

    def __init__(
        self,
        table: StreamTable,
        base: Path,
        storage: Mapping[str, str],
        *,
        is_dead_letters: bool = False,
    ) -> None:
        """``is_dead_letters``: the table is that of events that could not be decoded.

        The relative paths of its catalog start from ``base``.
        """
        self._columns = _DEAD_LETTER_PLACE if is_dead_letters else PLACE
        self._spec = table.input_spec(list(self._columns))
        self._base = base
        self._storage = storage

    def read(self) -> Iterator[pa.RecordBatch]:
        """Yield the places, as columns with the names of `PLACE`; raises InputError."""
        source = open_source("table", self._spec, self._base, self._storage, _SPLIT_BYTES)
        for split in source.splits:
            for batch in source.reader.read(split):
                columns = [batch.column(name) for name in self._columns]
                yield pa.RecordBatch.from_arrays(columns, names=list(PLACE))
