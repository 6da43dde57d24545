"""Notices that servers of a job's own live and do not answer."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable

from mrflight.errors import DeadlineExceededError, MrflightError
from mrflight.system.closeable import Closeable
from mrflight.system.deadlines import Timeouts

log = logging.getLogger(__name__)

PROBE_EVERY_S = 1.0
_LATE_CALLS = 2
"""In a row. Of one call that is late the driver itself may have been stopped for as long."""
_GIVEN_UP_CALL_S = 1.0
"""Of a data server, for which the metadata server has waited already."""


class LivenessProbe(Closeable):
    """Asks the servers of a cluster now and then, from a thread of its own.

    Calls ``give_up`` there with the location of one that has been silent for ``silence_s``, and
    goes on asking. That is the metadata server where it does not answer, and each of
    ``data_servers()`` that the metadata server has given up and that does not answer either. A
    server that cannot be reached is not silent: whoever supervises it knows that it ended, or
    that it is still ``starting_late()``, which is given up as well.
    """

    def __init__(
        self,
        metadata: str,
        data_servers: Callable[[], Iterable[str]],
        silence_s: float,
        give_up: Callable[[str], None],
        starting_late: Callable[[], Iterable[str]] = list,
    ) -> None:
        self._metadata = metadata
        self._data_servers = data_servers
        self._call_s = silence_s / _LATE_CALLS
        self._give_up = give_up
        self._starting_late = starting_late
        self.late_calls = 0
        """Of the metadata server, since the last one that was not."""
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._probe, name="silence-probe", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ask no more. Does not wait for an answer that is still to come; `join` does."""
        self._ending.set()

    def join(self, timeout_s: float) -> None:
        """Wait until a call that is under way has ended, as it does where its server is killed."""
        self._thread.join(timeout_s)

    def _probe(self) -> None:
        while not self._ending.wait(PROBE_EVERY_S):
            try:
                self._look()
            except Exception:  # the thread would end without a word
                log.exception("the servers cannot be looked after; this is tried again")

    def _look(self) -> None:
        for location in self._starting_late():
            self._end(location)
        suspects = list(self._data_servers())  # those that are started meanwhile are none
        try:
            registered = self._registered()
        except DeadlineExceededError:
            self._count_late_call()
            return
        except MrflightError as error:
            log.debug("the metadata server was asked in vain: %s", error)
            registered = suspects
        self.late_calls = 0
        for location in suspects:
            if location not in registered and self._is_silent(location):
                self._end(location)

    def _count_late_call(self) -> None:
        self.late_calls += 1
        if self.late_calls == _LATE_CALLS:
            self.late_calls = 0
            self._end(self._metadata)

    def _end(self, location: str) -> None:
        if not self._ending.is_set():
            self._give_up(location)

    # What is imported here whoever waits for servers has loaded: the driver starts without Arrow.

    def _registered(self) -> list[str]:
        from mrflight.shuffle.client.metadata_client import MetadataClient
        from mrflight.shuffle.wire.connections import Connections

        with Connections(Timeouts(call_s=self._call_s)) as connections:
            status = MetadataClient(self._metadata, connections).status()
        return [server.location for server in status.servers]

    def _is_silent(self, location: str) -> bool:
        from mrflight.shuffle.wire.calls import call
        from mrflight.shuffle.wire.connections import Connections
        from mrflight.shuffle.wire.protocol import DataAction, Done, ServerStats

        try:
            with Connections(Timeouts(call_s=_GIVEN_UP_CALL_S)) as connections:
                call(connections, location, DataAction.STATS, Done(), ServerStats)
        except DeadlineExceededError:
            return True
        except MrflightError as error:
            log.debug("the data server %s was asked in vain: %s", location, error)
        return False
