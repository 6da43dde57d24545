"""What the event logs of a data server have done since it was started, for its metrics."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from mrflight.shuffle.log.frame import Frame, FrameKind


class LogTotals:
    """Sums that only grow. Safe for many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.appends = 0
        """Batches that were acknowledged, without repeated ones."""
        self.rows = 0
        self.bytes = 0
        self.syncs = 0

    def count(self, frames: Sequence[Frame]) -> None:
        """Count the frames that one sync has made durable."""
        with self._lock:
            self.syncs += 1
            self.appends += sum(frame.kind is FrameKind.ROWS for frame in frames)
            self.rows += sum(frame.rows for frame in frames)
            self.bytes += sum(frame.size for frame in frames)
