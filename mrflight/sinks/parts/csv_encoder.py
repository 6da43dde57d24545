"""Part files in csv: a header, and quotes where a value needs them."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.csv as pa_csv

from mrflight.sinks.parts.encoder import Encoder


class CsvEncoder(Encoder):
    """Writes the header with the first chunk."""

    def __init__(self, stream: pa.NativeFile, schema: pa.Schema) -> None:
        self._writer = pa_csv.CSVWriter(stream, schema)

    def write(self, rows: pa.Table) -> None:
        self._writer.write_table(rows)

    def close(self) -> str:
        self._writer.close()
        return "{}"
