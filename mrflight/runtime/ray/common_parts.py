"""Calls without what they have in common, which has a number and goes to a worker once.

Of a call of the clicks job that is four fifths: its reader, its partitioner, its shuffle. With the
boundaries of a sort it was kilobytes for each map.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from mrflight.runtime.calls import Call
from mrflight.system.in_common import InCommon

_MOST_REMEMBERED = 64
"""Parts that are known without a look at what is in them: a stage has about five."""


class EncodedCall(NamedTuple):
    """A call, and the numbers of the parts that it is to be decoded with."""

    call: bytes
    parts: tuple[int, ...]


class CallEncoder:
    """Encodes the calls of a job. ``send`` is given each part once, before the call it is for."""

    def __init__(self, send: Callable[[int, bytes], None]) -> None:
        self._send = send
        self._numbers: dict[bytes, int] = {}
        """By what is in the part: equal ones need not be the same."""
        self._remembered: dict[int, tuple[InCommon, int]] = {}
        """By the object's id, which is its own as long as it is held here."""

    def encode(self, function: Callable[..., Any], args: Any, kwargs: Any) -> EncodedCall:
        """A call of a function that the worker can import. Raises what pickling raises."""
        file = io.BytesIO()
        pickler = _Pickler(file, self._number_of)
        pickler.dump((function, args, kwargs))
        return EncodedCall(file.getvalue(), tuple(pickler.parts))

    def _number_of(self, part: InCommon) -> int:
        if (found := self._remembered.get(id(part))) is not None:
            return found[1]
        encoded = pickle.dumps(part)
        number = self._numbers.get(encoded)
        if number is None:
            number = len(self._numbers)
            self._send(number, encoded)
            self._numbers[encoded] = number
        if len(self._remembered) == _MOST_REMEMBERED:
            self._remembered.clear()
        self._remembered[id(part)] = (part, number)
        return number


def decode_call(call: bytes, parts: Mapping[int, bytes]) -> Call:
    """In the worker: the function, its args and kwargs, all of them this call's own."""
    return _Unpickler(io.BytesIO(call), parts).load()


class _Pickler(pickle.Pickler):
    def __init__(self, file: io.BytesIO, number_of: Callable[[InCommon], int]) -> None:
        super().__init__(file)
        self._number_of = number_of
        self.parts: dict[int, None] = {}
        """The numbers in the order in which they came."""

    def persistent_id(self, value: Any) -> int | None:
        if not isinstance(value, InCommon):
            return None
        number = self._number_of(value)
        self.parts[number] = None
        return number


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, parts: Mapping[int, bytes]) -> None:
        super().__init__(file)
        self._parts = parts
        self._loaded: dict[int, Any] = {}

    def persistent_load(self, number: int) -> Any:
        if number not in self._loaded:
            self._loaded[number] = pickle.loads(self._parts[number])
        return self._loaded[number]
