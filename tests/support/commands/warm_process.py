"""The warm process: run as a script, it forks what it is asked to run.

It has imported what commands import, so that a fork of it is a command that has started. See
`tests.support.commands.warm_driver`, whose side of the socket this serves.
"""

from __future__ import annotations

import ctypes
import fcntl
import gc
import json
import os
import runpy
import selectors
import signal
import socket
import sys
import traceback
import warnings
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from typing import NoReturn

MODULES = [
    *("pyarrow", "pyarrow.flight", "pyarrow.parquet", "pyarrow.csv", "numpy", "deltalake"),
    *("pyarrow.compute", "pyarrow.acero"),
    *("mrflight.scheduler.job", "mrflight.runtime.worker"),
    *("mrflight.planner.analyze", "mrflight.scheduler.stage_scheduler"),
    *("mrflight.scheduler.direct_scheduler", "mrflight.scheduler.job_commit"),
    *("mrflight.tasks.map_output", "mrflight.tasks.reduce_task", "mrflight.tasks.direct_task"),
    *("mrflight.tasks.sample_task", "mrflight.tasks.partial_aggregate_task"),
    *("mrflight.sinks.delta.sink", "mrflight.sinks.folder.sink"),
    *("mrflight.sinks.commit.commit_lease", "mrflight.sinks.parts.part_writer"),
    "mrflight.sinks.parts.parquet_encoder",
    *("mrflight.sources.csv_source", "mrflight.sources.parquet_source"),
    *("mrflight.sources.discovery", "mrflight.sources.packed_reader"),
    *("mrflight.servers.metadata", "mrflight.servers.data"),
]
"""Modules that are loaded before a driver is forked. A driver imports what else it needs."""

WIDTH = 16
"""The bytes in which the warm process tells an id, and then an exit code."""

FORK_SERVER = "mrflight.system.fork_server.main"

MARK = "MRFLIGHT_TEST_RUN"
"""The variable by which `tests.support.commands.leftovers` knows the processes of a job."""
NO_MARK = "-" * 64


def serve(control: socket.socket) -> None:
    """Fork a process for each request, and answer with its exit code, until there are no more."""
    _load(MODULES)
    woken, waker = socket.socketpair()
    for end in (woken, waker):
        end.setblocking(False)
    signal.set_wakeup_fd(waker.fileno(), warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    running: dict[int, socket.socket] = {}
    with selectors.DefaultSelector() as selector:
        selector.register(control, selectors.EVENT_READ)
        selector.register(woken, selectors.EVENT_READ)
        while True:
            ready = [key.fileobj for key, _ in selector.select()]
            if woken in ready:
                woken.recv(4096)
                _answer_ended(running)
            if control in ready:
                header, fds, *_ = socket.recv_fds(control, 4, 5)
                if not header:
                    return
                body = _receive(control, int.from_bytes(header, "little"))
                command, environment, folder, loads = json.loads(body)
                _load(loads)
                if (pid := os.fork()) == 0:
                    signal.set_wakeup_fd(-1)
                    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                    _run(command, environment, folder, fds[1:])
                running[pid] = socket.socket(fileno=fds[0])
                with suppress(OSError):
                    running[pid].sendall(str(pid).encode().ljust(WIDTH))
                for fd in fds[1:]:
                    os.close(fd)


def _load(modules: Sequence[str]) -> None:
    """Import what is there of these modules, and keep garbage collection off them in the forks."""
    new = [module for module in modules if module not in sys.modules]
    for module in new:
        try:
            import_module(module)
        except ModuleNotFoundError as error:  # an extra that is not installed
            if str(error.name).startswith("mrflight"):
                raise
    if new:
        gc.freeze()


def _answer_ended(running: dict[int, socket.socket]) -> None:
    for pid in list(running):
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            with running.pop(pid) as asker, suppress(OSError):
                asker.sendall(str(os.waitstatus_to_exitcode(status)).encode().ljust(WIDTH))


def _run(
    command: list[str], environment: dict[str, str], folder: str, descriptors: Sequence[int]
) -> NoReturn:
    """Be a module with its words, as `python -m` would be; the descriptors are those from 0 on."""
    code = 1
    try:
        kept = [fcntl.fcntl(each, fcntl.F_DUPFD, 200) for each in descriptors]
        for number, descriptor in enumerate(kept):
            os.dup2(descriptor, number)
        os.closerange(len(kept), 256)
        os.environ.clear()
        os.environ.update(environment)
        _show_mark(environment.get(MARK, ""))
        os.chdir(folder)
        if command[0] == FORK_SERVER:
            os.setsid()
        else:
            sys.path.insert(0, folder)  # as `python -m` has it
        sys.argv = list(command)
        # It says that the module is loaded already, which it is not as __main__.
        warnings.filterwarnings("ignore", category=RuntimeWarning, module="runpy")
        runpy.run_module(command[0], run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)


def _show_mark(mark: str) -> None:
    """Write the mark where others see the environment of this process and of those it forks.

    What is seen there is the memory in which the warm process got its environment.
    """
    if not mark:
        return
    with open("/proc/self/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    start, end = int(fields[47]), int(fields[48])  # env_start and env_end: man 5 proc_pid_stat
    seen = (ctypes.c_char * (end - start)).from_address(start)
    at = seen.raw.index(f"{MARK}={NO_MARK}".encode()) + len(MARK) + 1
    seen[at : at + len(NO_MARK)] = mark.encode().ljust(len(NO_MARK), b"\0")  # it is the last


def _receive(control: socket.socket, size: int) -> bytes:
    body = bytearray()
    while len(body) < size:
        body += control.recv(size - len(body))
    return bytes(body)


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as channel:
        serve(channel)
