"""Does to a stream, and to its servers, what a plan says."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress

import psutil

from tests.support.chaos.delta import DeltaChaosTable
from tests.support.chaos.ingester import Ingester
from tests.support.chaos.plan import RUN_S, SERVERS, ChaosPlan, Deed
from tests.support.chaos.producers import Sent
from tests.support.chaos.servers import ChaosServers
from tests.support.chaos.table import FOREIGN, ChaosTable
from tests.support.commands.leftovers import processes_of

_ROWS = 10
"""So many rows a foreign writer appends at once."""


class ChaosDeeds:
    """Does them at their times, and knows what was done."""

    def __init__(
        self, plan: ChaosPlan, servers: ChaosServers, table: ChaosTable, mark: str, sent: Sent
    ) -> None:
        """``mark`` is that of all processes of the ingesters."""
        self._plan = plan
        self._servers = servers
        self._table = table
        self._mark = mark
        self._sent = sent
        self._randomly = random.Random(plan.seed)
        self._lock = threading.Lock()
        self._foreign = 0
        self.done: Counter[str] = Counter()
        """How often what was done."""
        self.wrong: list[str] = []

    def run(self, ingesters: Sequence[Ingester]) -> None:
        """Do all of it, and return once everything that was killed is back, or awake."""
        began, threads = time.monotonic(), list[threading.Thread]()
        for at_s, do in self._timeline(ingesters, threads):
            time.sleep(max(0.0, began + at_s - time.monotonic()))
            do()
        for thread in threads:
            thread.join()
        self._servers.await_ready()
        for ingester in ingesters:
            ingester.start_if_ended(is_allowed=bool(self._plan.kills))

    def _timeline(
        self, ingesters: Sequence[Ingester], threads: list[threading.Thread]
    ) -> list[tuple[float, Callable[[], None]]]:
        """Return what is done when. Servers are killed and started by this thread, which stays."""

        def begin(deed: Deed) -> None:
            threads.append(threading.Thread(target=self._do, args=(deed, ingesters)))
            threads[-1].start()

        found: list[tuple[float, Callable[[], None]]] = [(RUN_S, lambda: None)]
        for deed in self._plan.deeds:
            if deed.what in SERVERS:
                found.append((deed.at_s, lambda deed=deed: self._kill(deed)))  # type: ignore[misc]
                found.append((deed.at_s + deed.for_s, lambda deed=deed: self._revive(deed)))  # type: ignore[misc]
            else:
                found.append((deed.at_s, lambda deed=deed: begin(deed)))  # type: ignore[misc]
        return sorted(found, key=lambda each: each[0])

    def _kill(self, deed: Deed) -> None:
        self._servers.kill(deed.what, deed.whom)
        self.done[deed.what] += 1

    def _revive(self, deed: Deed) -> None:
        self._servers.start_again(deed.what, deed.whom)

    def _do(self, deed: Deed, ingesters: Sequence[Ingester]) -> None:
        ingester = ingesters[deed.whom % len(ingesters)]
        verb, _, victim = deed.what.partition(" ")
        if deed.what == "kill driver":
            if ingester.kill():
                self.done[deed.what] += 1
                time.sleep(deed.for_s)
                ingester.start()
        elif deed.what == "foreign append":
            self._append()
        elif deed.what == "compact":
            self._compact()
        else:
            prefix = {"worker": "mrflight-worker", "data server": "mrflight-data"}.get(victim, "")
            with suppress(psutil.NoSuchProcess):  # it may have been killed meanwhile
                found = (
                    self._processes(prefix) if prefix else [psutil.Process(ingester.process.pid)]
                )
                if found:
                    self._harm(verb, found[deed.whom % len(found)], deed.for_s)
                    self.done[deed.what] += 1

    def _harm(self, verb: str, process: psutil.Process, for_s: float) -> None:
        if verb == "kill":
            process.kill()
            return
        process.suspend()
        time.sleep(for_s)
        process.resume()

    def _processes(self, prefix: str) -> list[psutil.Process]:
        found = []
        for process in processes_of(self._mark):
            with suppress(psutil.NoSuchProcess):
                if process.name().startswith(prefix[:15]):
                    found.append(process)
        return found

    def _append(self) -> None:
        with self._lock:
            numbers = range(self._foreign, self._foreign + _ROWS)
            self._foreign = numbers.stop
        rows = {(FOREIGN, number) for number in numbers}
        try:
            self._table.append(numbers)
        except Exception:  # of any library: it conflicts, or a server or the table is not there
            self._sent.unknown |= rows
            self.done["foreign append refused"] += 1
            return
        self._sent.committed |= rows
        self.done["foreign append"] += 1

    def _compact(self) -> None:
        assert isinstance(self._table, DeltaChaosTable), "the plan has it for Delta only"
        if not self._plan.kills and self._table.exists():
            try:
                self._table.compact()
                self.done["compact"] += 1
            except AssertionError as error:
                self.wrong.append(str(error))
