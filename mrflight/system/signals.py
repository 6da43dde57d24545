"""Signals and interrupts of a job: interruptible calls, bounded clean-ups, the driver's handlers.

What a command does about a SIGINT while it still loads is in `mrflight.system.early_interrupt`.
"""

from __future__ import annotations

import logging
import math
import os
import queue
import select
import signal
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from types import FrameType
from typing import TypeVar

T = TypeVar("T")

log = logging.getLogger(__name__)

POLL_INTERVAL_S = 0.2
"""How often a waiting main thread wakes up. The system may give a signal to another thread, and
the main thread, which has to handle it, would sleep on."""

CLEAN_UP_LIMIT_S = 3.5
"""How long after an interrupt a clean-up may last. The whole process is to end within 5 s."""


def run_interruptibly(call: Callable[[], T], timeout_s: float = math.inf) -> T:
    """Return what ``call`` returns, or raise what it raises, in a way that a signal can interrupt.

    Python runs signal handlers in the main thread, and only between two instructions of its own.
    A call into C++ that waits for a server or a store would therefore delay Ctrl-C for as long as
    its deadline, if it has one. So the call runs in a thread of its own. If the wait is
    interrupted, or raises TimeoutError after ``timeout_s``, the call goes on in the background and
    ends with the process.
    """
    if math.isinf(timeout_s) and threading.current_thread() is not threading.main_thread():
        return call()
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(call())
        except BaseException as error:  # the waiting thread handles it
            future.set_exception(error)

    threading.Thread(target=run, name="call", daemon=True).start()
    give_up_at = time.monotonic() + timeout_s
    while not future.done() and (left_s := give_up_at - time.monotonic()) > 0:
        wait([future], min(left_s, POLL_INTERVAL_S))
    return future.result(timeout=0)


class Interrupts:
    """How a job is interrupted in a process that is not the job's alone.

    A KeyboardInterrupt may come at any time. The driver, whose process runs one job and nothing
    else, uses `SignalInterrupts` instead, which acts on the events that are reported here.
    """

    def __init__(self) -> None:
        self._first_at = math.inf
        self._events: queue.SimpleQueue[None] = queue.SimpleQueue()  # a handler may put to it

    def threads_begin(self) -> None:
        """Report that the process is not forked any more, and may start other threads."""

    def commit_begins(self) -> None:
        """Report that a commit begins, which should be given the time that it needs."""

    def job_ends(self) -> None:
        """Report that the outcome of the job is decided: an interrupt only shortens its end now."""

    def bound_clean_up(self) -> None:
        """Bound clean-ups from now on, as an interrupt does."""
        self._record()

    def clean_up(self, call: Callable[[], None]) -> None:
        """Run a clean-up to its end, or until `CLEAN_UP_LIMIT_S` after the first interrupt.

        Raises what the call raises. A KeyboardInterrupt that comes meanwhile is raised afterwards.
        A call that takes too long is abandoned: it goes on in the background and ends with the
        process.
        """
        ended: Future[None] = Future()

        def run() -> None:
            try:
                call()
                ended.set_result(None)
            except BaseException as error:  # the waiting thread handles it
                ended.set_exception(error)
            finally:
                self._events.put(None)

        threading.Thread(target=run, name="clean-up", daemon=True).start()
        interrupt: KeyboardInterrupt | None = None
        while not ended.done() and self._left_s() > 0:
            try:
                self._wait()
            except KeyboardInterrupt as error:
                interrupt = error
                self._interrupt_was_caught()
                self._record()
        if ended.done():
            ended.result()
        else:
            log.warning("the clean-up took too long and was abandoned; run mrflight clean")
        if interrupt is not None:
            raise interrupt

    def _interrupt_was_caught(self) -> None:
        """Called when a KeyboardInterrupt has arrived where it can be kept for later."""

    def _record(self) -> None:
        self._first_at = min(self._first_at, time.monotonic())

    def _left_s(self) -> float:
        """Return how long a clean-up may still last."""
        return self._first_at + CLEAN_UP_LIMIT_S - time.monotonic()

    def _wait(self) -> None:
        """Wait for the end of a clean-up or for an interrupt, but not beyond the limit."""
        try:
            self._events.get(timeout=min(max(0.0, self._left_s()), POLL_INTERVAL_S))
        except queue.Empty:
            return


_INTERRUPTS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

_COMMIT_GRACE_S = 2.5
"""How long a commit that is under way may go on after an interrupt. It takes milliseconds, but may
wait for other writers. The process is to end within 5 s."""

_RAISE_AGAIN_S = 0.1
"""When an interrupt that was lost is raised again."""


