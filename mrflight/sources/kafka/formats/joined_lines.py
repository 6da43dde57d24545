"""Joins the values of messages to lines, which the readers of text files decode."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from mrflight.compute.kernel_choice import kernel_language
from mrflight.sources.chunk import Chunk
from mrflight.sources.kafka.messages import value_bytes

_LINE_END = ord("\n")
_RETURN = ord("\r")
_SPACE = ord(" ")


def joined_lines(values: pa.BinaryArray) -> Chunk:
    """Return a chunk with a line for each value, none of which is null.

    Line ends within a value become spaces: valid json has them only between tokens.
    """
    data, offsets = value_bytes(values)
    if kernel_language() == "rust":
        from mrflight import _kernel

        if hasattr(_kernel, "join_lines"):
            window = bytearray(data.size + len(values))
            _kernel.join_lines(data, offsets.view(np.uint32), window)
            return Chunk((), window, len(window))
    source = np.frombuffer(data, np.uint8)
    window = bytearray(len(source) + len(values))
    lines = np.frombuffer(window, np.uint8)
    is_end = np.zeros(len(window), bool)
    is_end[offsets[1:] + np.arange(len(values))] = True
    lines[~is_end] = np.where((source == _LINE_END) | (source == _RETURN), _SPACE, source)
    lines[is_end] = _LINE_END
    return Chunk((), window, len(window))
