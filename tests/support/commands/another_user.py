"""Does something as another user, in a fork of this process, which may be wherever it is."""

from __future__ import annotations

import gc
import os
import resource
import traceback
from collections.abc import Callable

import pytest

NOBODY = 65534

needs_root = pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can become another user"
)


def as_another_user(do: Callable[[], object], files: int | None = None) -> int:
    """Return the id of a process that does it and ends with code 0, or 1 after an error.

    It may open so many ``files``.
    """
    pid = os.fork()
    if pid:
        return pid
    try:
        gc.freeze()  # what other tests have left of gRPC must not be collected here
        if files is not None:
            resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
        do()
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def code_of(pid: int) -> int:
    """Wait for a process and return its exit code."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
