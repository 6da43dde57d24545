"""A driver that does something to itself when it comes to a step, so that no test has to be fast.

    python -m tests.support.faults.stopped_driver PLAN JOB.toml [OPTION...]

PLAN is a `Plan` as JSON: what the driver does at which step, and for how long it does not see what
happens to its servers. A signal that it sends to itself has been handled before it goes on from the
step. One that is stopped goes on from the step once it gets SIGCONT.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import deltalake.transaction
import msgspec

import mrflight.scheduler.shuffles
import mrflight.shuffle.wire.calls
from mrflight import driver
from mrflight.runtime.supervised_cluster import SupervisedCluster
from mrflight.scheduler.job_commit import JobCommit
from mrflight.scheduler.shuffle_monitor import ShuffleMonitor
from mrflight.sinks.delta.commit import DeltaCommit
from mrflight.sinks.delta.sink import DeltaSink
from mrflight.sinks.folder.sink import FolderSink
from mrflight.storage import Location
from mrflight.system import signals
from mrflight.system.deadlines import Deadline, Timeouts
from mrflight.system.signals import SignalInterrupts
from tests.support.faults.steps import Place, at_step

MODULE = __name__ if __name__ != "__main__" else "tests.support.faults.stopped_driver"


STEPS: dict[str, tuple[Place, ...]] = {
    "servers are awaited": (Place(SupervisedCluster, "wait"),),
    "part files are written": (Place(JobCommit, "setup"),),
    "commit begins": (Place(JobCommit, "run"),),
    "entry is written": (Place(DeltaCommit, "_commit_to"), Place(FolderSink, "_put")),
    "deltalake commits": (Place(deltalake.transaction, "create_table_with_add_actions"),),
    "entry is there": (Place(DeltaCommit, "_commit_to", True), Place(FolderSink, "_put", True)),
    "clean-up begins": (Place(DeltaSink, "cleanup"), Place(FolderSink, "cleanup")),
    "a file is removed": (Place(Location, "delete_file", True),),
    "files are cleaned up": (
        Place(DeltaSink, "cleanup", True),
        Place(FolderSink, "cleanup", True),
    ),
    "result is printed": (Place(driver, "_print_json"),),
}
"""The steps of a job in their order: one before its first task, and those from its last reduce to
its end. An entry is one of a Delta log, or a manifest of a folder. Those of the clean-up and of the
entry are not in the main thread.
"""

_A_DAY_S = 86_400.0

HANG = "hang"
"""The thread that is at the step stays there until the process ends."""


class Deed(msgspec.Struct, frozen=True):
    """What the driver does when it comes to a step."""

    step: str
    does: str
    """The name of a signal that it sends to itself, or `HANG`."""
    number: int = 1
    """Which time, from 1 on."""


class Plan(msgspec.Struct, frozen=True):
    """What a driver does to itself, and how its limits differ from those of other drivers."""

    deeds: tuple[Deed, ...] = ()
    blind_while: str = ""
    """As long as this file exists, the driver sees no change of the placement of its shuffles by
    itself. It still learns of losses from the tasks that fail by them."""
    ends_once: str = ""
    """Once this file exists the time of the job ends, `ends_in_s` later."""
    ends_in_s: float = 0.0
    later_once: str = ""
    """Once this file exists it is a day later by the driver's clock: a wait that has a timeout has
    taken too long."""
    commit_grace_s: float = 600.0
    """How long a commit may go on after an interrupt."""
    clean_up_s: float = 600.0
    """How long a clean-up may last after an interrupt."""
    notify_s: float = 2.0
    """How long the driver waits for a server that it tells what can do without an answer."""
    lease_s: float = 60.0
    """The lease of the job's shuffles on a standing cluster."""
    dies_of_long_files: bool = False
    """A write beyond the largest size of a file ends the process, and does not fail."""

    def words(self) -> list[str]:
        """Return the first words of the command."""
        return [msgspec.json.encode(self).decode()]


def carry_out(plan: Plan) -> None:
    """Prepare this process, in its main thread, to do what the plan says."""
    signals._COMMIT_GRACE_S = plan.commit_grace_s
    signals.CLEAN_UP_LIMIT_S = plan.clean_up_s
    mrflight.scheduler.shuffles.LEASE_S = plan.lease_s
    mrflight.shuffle.wire.calls.NO_RETRY = Timeouts(call_s=plan.notify_s, reconnect_s=0.0)
    if plan.dies_of_long_files:
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # Python ignores it
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if plan.blind_while:
        _be_blind(Path(plan.blind_while))
    if plan.ends_once:
        _end_once(Path(plan.ends_once), plan.ends_in_s)
    if plan.later_once:
        _be_later_once(Path(plan.later_once))
    own_signals = OwnSignals()
    for deed in plan.deeds:
        for place in STEPS[deed.step]:
            _do_at(place, deed, own_signals)


class OwnSignals:
    """Sends signals to this process, and waits until they were handled."""

    def __init__(self) -> None:
        self._handled = threading.Event()
        signal.signal(signal.SIGCONT, lambda *_: self._handled.set())
        for name in ("_handle", "_raise_again"):
            setattr(SignalInterrupts, name, self._noted(getattr(SignalInterrupts, name)))

    def send(self, number: int) -> None:
        self._handled.clear()
        os.kill(os.getpid(), number)
        self._handled.wait()  # for a stopped process, until it was continued

    def _noted(self, handler: Callable[..., None]) -> Callable[..., None]:
        def handle(interrupts: SignalInterrupts, number: int, frame: FrameType | None) -> None:
            try:
                handler(interrupts, number, frame)
            finally:
                self._handled.set()

        return handle


def _do_at(place: Place, deed: Deed, own_signals: OwnSignals) -> None:
    def act() -> None:
        if deed.does == HANG:
            threading.Event().wait()
        own_signals.send(getattr(signal, deed.does))

    at_step(place, deed.number, act)


def _be_blind(file: Path) -> None:
    has_changed = ShuffleMonitor.has_changed

    def sees(monitor: ShuffleMonitor, *args: Any) -> bool:
        return not file.exists() and has_changed(monitor, *args)

    ShuffleMonitor.has_changed = sees  # type: ignore[method-assign]


def _end_once(file: Path, left_s: float) -> None:
    ends_at: list[float] = []

    def left(deadline: Deadline) -> float:
        if not file.exists():
            return deadline.at - time.monotonic()
        if not ends_at:
            ends_at.append(time.monotonic() + left_s)
        return max(0.0, ends_at[0] - time.monotonic())

    Deadline.left_s = left  # type: ignore[method-assign]
    Deadline.expired = lambda deadline: left(deadline) <= 0  # type: ignore[method-assign]


def _be_later_once(file: Path) -> None:
    monotonic, driver_pid = time.monotonic, os.getpid()

    def later() -> float:
        # Workers and servers are forked from this process, and it is no later for them.
        is_later = os.getpid() == driver_pid and file.exists()
        return monotonic() + (_A_DAY_S if is_later else 0.0)

    time.monotonic = later


if __name__ == "__main__":
    carry_out(msgspec.json.decode(sys.argv[1], type=Plan))
    driver.leave(driver.main(sys.argv[2:]))
