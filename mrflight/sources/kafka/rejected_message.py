"""Finds the messages of a batch that cannot be decoded, and describes them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Protocol, Self, TypeVar

from mrflight.sources.bad_rows import BadRow
from mrflight.sources.kafka.formats.message_format import BadValuesError, MessageFormat
from mrflight.sources.kafka.messages import Messages

NO_VALUE = (
    "the message has no value (a tombstone); set metadata = true to read it as a row of nulls "
    "with its key"
)


class RejectedMessage(BadRow, frozen=True):
    """A message that cannot be decoded, as it was received.

    ``file`` is its partition, ``line`` its offset, and ``text`` its value with escapes for bytes
    that are no text.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    """Milliseconds since 1970, or -1."""
    key: bytes | None
    value: bytes | None


class Sliceable(Protocol):
    """Values, or messages."""

    def __len__(self) -> int: ...

    def slice(self, start: int, length: int, /) -> Self: ...


_Values = TypeVar("_Values", bound=Sliceable)


def find_rejected(values: _Values, decode: Callable[[_Values], object]) -> dict[int, str]:
    """Return the places of the values on which ``decode`` fails, and what it raises.

    Unless it raises BadValuesError, halves the values until single ones are left, which costs about
    two reads of all values for the first bad one, and less for each further one.
    """
    bad: dict[int, str] = {}
    unknown = [(0, len(values))] if len(values) else []
    while unknown:
        start, stop = unknown.pop()
        try:
            decode(values.slice(start, stop - start))
        except BadValuesError as error:
            bad |= {start + place: reason for place, reason in error.reasons.items()}
        except ValueError as error:
            if stop - start == 1:
                bad[start] = str(error)
                continue
            middle = (start + stop) // 2
            unknown += [(middle, stop), (start, middle)]
    return bad


def describe_rejected(
    messages: Messages, reasons: Mapping[int, str | None], format: MessageFormat
) -> Iterator[RejectedMessage]:
    """Yield the messages at the places that have a reason, which is None for no value."""
    for index, failure in reasons.items():
        value, offset = messages.values[index].as_py(), messages.offsets[index].as_py()
        reason = NO_VALUE if failure is None else format.explain(value, failure)
        yield RejectedMessage(
            messages.place,
            offset,
            reason,
            "" if value is None else value.decode(errors="backslashreplace"),
            messages.topic,
            messages.partition,
            offset,
            messages.timestamps[index].as_py(),
            messages.keys[index].as_py(),
            value,
        )
