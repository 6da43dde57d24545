"""Calls into C++ that neither Ctrl-C nor a timeout need wait for."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import TypeVar

T = TypeVar("T")

LOOK_EVERY_S = 0.2
"""For signals that the system has given to another thread: the main one, which is to handle them,
would sleep on."""


def interruptibly(call: Callable[[], T], timeout_s: float = math.inf) -> T:
    """What ``call`` returns or raises; in the main thread a signal's handler may end the wait.

    Python runs handlers in the main thread, and only between two of its own instructions: a call
    to a server, or a store, that stands still would hold up Ctrl-C for as long as its deadline, if
    it has one. The call goes on by itself then, and ends with the process; so it does where this
    raises TimeoutError, once ``timeout_s`` have passed.
    """
    if math.isinf(timeout_s) and threading.current_thread() is not threading.main_thread():
        return call()
    future: Future[T] = Future()

    def make() -> None:
        try:
            future.set_result(call())
        except BaseException as error:  # whoever waits decides
            future.set_exception(error)

    threading.Thread(target=make, name="call", daemon=True).start()
    give_up_at = time.monotonic() + timeout_s
    while not future.done() and (left_s := give_up_at - time.monotonic()) > 0:
        wait([future], min(left_s, LOOK_EVERY_S))
    return future.result(timeout=0)
