"""The process that speaks to Ray for a driver: ``python -m mrflight.runtime.ray.gateway``.

Ray takes over the process that connects to it: its handler of SIGTERM, its stdout, where it tells
what workers died, and its life, which ends when Ray's control store is gone. What it starts ends
with the thread that started it. So that is a process of its own, and the driver goes on.
"""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import sys
import threading
from concurrent.futures import Future
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import psutil
import ray
from ray import exceptions as lost
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from mrflight.runtime.ray.losses import first_line, how_it_was_lost
from mrflight.runtime.ray.messages import (
    Answered,
    Connect,
    Connected,
    Failed,
    JobHere,
    Lost,
    Node,
    Part,
    Ready,
    Refused,
    StartServer,
    StartTask,
    StartWorkers,
    Stop,
)
from mrflight.runtime.ray.server import MrflightData, MrflightMetadata
from mrflight.runtime.ray.worker import make_once
from mrflight.runtime.ray.workers import RayWorkers
from mrflight.system.scratch import remove_dead_folders

log = logging.getLogger(__name__)

_OBJECT_STORE_BYTES = 80 * 2**20
"""Of a Ray that is started here, which wants 75 MiB at least: blocks do not go through it."""

_PR_SET_CHILD_SUBREAPER = 36
"""Of linux/prctl.h."""

_CALL_TIMEOUT_S = 0.5
_END_TIMEOUT_S = 1.0
"""Of a call to Ray that does not return, and of workers that Ray is to end, of the 2.5 s that the
driver waits for the end of this."""

_SERVER_CALLS = 3
"""That a server's actor answers side by side: start, stay, and close."""


class Gateway:
    """Does what it is told by ``channel``, and tells what came of it, until the channel closes."""

    def __init__(self, channel: Connection) -> None:
        self._channel = channel
        self._asked: SimpleQueue[Any] = SimpleQueue()
        self._told: SimpleQueue[Any] = SimpleQueue()
        self._owns_ray = False
        self._scratch_roots: tuple[str, ...] = ()
        self._servers: dict[int, Any] = {}
        """Those that have ended as well: of one that only cannot be reached that is not known."""
        self._job: JobHere | None = None
        self._strategy: Any = "SPREAD"
        self._asking = threading.Lock()
        """Of Ray: kept by who leaves. A call after that starts another Ray, or ends this process
        with what it has still to do."""
        self._leaves = threading.Event()

    def run(self) -> None:
        """In the main thread, with which the processes end that Ray starts for it."""
        for target, name in ((self._listen, "listening"), (self._tell, "telling")):
            threading.Thread(target=target, name=name, daemon=True).start()
        wanted = self._asked.get()
        self._owns_ray = wanted.address is None
        self._scratch_roots = wanted.scratch_roots
        try:
            connected = _connected(wanted)
        except Exception as error:  # whatever Ray finds wrong is told
            self._told.put(Refused(first_line(error)))
        else:
            if len(connected.nodes) == 1:  # where servers listen on loopback: none may join
                self._strategy = _on(connected.home)
            self._told.put(connected)
        while not self._leaves.is_set():
            wanted = self._asked.get()
            with self._asking:
                self._do_unless_it_leaves(wanted)
        while True:  # who leaves ends the process
            signal.pause()

    def _listen(self) -> None:
        """Until the driver has gone, or wants this to end: whatever Ray does just then."""
        with suppress(EOFError, OSError):
            while True:
                self._asked.put(self._channel.recv())
        try:
            self._leave()
            for root in self._scratch_roots:
                remove_dead_folders(Path(root))  # the driver's, if it was killed
        finally:
            os._exit(0)

    def _leave(self) -> None:
        self._leaves.set()
        self._asking.acquire(timeout=_CALL_TIMEOUT_S)
        if not self._owns_ray:
            # It tells Ray to end all that was started here, which has happened 0.05 s later, and
            # puts away its own statistics for 0.25 s more, for which nobody has to wait.
            leaving = threading.Thread(target=ray.shutdown, name="leaving", daemon=True)
            leaving.start()
            if self._job is not None and (workers := self._workers.here()):
                psutil.wait_procs(workers, _END_TIMEOUT_S)
            else:
                leaving.join()
            return
        this = psutil.Process()
        while children := this.children(recursive=True):  # nothing of it is anybody else's
            for child in children:
                with suppress(psutil.NoSuchProcess):
                    child.kill()
            psutil.wait_procs(children, 1.0)

    def _tell(self) -> None:
        """Ray's threads, which learn of ends, wait for nobody who reads them."""
        with suppress(OSError):  # the driver is gone: so is this, in a moment
            while True:
                self._channel.send(self._told.get())

    def _do_unless_it_leaves(self, message: Any) -> None:
        try:
            self._do(message)
        except Exception as error:  # Ray was left beside a call that took too long
            if not self._leaves.is_set():
                raise
            log.info("not done, as Ray was left: %s", first_line(error))

    def _do(self, message: Any) -> None:
        match message:
            case JobHere():
                self._job = message
                self._workers = RayWorkers(message, self._strategy, self._told.put, self._asked.put)
            case StartWorkers(workers):
                self._workers.keep(workers)
            case Part():
                self._workers.know(message)
            case StartTask(node=None):
                self._workers.start(message)
            case StartTask():
                self._start_once(message)
            case StartServer():
                self._start_server(message)
            case Stop(number) if self._workers.stop(number):
                pass
            case Stop(number) if (server := self._servers.get(number)) is not None:
                ray.kill(server)
            case Stop():
                pass  # it has ended
            case later:
                later()

    def _start_once(self, message: StartTask) -> None:
        """On a certain node; such a call is not stopped."""
        number = message.number
        task = (
            ray.remote(make_once)
            .options(max_retries=0, num_cpus=0, scheduling_strategy=_on(message.node))
            .remote(self._job, message.call)
        )

        def tell(ended: Future[Any]) -> None:
            try:
                node, pid, answer = ended.result()
                self._told.put(Answered(number, answer, node, pid))
            except Exception as error:
                self._told.put(Lost(number, how_it_was_lost(error)))

        task.future().add_done_callback(tell)

    def _start_server(self, message: StartServer) -> None:
        number = message.number
        server = (
            ray.remote(MrflightData if message.kind == "data" else MrflightMetadata)
            .options(
                num_cpus=0,
                memory=message.memory_bytes,
                max_restarts=0,
                max_task_retries=0,
                max_concurrency=_SERVER_CALLS,
                scheduling_strategy=_on(message.node) if message.node else self._strategy,
            )
            .remote()
        )
        self._servers[number] = server

        def tell_ready(started: Future[Any]) -> None:
            try:
                self._told.put(Ready(number, *started.result()))
            except lost.RayTaskError as error:  # it raised
                self._told.put(Failed(number, first_line(error.cause or error)))
            except Exception as error:  # its end is told below
                log.info("server %d ended in its start: %s", number, first_line(error))

        def tell_end(ended: Future[Any]) -> None:
            error = ended.exception()
            self._told.put(
                Lost(number, how_it_was_lost(error) if error is not None else "has left")
            )

        started = server.start.remote(message.kind, message.options, message.port, message.is_local)
        started.future().add_done_callback(tell_ready)
        server.stay.remote().future().add_done_callback(tell_end)


