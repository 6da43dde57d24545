"""The fork server itself: it loads modules, forks children, and reports how they ended.

It runs in a process of its own, ``python -m mrflight.system.fork_server.main``, or in a fork of a
process that has loaded the modules already.
"""

from __future__ import annotations

import ctypes
import fcntl
import gc
import io
import json
import os
import selectors
import shutil
import signal
import socket
import sys
import traceback
import warnings
from collections.abc import Iterable, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import NoReturn

from mrflight.system.fork_server.child import NUMBER_BYTES, Streams, kill

_MAX_DESCRIPTORS = 8

_PR_SET_PDEATHSIG = 1
"""The number in linux/prctl.h."""


def load(modules: Iterable[str]) -> None:
    """Import modules for the children; an error is ignored, because the child gets it again."""
    # Importing hundreds of modules makes many objects, and no garbage to collect.
    gc.disable()
    for module in modules:
        with suppress(Exception):
            import_module(module)
    gc.freeze()  # otherwise the collector's marks would copy every page of the children
    gc.enable()


def fork_from_here(control: socket.socket, folders: Sequence[Path], modules: Sequence[str]) -> int:
    """Fork a fork server from this process and return its id; there must be no other thread."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()  # otherwise both would write what is buffered
    # A signal handler of this process must not run in the fork.
    unblocked = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        pid = _fork()
        if pid == 0:
            _serve_apart(control, folders, modules, unblocked)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, unblocked)
    return pid


def _serve_apart(
    control: socket.socket,
    folders: Sequence[Path],
    modules: Sequence[str],
    unblocked: set[signal.Signals | int],
) -> NoReturn:
    """Release, in the fork, what belongs to the driver, and serve to the end."""
    code = 1
    try:
        os.setsid()  # Ctrl-C is only for the driver, which ends the children
        for number in signal.valid_signals():
            if callable(signal.getsignal(number)):
                signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, unblocked)
        kept = fcntl.fcntl(control, fcntl.F_DUPFD_CLOEXEC, 3)
        os.closerange(3, kept)
        os.closerange(kept + 1, os.sysconf("SC_OPEN_MAX"))
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(2, 1)  # stdout of the driver is for its result
        if not sys.flags.safe_path:
            # The first folder is the driver's current one. Users' modules are in the job's folder.
            del sys.path[0]
        serve(kept, folders, modules)
        code = 0
    except BaseException:  # do not return into the code of the driver
        traceback.print_exc()
    finally:
        os._exit(code)


def serve(control: int, folders: Sequence[Path | str], modules: Sequence[str]) -> None:
    """Load modules, and fork children until the driver is gone; then remove the folders."""
    _show_as("mrflight-forks")
    _on_parent_death(signal.SIGCONT)  # if this process is stopped, it must notice the end
    load(modules)
    with socket.socket(fileno=control) as connection:
        server = _Server(connection)
        server.serve()
        server.end(folders)


def _fork() -> int:
    with warnings.catch_warnings():
        # Python 3.12 warns about threads. The allocators have some, which can handle forks.
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


class _Server:
    """Answers requests for children, and reaps them."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._children: dict[int, int] = {}
        self._woken, self._wake = os.pipe()
        for end in (self._woken, self._wake):
            os.set_blocking(end, False)

    def serve(self) -> None:
        """Fork children until the driver is gone."""
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wake)
        with selectors.DefaultSelector() as selector:
            selector.register(self._control, selectors.EVENT_READ, self._answer)
            selector.register(self._woken, selectors.EVENT_READ, self._reap)
            goes_on = True
            while goes_on:
                for key, _ in selector.select():
                    goes_on = key.data() and goes_on

    def end(self, folders: Sequence[Path | str]) -> None:
        """Kill the children that are left, and then remove ``folders``."""
        for pid in self._children:
            kill(pid)
        for pid, status in self._children.items():
            # The driver must know, because the id may be reused from now on.
            _send(status, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)

    def _answer(self) -> bool:
        """Fork one child; return False if the driver is gone."""
        size, descriptors, _, _ = socket.recv_fds(self._control, NUMBER_BYTES, _MAX_DESCRIPTORS)
        if len(size) < NUMBER_BYTES:
            return False
        expected = int.from_bytes(size, "little")
        body = self._control.recv(expected, socket.MSG_WAITALL)
        if len(body) < expected:  # the driver was killed while it wrote the request
            return False
        name, target, arguments = json.loads(body)
        for descriptor in descriptors:
            os.set_inheritable(descriptor, False)
        module, _, function = target.partition(":")
        load([module])
        status, stdout, stderr, *kept = descriptors
        streams = Streams(stdout, stderr)
        server = os.getpid()
        pid = _fork()
        if pid == 0:
            self._release()
            # The driver may not know this child yet, and it may hold locks.
            _on_parent_death(signal.SIGKILL)
            if os.getppid() != server:
                os._exit(1)
            os.close(status)
            _run_child(name, f"{module}:{function}", [*arguments, *kept], streams)
        self._children[pid] = status
        _send(status, pid)
        for descriptor in (stdout, stderr, *kept):
            os.close(descriptor)
        return True

    def _reap(self) -> bool:
        """Report the children that have ended; return True."""
        os.read(self._woken, 4096)
        for pid in list(self._children):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                pipe = self._children.pop(pid)
                _send(pipe, os.waitstatus_to_exitcode(status))
                os.close(pipe)
        return True

    def _release(self) -> None:
        """Release, in a child, what belongs to the fork server."""
        signal.set_wakeup_fd(-1)
        for descriptor in (self._woken, self._wake, *self._children.values()):
            os.close(descriptor)
        self._control.close()


def _send(status: int, number: int) -> None:
    try:
        os.write(status, number.to_bytes(NUMBER_BYTES, "little", signed=True))
    except BrokenPipeError:
        return  # the driver does not listen any more


def _run_child(name: str, target: str, arguments: list[str | int], streams: Streams) -> NoReturn:
    """Make this child a session of its own, call the function, and end."""
    code = 1
    try:
        os.setsid()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.dup2(streams.stdout, 1)
        os.dup2(streams.stderr, 2)
        for descriptor in set(streams):
            os.close(descriptor)
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(line_buffering=True)  # a worker ends by SIGKILL
        _show_as(name)
        module, _, function = target.partition(":")
        getattr(import_module(module), function)(*arguments)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # do not return into the code of the fork server
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)  # do not run the exit handlers of the fork server


def _on_parent_death(number: signal.Signals) -> None:
    """Make the kernel send this process a signal when its parent is gone, on Linux.

    It also sends the signal when only the thread that started this process has ended.
    """
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number)


def _show_as(name: str) -> None:
    """Set the name that ``ps -e`` and ``top`` show, if the system supports that."""
    try:
        with open("/proc/self/comm", "w", encoding="ascii") as comm:
            comm.write(name)
    except OSError:
        return


if __name__ == "__main__":
    control, modules, *to_remove = sys.argv[1:]
    serve(int(control), to_remove, json.loads(modules))
    # The usual end of Arrow takes 30 ms, and has no use here.
    os._exit(0)
