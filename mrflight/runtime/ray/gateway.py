"""The process that connects to Ray for a driver: ``python -m mrflight.runtime.ray.gateway``.

Ray takes over the process that connects to it. It installs a handler of SIGTERM, prints on stdout
which workers died, and ends the process when Ray's control store is gone. What it starts ends with
the thread that started it. So the gateway is a process of its own, and the driver goes on.
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
from ray import exceptions
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from mrflight.runtime.ray.actor_pool import ActorPool
from mrflight.runtime.ray.losses import describe_loss, first_line
from mrflight.runtime.ray.messages import (
    Answered,
    Connect,
    Connected,
    Failed,
    Lost,
    Node,
    Payload,
    Ready,
    Refused,
    StartServer,
    StartTask,
    StartWorkers,
    Stop,
    WorkerContext,
)
from mrflight.runtime.ray.server_actor import MrflightData, MrflightMetadata
from mrflight.runtime.ray.worker_actor import run_once
from mrflight.system.scratch import remove_dead_folders

log = logging.getLogger(__name__)

_OBJECT_STORE_BYTES = 80 * 2**20
"""For a Ray that is started here. It needs at least 75 MiB. Blocks do not use it."""

_PR_SET_CHILD_SUBREAPER = 36
"""The number in linux/prctl.h."""

_CALL_TIMEOUT_S = 0.5
_END_TIMEOUT_S = 1.0
"""For a call to Ray that does not return, and for workers that Ray ends. The driver waits for 2.5 s
for the end of the gateway."""

_STARTS = 3
"""How often a Ray is started that is not ready in time."""

_SERVER_CALLS = 3
"""How many calls a server's actor answers at the same time: start, stay and close."""


class Gateway:
    """Carries out the requests of ``channel``, and reports their results, until it closes."""

    def __init__(self, channel: Connection) -> None:
        self._channel = channel
        self._requests: SimpleQueue[Any] = SimpleQueue()
        self._reports: SimpleQueue[Any] = SimpleQueue()
        self._owns_ray = False
        self._scratch_roots: tuple[str, ...] = ()
        self._servers: dict[int, Any] = {}
        """Includes servers that have ended, because one may only be unreachable."""
        self._job: WorkerContext | None = None
        self._strategy: Any = "SPREAD"
        self._calling = threading.Lock()
        """Held during calls to Ray, and kept by `_leave`: a later call would start another Ray, or
        end this process before it has finished."""
        self._leaves = threading.Event()

    def run(self) -> None:
        """Run in the main thread; the processes that Ray starts end with it."""
        for target, name in ((self._listen, "listening"), (self._report, "reporting")):
            threading.Thread(target=target, name=name, daemon=True).start()
        connect = self._requests.get()
        self._owns_ray = connect.address is None
        self._scratch_roots = connect.scratch_roots
        try:
            connected = _connect(connect)
        except Exception as error:  # report any error of Ray
            self._reports.put(Refused(first_line(error)))
        else:
            if len(connected.nodes) == 1:  # servers listen on loopback, so no other node will do
                self._strategy = _on(connected.home)
            self._reports.put(connected)
        while not self._leaves.is_set():
            request = self._requests.get()
            with self._calling:
                self._do_unless_it_leaves(request)
        while True:  # `_listen` ends the process
            signal.pause()

    def _listen(self) -> None:
        """Take requests until the driver is gone or closes the channel; then end the process."""
        with suppress(EOFError, OSError):
            while True:
                self._requests.put(self._channel.recv())
        try:
            self._leave()
            for root in self._scratch_roots:
                remove_dead_folders(Path(root))  # the driver's, if it was killed
        finally:
            os._exit(0)

    def _leave(self) -> None:
        self._leaves.set()
        self._calling.acquire(timeout=_CALL_TIMEOUT_S)
        if not self._owns_ray:
            # Ray ends everything that was started here within 0.05 s, and then saves statistics
            # for 0.25 s, which need not be waited for.
            leaving = threading.Thread(target=ray.shutdown, name="leaving", daemon=True)
            leaving.start()
            if self._job is not None and (workers := self._workers.here()):
                _, late = psutil.wait_procs(workers, _END_TIMEOUT_S)
                _kill(late)  # on a busy machine Ray takes longer
            else:
                leaving.join()
            return
        _kill_children()  # all of them belong to this job

    def _report(self) -> None:
        """Send reports in a thread, so that Ray's threads never wait for the driver."""
        with suppress(OSError):  # the driver is gone, and this process ends in a moment
            while True:
                self._channel.send(self._reports.get())

    def _do_unless_it_leaves(self, message: Any) -> None:
        try:
            self._do(message)
        except Exception as error:  # `_leave` did not wait for a call that took too long
            if not self._leaves.is_set():
                raise
            log.info("not done, because the gateway is leaving Ray: %s", first_line(error))

    def _do(self, message: Any) -> None:
        match message:
            case WorkerContext():
                self._job = message
                self._workers = ActorPool(
                    message, self._strategy, self._reports.put, self._requests.put
                )
            case StartWorkers(workers):
                self._workers.keep(workers)
            case Payload():
                self._workers.add_payload(message)
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
            case call:  # from another thread, by the pool of workers
                call()

    def _start_once(self, message: StartTask) -> None:
        """Run a call on a certain node. Such a call cannot be stopped."""
        number = message.number
        task = (
            ray.remote(run_once)
            .options(max_retries=0, num_cpus=0, scheduling_strategy=_on(message.node))
            .remote(self._job, message.call)
        )

        def report(ended: Future[Any]) -> None:
            try:
                node, pid, answer = ended.result()
                self._reports.put(Answered(number, answer, node, pid))
            except Exception as error:
                self._reports.put(Lost(number, describe_loss(error)))

        task.future().add_done_callback(report)

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

        def report_ready(started: Future[Any]) -> None:
            try:
                self._reports.put(Ready(number, *started.result()))
            except exceptions.RayTaskError as error:  # the server raised an error
                self._reports.put(Failed(number, first_line(error.cause or error)))
            except Exception as error:  # its end is reported below
                log.info("server %d ended in its start: %s", number, first_line(error))

        def report_end(ended: Future[Any]) -> None:
            error = ended.exception()
            self._reports.put(
                Lost(number, describe_loss(error) if error is not None else "has left")
            )

        started = server.start.remote(
            message.kind, message.options, message.port, message.credentials
        )
        started.future().add_done_callback(report_ready)
        server.stay.remote().future().add_done_callback(report_end)


