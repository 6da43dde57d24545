"""Detects servers of an embedded cluster that live and do not answer."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable

from mrflight.config.identity import ClientOptions, Endpoint
from mrflight.errors import DeadlineExceededError, MrflightError
from mrflight.system.closeable import Closeable
from mrflight.system.deadlines import Timeouts

log = logging.getLogger(__name__)

PROBE_EVERY_S = 1.0
_LATE_CALLS = 2
"""How many calls in a row must be late. One may be late because the driver itself was stopped."""
_LOST_CALL_S = 1.0
"""The timeout of a call to a data server that the metadata server has declared lost."""


class LivenessProbe(Closeable):
    """Calls the servers of a cluster regularly, from a thread of its own.

    It calls ``declare_lost`` with the location of each server that has not answered for
    ``silence_s``, and goes on. These are the metadata server, and each of ``data_servers()`` that
    the metadata server has declared lost and that does not answer the probe either. A server that
    is unreachable is not silent: its supervisor knows that it has ended. Servers that are
    ``starting_late()`` are declared lost, too.
    """

    def __init__(
        self,
        metadata: Endpoint,
        data_servers: Callable[[], Iterable[str]],
        silence_s: float,
        declare_lost: Callable[[str], None],
        starting_late: Callable[[], Iterable[str]] = list,
    ) -> None:
        self._metadata = metadata
        self._data_servers = data_servers
        self._call_s = silence_s / _LATE_CALLS
        self._declare_lost = declare_lost
        self._starting_late = starting_late
        self.late_calls = 0
        """The late calls to the metadata server since the last one in time."""
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._probe, name="liveness-probe", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop probing, without waiting for a call under way; `join` does that."""
        self._ending.set()

    def join(self, timeout_s: float) -> None:
        """Wait for a call under way, which ends when its server is killed."""
        self._thread.join(timeout_s)

    def _probe(self) -> None:
        while not self._ending.wait(PROBE_EVERY_S):
            try:
                self._probe_once()
            except Exception:  # otherwise the thread would end silently
                log.exception("probing the servers failed; it is tried again")

    def _probe_once(self) -> None:
        for location in self._starting_late():
            self._end(location)
        suspects = list(self._data_servers())  # not those that are started meanwhile
        try:
            registered = self._registered_locations()
        except DeadlineExceededError:
            self._count_late_call()
            return
        except MrflightError as error:
            log.debug("the metadata server did not answer: %s", error)
            registered = suspects
        self.late_calls = 0
        for location in suspects:
            if location not in registered and self._is_silent(location):
                self._end(location)

    def _count_late_call(self) -> None:
        self.late_calls += 1
        if self.late_calls == _LATE_CALLS:
            self.late_calls = 0
            self._end(self._metadata.location)

    def _end(self, location: str) -> None:
        if not self._ending.is_set():
            self._declare_lost(location)

    def _options(self, call_s: float) -> ClientOptions:
        return ClientOptions(Timeouts(call_s=call_s), "flight", self._metadata.identity)

    # These imports are local because the driver starts without Arrow.

    def _registered_locations(self) -> list[str]:
        from mrflight.shuffle.client.metadata_client import MetadataClient
        from mrflight.shuffle.wire.connections import Connections

        with Connections(self._options(self._call_s)) as connections:
            status = MetadataClient(self._metadata.location, connections).status()
        return [server.location for server in status.servers]

    def _is_silent(self, location: str) -> bool:
        from mrflight.shuffle.wire.calls import call
        from mrflight.shuffle.wire.cluster_status import ServerStats
        from mrflight.shuffle.wire.connections import Connections
        from mrflight.shuffle.wire.protocol import DataAction, Done

        try:
            with Connections(self._options(_LOST_CALL_S)) as connections:
                call(connections, location, DataAction.STATS, Done(), ServerStats)
        except DeadlineExceededError:
            return True
        except MrflightError as error:
            log.debug("the data server %s did not answer: %s", location, error)
        return False
