"""Runs tasks in workers on Ray: see `mrflight.runtime.ray.actor_pool`.

Ray's own retries are off: a call runs once, and a lost call is reported.
"""

from __future__ import annotations

import logging
import pickle
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any, NamedTuple, ParamSpec, TypeVar

from mrflight.errors import WorkerLostError
from mrflight.runtime.calls import decode_answer, encode_call
from mrflight.runtime.ray.gateway_client import GatewayClient
from mrflight.runtime.ray.messages import Answered, Lost
from mrflight.runtime.ray.shared_payloads import CallEncoder
from mrflight.system.closeable import Closeable

log = logging.getLogger(__name__)

P = ParamSpec("P")
R = TypeVar("R")

_END_TIMEOUT_S = 2.0
"""How long stopped calls may take to end, of the 5 s that an interrupted job has."""


class _Call(NamedTuple):
    function: Callable[..., Any]
    args: Any
    kwargs: Any
    future: Future[Any]


class RayExecutor(Closeable):
    """Sends ``workers`` calls to Ray at a time. The others wait here, and are not pickled yet.

    So a call whose future is running is in a worker, or only waits for a core that Ray has given
    to another program.
    """

    def __init__(self, workers: int, gateway: GatewayClient) -> None:
        """``gateway`` must be connected, and is not closed here."""
        self.workers = workers
        self._gateway = gateway
        self._encoder = CallEncoder(gateway.send_payload)
        self._waiting: deque[_Call] = deque()
        self._running: dict[Future[Any], int] = {}
        self._changing = threading.Condition()  # guards these two and `_is_closed`
        self._is_closed = False
        gateway.start_workers(workers)

    def submit(self, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        pickle.dumps(function)  # a function that cannot be sent is refused at once
        future: Future[R] = Future()
        with self._changing:
            if self._is_closed:
                raise WorkerLostError("the workers have been ended; they run nothing any more")
            self._waiting.append(_Call(function, args, kwargs, future))
        self._feed()
        return future

    def on_node(
        self, node: str, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> Future[R]:
        """Run a function on this node of Ray, in addition to the workers there."""
        future: Future[R] = Future()
        future.set_running_or_notify_cancel()
        self._gateway.start_task(encode_call(function, args, kwargs), partial(_end, future), node)
        return future

    def stop(self, future: Future[R]) -> None:
        if future.cancel():
            return
        with self._changing:
            if (number := self._running.get(future)) is not None:
                self._gateway.stop(number)

    def worker_of(self, future: Future[R]) -> str:
        return ""  # an answer says which actor it was, and not before

    def close(self) -> None:
        with self._changing:
            self._is_closed = True
            waiting, self._waiting = self._waiting, deque()
            for number in self._running.values():
                self._gateway.stop(number)
        for call in waiting:
            call.future.cancel()
        with self._changing:
            if not self._changing.wait_for(lambda: not self._running, _END_TIMEOUT_S):
                log.warning("%d tasks on Ray were stopped but have not ended", len(self._running))

    def _feed(self) -> None:
        """Send calls while fewer than ``workers`` are running."""
        while True:
            with self._changing:  # until the call can be stopped
                call = self._next()
                if call is None:
                    return
                try:
                    encoded = self._encoder.encode(call.function, call.args, call.kwargs)
                    handler = partial(self._take_end, call.future)
                    self._running[call.future] = self._gateway.start_task(
                        encoded.call, handler, payloads=encoded.payloads
                    )
                    continue
                except Exception as error:  # the caller handles it
                    failure = error
            call.future.set_exception(failure)

    def _next(self) -> _Call | None:
        """Take the next call, if there is room for one; it then counts as running."""
        while self._waiting and len(self._running) < self.workers and not self._is_closed:
            call = self._waiting.popleft()
            if call.future.set_running_or_notify_cancel():
                return call
        return None

    def _take_end(self, future: Future[Any], message: Answered | Lost) -> None:
        with self._changing:
            del self._running[future]
            self._changing.notify_all()
        _end(future, message)
        self._feed()


def _end(future: Future[Any], message: Answered | Lost) -> None:
    try:
        if isinstance(message, Lost):
            raise WorkerLostError(f"a worker on Ray gave no answer: it {message.why}")
        answer = decode_answer(message.answer)
    except BaseException as error:  # the caller handles it
        future.set_exception(error)
    else:
        future.set_result(answer)
