"""Does something in a process of its own, whose memory nobody else uses."""

from __future__ import annotations

import gc
import os
import traceback
from collections.abc import Callable


def in_own_process(do: Callable[[], object]) -> None:
    """Do it in a fork of this process; raises AssertionError with what it raised there.

    Other threads do not run there, and what other tests have left is not freed there.
    """
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            gc.freeze()  # clients of gRPC that other tests have left must not be collected here
            do()
        except BaseException:
            os.write(writing, traceback.format_exc().encode()[-60_000:])
        finally:
            os._exit(0)
    os.close(writing)
    with open(reading, encoding="utf-8") as raised:
        said = raised.read()
    status = os.waitpid(pid, 0)[1]
    assert not said, said
    assert status == 0, f"it ended with {os.waitstatus_to_exitcode(status)}"
