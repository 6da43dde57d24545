"""The fork server's own side: it loads modules, forks children, and tells how they ended.

It runs in a process that was started for it, ``python -m mrflight.system.fork_server.main``, or
in a fork of one that has loaded the modules already.
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

from mrflight.system.fork_server.child import NUMBER_BYTES, kill

_MOST_DESCRIPTORS = 8

_PR_SET_PDEATHSIG = 1
"""linux/prctl.h"""


def load(modules: Iterable[str]) -> None:
    """Import what the children will need; what cannot be imported the child meets again."""
    # Hundreds of modules make many objects and no garbage to look for.
    gc.disable()
    for module in modules:
        with suppress(Exception):
            import_module(module)
    gc.freeze()  # or the collector's marks would copy every page of the children
    gc.enable()


def fork_from_here(control: socket.socket, folders: Sequence[Path], modules: Sequence[str]) -> int:
    """Fork a fork server from this process, whose only thread calls this; its process id."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()  # or both would write what is buffered
    # A handler of this process must not run in the other one.
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
    """In the fork: let go of all that was the other process's, and serve to the end."""
    code = 1
    try:
        os.setsid()  # Ctrl-C is for the driver, which ends the children
        for number in signal.valid_signals():
            if callable(signal.getsignal(number)):
                signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, unblocked)
        kept = fcntl.fcntl(control, fcntl.F_DUPFD_CLOEXEC, 3)
        os.closerange(3, kept)
        os.closerange(kept + 1, os.sysconf("SC_OPEN_MAX"))
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(2, 1)  # the driver's stdout is for its result
        if not sys.flags.safe_path:
            del sys.path[0]  # where the driver was started: modules of the user come from the job's
        serve(kept, folders, modules)
        code = 0
    except BaseException:  # the end of the process: what is above is the driver's
        traceback.print_exc()
    finally:
        os._exit(code)


def serve(control: int, folders: Sequence[Path | str], modules: Sequence[str]) -> None:
    """Load modules, and fork what is asked for; once the driver is gone, remove the folders."""
    _show_as("mrflight-forks")
    _when_orphaned(signal.SIGCONT)  # somebody may have stopped this: it could not see the end
    load(modules)
    with socket.socket(fileno=control) as connection:
        server = _Server(connection)
        server.serve()
        server.end(folders)


def _fork() -> int:
    with warnings.catch_warnings():
        # Python 3.12 warns of threads: there are those of allocators, which know of forks.
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


class _Server:
    """The fork server's own side."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._children: dict[int, int] = {}
        self._woken, self._wake = os.pipe()
        for end in (self._woken, self._wake):
            os.set_blocking(end, False)

    def serve(self) -> None:
        """Fork what is asked for, until the driver is gone."""
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
        """End the children that are left, then remove ``folders``."""
        for pid in self._children:
            kill(pid)
        for pid, status in self._children.items():
            # Told, as the id may be another's from now on.
            _tell(status, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)

    def _answer(self) -> bool:
        """Fork one child; False where the driver is gone."""
        size, descriptors, _, _ = socket.recv_fds(self._control, NUMBER_BYTES, _MOST_DESCRIPTORS)
        if len(size) < NUMBER_BYTES:
            return False
        told = int.from_bytes(size, "little")
        body = self._control.recv(told, socket.MSG_WAITALL)
        if len(body) < told:  # it was killed in the middle of asking
            return False
        name, target, arguments = json.loads(body)
        for descriptor in descriptors:
            os.set_inheritable(descriptor, False)
        module, _, function = target.partition(":")
        load([module])
        status, stdout, stderr, *kept = descriptors
        server = os.getpid()
        pid = _fork()
        if pid == 0:
            self._let_go()
            _when_orphaned(signal.SIGKILL)  # whom nobody may know yet, and who may hold locks
            if os.getppid() != server:
                os._exit(1)
            _become(name, module, function, [*arguments, *kept], stdout, stderr, unused=status)
        self._children[pid] = status
        _tell(status, pid)
        for descriptor in (stdout, stderr, *kept):
            os.close(descriptor)
        return True

    def _reap(self) -> bool:
        """Tell how the children ended that did; True, as it goes on."""
        os.read(self._woken, 4096)
        for pid in list(self._children):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                told = self._children.pop(pid)
                _tell(told, os.waitstatus_to_exitcode(status))
                os.close(told)
        return True

    def _let_go(self) -> None:
        """In a child: of all that is the fork server's."""
        signal.set_wakeup_fd(-1)
        for descriptor in (self._woken, self._wake, *self._children.values()):
            os.close(descriptor)
        self._control.close()


def _tell(status: int, number: int) -> None:
    try:
        os.write(status, number.to_bytes(NUMBER_BYTES, "little", signed=True))
    except BrokenPipeError:
        return  # the driver does not want to know


def _become(
    name: str,
    module: str,
    function: str,
    arguments: list[str | int],
    stdout: int,
    stderr: int,
    unused: int,
) -> NoReturn:
    """In a child: be a process of its own, call the function, and end."""
    code = 1
    try:
        os.setsid()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.close(unused)
        os.dup2(stdout, 1)
        os.dup2(stderr, 2)
        for descriptor in {stdout, stderr}:
            os.close(descriptor)
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(line_buffering=True)  # a worker ends by SIGKILL
        _show_as(name)
        getattr(import_module(module), function)(*arguments)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # the end of the process: there is nobody above
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)  # what the fork server would do at its end is not ours


def _when_orphaned(number: signal.Signals) -> None:
    """Have the system send this process a signal when its parent is gone, where that is Linux.

    It also does when only the thread of the parent ends that started this process.
    """
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number)


def _show_as(name: str) -> None:
    """Name the process, as ``ps -e`` and ``top`` show it, where the system has a place for that."""
    try:
        with open("/proc/self/comm", "w", encoding="ascii") as comm:
            comm.write(name)
    except OSError:
        return


if __name__ == "__main__":
    given, modules, *to_remove = sys.argv[1:]
    serve(int(given), to_remove, json.loads(modules))
    # Arrow's own end takes 30 ms, and there is nobody whom it could matter to.
    os._exit(0)
