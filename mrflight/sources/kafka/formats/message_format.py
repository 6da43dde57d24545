"""The interface of every format: how the values of messages become rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

if TYPE_CHECKING:
    from mrflight.sources.kafka.messages import Messages


class DecodedRows(NamedTuple):
    """The rows of some values."""

    batch: pa.RecordBatch
    counts: npt.NDArray[np.int64] | None = None
    """The number of rows of each value; None if each is one row."""


class BadValuesError(ValueError):
    """Some values cannot be decoded: ``reasons`` has the places of all of them, and why."""

    def __init__(self, reasons: Mapping[int, str]) -> None:
        super().__init__(next(iter(reasons.values())))
        self.reasons = reasons


class MessageFormat(Protocol):
    """Decodes values to rows of ``schema``. It is frozen and picklable."""

    @property
    def schema(self) -> pa.Schema:
        """The columns of the rows."""

    @property
    def reads_nulls(self) -> bool:
        """True if a message without a value is a row by itself."""

    def decode(self, values: pa.BinaryArray) -> DecodedRows:
        """Return the rows of values, in their order; raise ValueError if one is bad.

        It is a BadValuesError if the format knows all that are. The others are searched for.
        They are null only if the format reads nulls.
        """

    def explain(self, value: bytes, reason: str) -> str:
        """Return why a value is bad, and what to do; ``reason`` is what `decode` raised."""


@runtime_checkable
class KeyedFormat(MessageFormat, Protocol):
    """A format whose rows need the keys of messages, too."""

    def decode_messages(self, messages: Messages) -> DecodedRows:
        """Return the rows of messages, as `decode` does."""
