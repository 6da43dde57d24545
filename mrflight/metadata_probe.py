"""Notices that a job's own metadata server lives and does not answer."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from mrflight.closing import Closes
from mrflight.errors import DeadlineExceededError, MrflightError
from mrflight.timeouts import Timeouts

log = logging.getLogger(__name__)

PROBE_EVERY_S = 1.0
_LATE_CALLS = 2
"""In a row. Of one call that is late the driver itself may have been stopped for as long."""


class MetadataProbe(Closes):
    """Asks the metadata server at ``location`` now and then, from a thread of its own.

    Calls ``give_up`` there when it has been silent for ``silence_s``, and goes on asking. A server
    that cannot be reached is not silent: whoever supervises it knows that it ended.
    """

    def __init__(self, location: str, silence_s: float, give_up: Callable[[], None]) -> None:
        self._location = location
        self._call_s = silence_s / _LATE_CALLS
        self._give_up = give_up
        self.late_calls = 0
        """Since the last one that was not."""
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._probe, name="metadata-probe", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ask no more. Does not wait for an answer that is still to come; `join` does."""
        self._ending.set()

    def join(self, timeout_s: float) -> None:
        """Wait until a call that is under way has ended, as it does where its server is killed."""
        self._thread.join(timeout_s)

    def _probe(self) -> None:
        while not self._ending.wait(PROBE_EVERY_S):
            self.late_calls = self.late_calls + 1 if self._is_late() else 0
            if self.late_calls == _LATE_CALLS and not self._ending.is_set():
                self.late_calls = 0
                self._give_up()

    def _is_late(self) -> bool:
        # Loaded already by whoever waits for servers: the driver starts without Arrow.
        from mrflight.shuffle.connections import Connections
        from mrflight.shuffle.metadata_client import MetadataClient

        try:
            with Connections(Timeouts(call_s=self._call_s)) as connections:
                MetadataClient(self._location, connections).status()
        except DeadlineExceededError:
            return True
        except MrflightError as error:
            log.debug("the metadata server was asked in vain: %s", error)
        return False
