"""Consumes one partition at a time in the kernel, which fills Arrow buffers.

It opens the librdkafka that is in confluent-kafka's wheel. No Python object is made of a message,
and the interpreter lock is released.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pyarrow as pa

from mrflight.compute.kernel_choice import kernel_language
from mrflight.errors import MrflightError
from mrflight.sources.kafka.client_errors import translate_failure
from mrflight.sources.kafka.client_settings import ClientSettings
from mrflight.sources.kafka.consumer import Failure, Fetched, headers_array
from mrflight.sources.kafka.messages import Messages

_Fill = Callable[[pa.Buffer, pa.Buffer, pa.Buffer], int]


@cache
def drain_library() -> Path | None:
    """Return the file of librdkafka; None if there is none, or no kernel to open it."""
    if kernel_language() != "rust":
        return None
    import confluent_kafka

    from mrflight import _kernel

    if not hasattr(_kernel, "TopicConsumer"):  # an editable install that was not built again
        return None
    folder = Path(confluent_kafka.__file__).parent.with_name("confluent_kafka.libs")
    return next(iter(sorted(folder.glob("librdkafka-*.so*"))), None)


class DrainConsumer:
    """Copies messages from librdkafka's queue to Arrow buffers."""

    max_poll = 64 << 10

    def __init__(self, settings: ClientSettings, with_headers: bool, library: Path) -> None:
        from mrflight import _kernel

        self._settings, self._with_headers = settings, with_headers
        self._partition: tuple[str, int] = ("", 0)
        try:
            self._kernel = _kernel.TopicConsumer(str(library), list(settings.of_consumer().items()))
        except RuntimeError as error:
            raise _translated(error, settings, "connect") from error

    def assign(self, topic: str, partition: int, offset: int) -> None:
        self._partition = topic, partition
        try:
            self._kernel.assign(topic, partition, offset)
        except RuntimeError as error:
            raise _translated(error, self._settings, f"read {topic}") from error

    def poll(self, count: int, timeout_s: float) -> Fetched:
        max_bytes = self._settings.batch_bytes
        rows, key_bytes, value_bytes, end, failure = self._kernel.poll(
            count, max_bytes, round(timeout_s * 1000)
        )
        messages = self._messages(rows, key_bytes, value_bytes) if rows else None
        return Fetched(messages, end, None if failure is None else Failure(*failure))

    @property
    def last_error(self) -> str:
        return self._kernel.last_error

    def close(self) -> None:
        self._kernel.close()

    def _messages(self, rows: int, key_bytes: int, value_bytes: int) -> Messages:
        offsets, timestamps = pa.allocate_buffer(8 * rows), pa.allocate_buffer(8 * rows)
        self._kernel.places(offsets, timestamps)
        messages = Messages(
            *self._partition,
            pa.Array.from_buffers(pa.int64(), rows, [None, offsets]),
            pa.Array.from_buffers(pa.int64(), rows, [None, timestamps]),
            _binary(rows, key_bytes, self._kernel.keys),
            _binary(rows, value_bytes, self._kernel.values),
            headers_array(self._kernel.headers()) if self._with_headers else None,
        )
        self._kernel.forget()
        return messages


def _translated(error: RuntimeError, settings: ClientSettings, what: str) -> MrflightError:
    """Return our error for one of the kernel, which has librdkafka's name and text."""
    name, text = error.args
    return translate_failure(name, text, settings, what)


def _binary(rows: int, size_bytes: int, fill: _Fill) -> pa.BinaryArray:
    valid, offsets = pa.allocate_buffer(-(-rows // 8)), pa.allocate_buffer(4 * (rows + 1))
    data = pa.allocate_buffer(size_bytes)
    nulls = fill(valid, offsets, data)
    buffers = [valid if nulls else None, offsets, data]
    return pa.Array.from_buffers(pa.binary(), rows, buffers, null_count=nulls)