def _connected(wanted: Connect) -> Connected:
    """Connect to Ray, or start one."""
    common: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if wanted.address is None:
        ray.init(
            address="local",
            num_cpus=wanted.cpus,
            num_gpus=0,
            include_dashboard=False,
            object_store_memory=_OBJECT_STORE_BYTES,
            _memory=wanted.memory_bytes,
            _temp_dir=wanted.folder,
            **common,
        )
        return _found()
    ray.init(address=wanted.address, **common)
    found = _found()
    if len(found.nodes) > 1:  # what they are sent is said as one connects, and takes a while
        ray.shutdown()
        sent = {"working_dir": wanted.job_folder, "excludes": list(wanted.left_out)}
        ray.init(address=wanted.address, runtime_env=sent, **common)
        found = _found()
    return found


def _found() -> Connected:
    nodes = tuple(_node(node) for node in ray.nodes() if node["Alive"])
    return Connected(ray.get_runtime_context().get_node_id(), nodes)


def _node(told: dict[str, Any]) -> Node:
    resources = told["Resources"]
    return Node(
        told["NodeID"],
        told["NodeManagerAddress"],
        int(resources.get("CPU", 0)),
        int(resources.get("memory", 0)),
    )


def _on(node: str | None) -> NodeAffinitySchedulingStrategy:
    return NodeAffinitySchedulingStrategy(node, soft=False)


def main(channel: str) -> None:
    """Serve the driver at the other end of a channel, which is an open file, to its end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the driver decides
    _adopt_orphans()
    Gateway(Connection(int(channel))).run()


def _adopt_orphans() -> None:
    """Become the parent of what Ray's processes leave behind, so that it is found and ended."""
    with suppress(AttributeError, OSError):  # only Linux has it
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


if __name__ == "__main__":
    main(*sys.argv[1:])