class SignalInterrupts(Interrupts):
    """Handles the signals of a process that runs one job and nothing else.

    Only the first interrupt counts. It is raised as KeyboardInterrupt at once, or after
    `_COMMIT_GRACE_S` if it comes during the commit.
    """

    def __init__(self) -> None:
        super().__init__()
        self._is_committing = False
        self._is_decided = False

    def install(self) -> None:
        """Handle the signals of this process from now on."""
        sys.unraisablehook = self._hide_interrupts
        signal.signal(signal.SIGALRM, self._raise_again)
        for number in _INTERRUPTS:
            if signal.getsignal(number) != signal.SIG_IGN:  # nohup and a shell's & ignore some
                signal.signal(number, self._handle)

    def threads_begin(self) -> None:
        """Forward signals to the main thread, because other threads may take them from now on."""
        SignalRelay()

    def commit_begins(self) -> None:
        self._is_committing = True

    def job_ends(self) -> None:
        self._is_decided = True
        signal.setitimer(signal.ITIMER_REAL, 0)

    @property
    def was_interrupted(self) -> bool:
        return not math.isinf(self._first_at)

    @property
    def message(self) -> str:
        """The message for the user about a job that was interrupted."""
        if not self._is_committing:
            return (
                "interrupted before the commit: nothing of the job is in its output; run it again"
            )
        return (
            "interrupted in the commit; look at the table before running the job again (with a "
            "job.run_id it commits once in any case)"
        )

    def _handle(self, signum: int, frame: FrameType | None) -> None:
        is_first = not self.was_interrupted
        self._record()
        if self._is_decided:
            self._events.put(None)
        elif is_first:
            after_s = _COMMIT_GRACE_S if self._is_committing else _RAISE_AGAIN_S
            signal.setitimer(signal.ITIMER_REAL, after_s, _RAISE_AGAIN_S)
            if not self._is_committing:
                raise KeyboardInterrupt

    def _raise_again(self, signum: int, frame: FrameType | None) -> None:
        """Raise the interrupt again, unless it is already being handled.

        An interrupt that is raised in a __del__, in a callback of a weak reference (imports have
        them), or in C code that ignores exceptions of its calls is lost, and the job would go on.
        """
        if not (self._is_decided or _is_unwinding()):
            raise KeyboardInterrupt

    def _interrupt_was_caught(self) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)

    def _hide_interrupts(self, unraisable: sys.UnraisableHookArgs) -> None:
        """Do not print an interrupt that was lost, because it is raised again."""
        if not issubclass(unraisable.exc_type, KeyboardInterrupt):
            sys.__unraisablehook__(unraisable)


def _is_unwinding() -> bool:
    """Return whether a KeyboardInterrupt is being handled, and clean-ups run because of it."""
    error = sys.exc_info()[1]
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None


WAKE = signal.SIGURG
"""The signal that wakes the main thread. No other program sends it to a driver, and by default a
process ignores it."""

_WAKE_EVERY_S = 0.05
_WAKES = 2
"""How often the main thread must wake up: the first time it may have looked too early."""


class SignalRelay:
    """Wakes the main thread for signals that other threads of the process have received.

    It is created in the main thread of a process that handles its own signals, and works until the
    process ends. Python runs handlers in the main thread, which has to be awake for that, but the
    system may give a signal to any thread. If two signals come at once, for example a Ctrl-C and a
    SIGTERM, the system gives the second one to another thread while the main thread has not taken
    the first one yet. The faster thread then takes both, and the main thread sleeps on. The same
    happens if a signal comes after the main thread has checked for signals and before it sleeps.
    The relay's thread makes sure that the main thread checks again.
    """

    def __init__(self) -> None:
        self._received, written = os.pipe()
        for end in (self._received, written):
            os.set_blocking(end, False)
        self._main = threading.get_ident()
        self._checks = 0
        signal.signal(WAKE, self._count_check)
        # The thread that receives a signal writes its number to this pipe at once.
        signal.set_wakeup_fd(written, warn_on_full_buffer=False)
        threading.Thread(target=self._relay, name="signal-relay", daemon=True).start()

    def _count_check(self, signum: int, frame: FrameType | None) -> None:
        # Python runs handlers by number, so those of interrupts, which are smaller, ran before.
        self._checks += 1

    def _relay(self) -> None:
        while True:
            select.select([self._received], [], [])
            if not set(os.read(self._received, 4096)) - {WAKE}:
                continue
            enough = self._checks + _WAKES
            while self._checks < enough:
                signal.pthread_kill(self._main, WAKE)
                select.select([], [], [], _WAKE_EVERY_S)
