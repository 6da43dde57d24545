"""Part files in the Arrow IPC file format."""

from __future__ import annotations

import pyarrow as pa

from mrflight.sinks.parts.encoder import Encoder


class ArrowEncoder(Encoder):
    """Writes one record batch per chunk."""

    def __init__(self, stream: pa.NativeFile, schema: pa.Schema) -> None:
        self._writer = pa.ipc.new_file(stream, schema)

    def write(self, rows: pa.Table) -> None:
        self._writer.write_table(rows.combine_chunks())  # one record batch, not one per piece

    def close(self) -> str:
        self._writer.close()
        return "{}"
