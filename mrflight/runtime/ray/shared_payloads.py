"""Pickles calls without the objects that they share, which are sent once and have numbers.

The gateway puts them into Ray's object store, which copies them to each node once. They are four
fifths of a call of the clicks job: its reader, its partitioner and its shuffle. With the boundaries
of a sort they would be kilobytes for each map.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from mrflight.runtime.calls import Call
from mrflight.system.shared_payload import SharedPayload

_MAX_CACHED = 64
"""How many payloads are recognized without pickling them. A stage has about five."""


class EncodedCall(NamedTuple):
    """A call, and the numbers of the payloads that are needed to decode it."""

    call: bytes
    payloads: tuple[int, ...]


class CallEncoder:
    """Encodes the calls of a job. ``send`` gets each payload once, before its first call."""

    def __init__(self, send: Callable[[int, bytes], None]) -> None:
        self._send = send
        self._numbers: dict[bytes, int] = {}
        """By the pickled payload, because equal ones need not be the same object."""
        self._cached: dict[int, tuple[SharedPayload, int]] = {}
        """By the object's id, which is unique as long as the object is kept here."""

    def encode(self, function: Callable[..., Any], args: Any, kwargs: Any) -> EncodedCall:
        """Encode a call of a function that the worker can import; raises what pickling raises."""
        file = io.BytesIO()
        pickler = _Pickler(file, self._number_of)
        pickler.dump((function, args, kwargs))
        return EncodedCall(file.getvalue(), tuple(pickler.payloads))

    def _number_of(self, payload: SharedPayload) -> int:
        if (found := self._cached.get(id(payload))) is not None:
            return found[1]
        encoded = pickle.dumps(payload)
        number = self._numbers.get(encoded)
        if number is None:
            number = len(self._numbers)
            self._send(number, encoded)
            self._numbers[encoded] = number
        if len(self._cached) == _MAX_CACHED:
            self._cached.clear()
        self._cached[id(payload)] = (payload, number)
        return number


def decode_call(call: bytes, payloads: Mapping[int, bytes]) -> Call:
    """Return the function, its args and kwargs, in the worker; nothing is shared between calls."""
    return _Unpickler(io.BytesIO(call), payloads).load()


class _Pickler(pickle.Pickler):
    def __init__(self, file: io.BytesIO, number_of: Callable[[SharedPayload], int]) -> None:
        super().__init__(file)
        self._number_of = number_of
        self.payloads: dict[int, None] = {}
        """The numbers in their order of appearance."""

    def persistent_id(self, value: Any) -> int | None:
        if not isinstance(value, SharedPayload):
            return None
        number = self._number_of(value)
        self.payloads[number] = None
        return number


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, payloads: Mapping[int, bytes]) -> None:
        super().__init__(file)
        self._payloads = payloads
        self._loaded: dict[int, Any] = {}

    def persistent_load(self, number: int) -> Any:
        if number not in self._loaded:
            self._loaded[number] = pickle.loads(self._payloads[number])
        return self._loaded[number]
