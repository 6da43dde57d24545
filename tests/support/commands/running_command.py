"""A command that runs beside a test, and ends with it at the latest."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager


@contextmanager
def running_command(
    command: Sequence[str], environment: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[str]]:
    """Start a command whose output the test reads; kill it if it has not ended by itself."""
    with subprocess.Popen(
        command,
        env={**os.environ, **(environment or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()
