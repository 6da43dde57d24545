"""Answers the batches of a producer's stream, each once its rows are durable."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue

import msgspec
import pyarrow as pa

from mrflight.errors import MrflightError, ProtocolError
from mrflight.shuffle.log.group_commit import Append
from mrflight.shuffle.wire.log_protocol import AppendReceipt


class Answers:
    """Answers the batches of one stream in their order, in a thread of its own."""

    def __init__(self, answer: Callable[[bytes], None]) -> None:
        self.submitted = 0
        self.error: MrflightError | None = None
        """Why a batch was refused, the first of them; nothing is answered after it."""
        self._answer = answer
        self._done: SimpleQueue[Append | None] = SimpleQueue()
        self.put = self._done.put
        self._thread = threading.Thread(target=self._run, name="appended", daemon=True)
        self._thread.start()

    def finish(self) -> None:
        """Wait until all batches that were submitted are answered."""
        self._done.put(None)
        self._thread.join()

    def refuse(self, error: MrflightError) -> None:
        """Answer a batch that was not submitted, the last of the stream."""
        if self.error is None:
            refused = Append(b"", 0, self.put)
            refused.error = error
            self._write(refused)

    def _run(self) -> None:
        answered, is_ending = 0, False
        while not (is_ending and answered == self.submitted):
            append = self._done.get()
            if append is None:
                is_ending = True
            else:
                answered += 1
                self._write(append)

    def _write(self, append: Append) -> None:
        if self.error is not None:
            return
        self.error = append.error
        try:
            self._answer(_receipt(append))
        except (pa.ArrowException, OSError) as error:  # the client has gone
            self.error = ProtocolError(f"the client of a put has gone: {error}")


def _receipt(append: Append) -> bytes:
    if append.error is None:
        receipt = AppendReceipt(append.start, append.start + append.rows)
    else:
        error = append.error
        receipt = AppendReceipt(error=type(error).__name__, message=str(error)[:800])
    return msgspec.json.encode(receipt)
