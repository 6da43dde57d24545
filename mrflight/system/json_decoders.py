"""Makes decoders of JSON that several threads may ask for at once."""

from __future__ import annotations

import threading
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")

_made: dict[type, msgspec.json.Decoder[Any]] = {}
_making = threading.Lock()


def json_decoder(kind: type[T]) -> msgspec.json.Decoder[T]:
    """Return the decoder of a type, the same one for all threads.

    The first decoding of a struct looks up its annotations, in Python code, during which other
    threads run. A second thread that decodes the struct then, or one that has it as a field, finds
    what is half made and crashes the process (msgspec 0.22): 6 of 60 processes whose eight threads
    began with the same messages did. So decoders are made one at a time.
    """
    decoder = _made.get(kind)
    if decoder is None:
        with _making:
            decoder = _made.get(kind)
            if decoder is None:
                decoder = _made[kind] = msgspec.json.Decoder(kind)
    return decoder
