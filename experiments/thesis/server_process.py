"""A server in a process of its own, which ends with the process that started it."""

from __future__ import annotations

import select
import subprocess
import sys
from types import TracebackType
from typing import Self

_READY_TIMEOUT_S = 60.0
_STOP_TIMEOUT_S = 10.0


class ServerProcess:
    """Runs ``python -m module arguments`` until the ``with`` block is left.

    The server prints its location when it is ready, and ends with its standard input.
    """

    def __init__(self, module: str, *arguments: str) -> None:
        command = [sys.executable, "-m", module, *arguments]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def location(self) -> str:
        """Wait until the server is ready and return its location.

        RuntimeError is raised if it ends before that.
        """
        output = self._process.stdout
        assert output is not None
        ready, _, _ = select.select([output], [], [], _READY_TIMEOUT_S)
        line = output.readline().strip() if ready else ""
        if not line:
            raise RuntimeError(f"{self._process.args!r} did not get ready")
        return line

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        pipe, output = self._process.stdin, self._process.stdout
        assert pipe is not None
        assert output is not None
        pipe.close()
        try:
            self._process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        output.close()
