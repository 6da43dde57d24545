"""What an interrupt does to a job, by how far the job is."""

from __future__ import annotations

import logging
import math
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future

from mrflight.system.interruptible import LOOK_EVERY_S

END_S = 3.5
"""After an interrupt a clean-up is given up then: all is to end within 5 s."""

log = logging.getLogger(__name__)


class Interrupts:
    """Those of a process that is not the job's alone: a KeyboardInterrupt at any time.

    A driver has handlers of its own, which go by what it is told here.
    """

    def __init__(self) -> None:
        self._first_at = math.inf
        self._news: queue.SimpleQueue[None] = queue.SimpleQueue()  # a handler may put to it

    def threads_begin(self) -> None:
        """From now on the process is not to be forked, and may have other threads."""

    def commit_begins(self) -> None:
        """From now on the job should be left alone for as long as a commit takes."""

    def job_ends(self) -> None:
        """What comes of the job is decided: from now on an interrupt only hurries its end."""

    def caught(self) -> None:
        """An interrupt has come to where it is waited for, and is raised again later."""

    def hurry(self) -> None:
        """Bound clean-ups as an interrupt does that comes now."""
        self._note()

    def clean_up(self, call: Callable[[], None]) -> None:
        """Make a call that interrupts do not cut short, but bound: `END_S` after the first of them.

        Raises what the call does; KeyboardInterrupt where one was raised meanwhile, after its end.
        A call that was given up goes on by itself, and ends with the process.
        """
        ended: Future[None] = Future()

        def make() -> None:
            try:
                call()
                ended.set_result(None)
            except BaseException as error:  # whoever waits decides
                ended.set_exception(error)
            finally:
                self._news.put(None)

        threading.Thread(target=make, name="clean-up", daemon=True).start()
        interrupt: KeyboardInterrupt | None = None
        while not ended.done() and self._left_s() > 0:
            try:
                self._wait()
            except KeyboardInterrupt as error:
                interrupt = error
                self.caught()
                self._note()
        if ended.done():
            ended.result()
        else:
            log.warning("the clean-up was given up; mrflight clean removes what is left")
        if interrupt is not None:
            raise interrupt

    def _note(self) -> None:
        self._first_at = min(self._first_at, time.monotonic())

    def _left_s(self) -> float:
        """For a clean-up."""
        return self._first_at + END_S - time.monotonic()

    def _wait(self) -> None:
        """For the end of a clean-up, for an interrupt, or until it is to be given up."""
        try:
            self._news.get(timeout=min(max(0.0, self._left_s()), LOOK_EVERY_S))
        except queue.Empty:
            return
