"""Opens the format of an input of change events."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa

from mrflight.config.input_spec import InputSpec
from mrflight.sources.kafka.changes.change_format import ChangeFormat
from mrflight.sources.kafka.formats.avro_schema import (
    avro_columns,
    parse_avro_schema,
    read_schema_file,
)
from mrflight.sources.kafka.messages import Messages


def open_changes(
    name: str,
    spec: InputSpec,
    folder: Path,
    schema: pa.Schema | None,
    sample: Callable[[], Sequence[Messages]],
) -> ChangeFormat:
    """Return the format of an input; see `open_format`.

    The file of a schema has the row for json, and the envelope for Avro.
    """
    text = None
    if spec.schema != "strict":
        text = read_schema_file(name, spec.schema, folder).decode(errors="replace")
    if spec.format == "avro":
        from mrflight.sources.kafka.changes.avro_changes import open_avro_changes

        needed = schema is None and text is None
        return open_avro_changes(name, spec, schema, text, sample() if needed else ())
    from mrflight.sources.kafka.changes.json_changes import open_json_changes

    if schema is None and text is not None:
        where = f"inputs.{name}.schema: {folder / spec.schema}"
        schema = avro_columns(parse_avro_schema(text, where), where)
    return open_json_changes(name, spec, schema, sample() if schema is None else ())
