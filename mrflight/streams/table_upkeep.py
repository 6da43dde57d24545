"""The upkeep of a stream's table: when it is due, and what becomes of its errors."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from mrflight.errors import MrflightError, UnsyncedCommitError
from mrflight.sinks.commit.base import Sink
from mrflight.system.malloc import return_all_freed_memory

log = logging.getLogger(__name__)

COMPACT_EVERY = 50
"""So many commits come between two compactions. Readers then open some hundred small files at
most, and a row is written about three times until its file is large."""

_REMOVE_EVERY_S = 3600.0


class TableUpkeep:
    """Compacts the table of a stream, and removes old files, between its commits."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._commits = 0
        self._removed_at = now()

    def after_commit(self, sink: Sink) -> None:
        """Do what is due. An error is logged, because the stream itself goes on without.

        Raises UnsyncedCommitError, because later commits rely on the one that it is about.
        """
        self._commits += 1
        try:
            if self._commits % COMPACT_EVERY == 0 and (
                files := sink.compact_small_files(COMPACT_EVERY)
            ):
                log.info("upkeep: %d small files were compacted", files)
                return_all_freed_memory()  # 510 MiB of the driver came down to 483
            if self._now() - self._removed_at >= _REMOVE_EVERY_S:
                self._removed_at = self._now()
                sink.remove_old_files()
        except UnsyncedCommitError:
            raise
        except MrflightError as error:
            log.warning("the upkeep of the table failed, and is tried again later: %s", error)