def _connect(request: Connect) -> Connected:
    """Connect to Ray, or start one."""
    common: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if request.address is None:
        _start_ray(request, common)
        return _describe_ray()
    ray.init(address=request.address, **common)
    found = _describe_ray()
    if len(found.nodes) > 1:  # the job's folder is sent when one connects, which takes a while
        ray.shutdown()
        sent = {"working_dir": request.job_folder, "excludes": list(request.excluded)}
        ray.init(address=request.address, runtime_env=sent, **common)
        found = _describe_ray()
    return found


def _start_ray(request: Connect, common: dict[str, Any]) -> None:
    """Start a Ray, again if it was late: it gives itself 30 s, which no option changes."""
    for left in reversed(range(_STARTS)):
        try:
            ray.init(
                address="local",
                num_cpus=request.cpus,
                num_gpus=0,
                include_dashboard=False,
                object_store_memory=_OBJECT_STORE_BYTES,
                _memory=request.memory_bytes,
                _temp_dir=request.folder,
                **common,
            )
            return
        except Exception as error:  # Ray has no class for it
            if not left or "timed out during startup" not in str(error):
                raise
            log.info("Ray was not ready in time, and is started again: %s", error)
            _kill_children()
            ray.shutdown()


def _kill_children() -> None:
    """Kill all processes below this one, also those that start meanwhile."""
    this = psutil.Process()
    while children := this.children(recursive=True):
        _kill(children)


def _kill(processes: list[psutil.Process]) -> None:
    """Kill processes, and wait until they are gone."""
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(processes, 1.0)


def _describe_ray() -> Connected:
    nodes = tuple(_node(node) for node in ray.nodes() if node["Alive"])
    return Connected(ray.get_runtime_context().get_node_id(), nodes)


def _node(info: dict[str, Any]) -> Node:
    resources = info["Resources"]
    return Node(
        info["NodeID"],
        info["NodeManagerAddress"],
        int(resources.get("CPU", 0)),
        int(resources.get("memory", 0)),
    )


def _on(node: str | None) -> NodeAffinitySchedulingStrategy:
    return NodeAffinitySchedulingStrategy(node, soft=False)


def main(channel: str) -> None:
    """Serve the driver over a channel, which is an open file, until it closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the driver decides
    _adopt_orphans()
    Gateway(Connection(int(channel))).run()


def _adopt_orphans() -> None:
    """Become the parent of processes that Ray's processes leave, so that they can be ended."""
    with suppress(AttributeError, OSError):  # only Linux has it
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


if __name__ == "__main__":
    main(*sys.argv[1:])
