"""A program that moves a stream on in a table, batch by batch, while another one does the same.

Usage: iceberg_stream.py OUTPUT_SECTION_AS_JSON FOLDER WRITER END
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from mrflight.config.output_section import OutputSection
from mrflight.errors import StreamMovedError
from mrflight.sinks import open_sink
from mrflight.sinks.commit.base import Commit
from mrflight.sinks.commit.stream_offsets import StreamOffsets
from tests.support.tables.outputs import SCHEMA, written

BATCH = 3
PARTITION = "cluster/topic/0"


def main(section: str, folder: str, writer: str, end: str) -> None:
    """Write each number below ``end`` that is next."""
    number = 0
    while True:
        number += 1
        spec = OutputSection(**json.loads(section))
        sink = open_sink(spec, Path(folder), {}, f"{writer}{number}", None)
        recorded = sink.recorded_offsets("numbers")
        low = recorded.get(PARTITION, 0)
        if low >= int(end):
            break
        high = min(low + BATCH, int(end))
        parts = tuple(written(sink, [(n, writer) for n in range(low, high)]))
        offsets = StreamOffsets("numbers", recorded, {PARTITION: high})
        try:
            sink.commit(Commit(parts, SCHEMA, offsets=offsets))
            sink.cleanup()
        except StreamMovedError:
            continue  # the other one was faster
        finally:
            sink.abort()


if __name__ == "__main__":
    main(*sys.argv[1:])
