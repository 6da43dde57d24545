"""Messages that are json objects."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from mrflight.compute.schemas import empty_batch
from mrflight.config.text_options import JsonOptions
from mrflight.sources.json_bad_row import JsonExpectation
from mrflight.sources.json_decoder import JsonDecoder, OtherFields
from mrflight.sources.kafka.formats.joined_lines import joined_lines
from mrflight.sources.kafka.formats.message_format import DecodedRows
from mrflight.sources.kafka.messages import value_bytes


@dataclass(frozen=True)
class JsonFormat:
    """One object a message; a field that it lacks is null."""

    input_name: str
    schema: pa.Schema
    declared: frozenset[str]
    """The columns whose types the user has set."""
    others: OtherFields
    """What to do with a field that the schema lacks."""
    options: JsonOptions

    @property
    def reads_nulls(self) -> bool:
        return False

    @cached_property
    def _decoder(self) -> JsonDecoder:
        return JsonDecoder(self.schema, self.others, self.options)

    def decode(self, values: pa.BinaryArray) -> DecodedRows:
        if not len(values):
            return DecodedRows(empty_batch(self.schema))
        # With each message from { to }, as many objects as messages are one in each. And pyarrow
        # (26) ends the process if all that it reads is a null.
        if not _are_braced(values):
            raise ValueError("a message is not an object")
        batch = self._decoder.decode(joined_lines(values))
        if batch.num_rows != len(values):
            raise ValueError("a message is not one object")
        return DecodedRows(batch)

    def explain(self, value: bytes, reason: str) -> str:
        if not value.strip():
            return "the message is empty; write one object per message"
        expected = JsonExpectation(
            self.input_name, self.schema, self.declared, self.others, self.options
        )
        return (
            expected.explain(value, reason)
            .replace("object per line", "object per message")
            .replace("the first lines of the input", "the first messages of the input")
        )

    def __reduce__(self) -> tuple[type[JsonFormat], tuple[object, ...]]:
        values = (self.input_name, self.schema, self.declared, self.others, self.options)
        return type(self), values


def _are_braced(values: pa.BinaryArray) -> bool:
    """Return whether each value begins with { and ends with }, but for white space."""
    data, offsets = value_bytes(values)
    if not np.all(offsets[:-1] < offsets[1:]):
        return False
    found = np.frombuffer(data, np.uint8)
    begins, ends = found[offsets[:-1]] == ord("{"), found[offsets[1:] - 1] == ord("}")
    others = np.flatnonzero(~(begins & ends))
    stripped = (values[int(i)].as_py().strip() for i in others)
    return all(each[:1] == b"{" and each[-1:] == b"}" for each in stripped)
