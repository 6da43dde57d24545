"""The temporary folder of a server: its settings, data and log."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mrflight.system.parent_watch import ParentWatch
from tests.services import janitor


@contextmanager
def service_folder(name: str) -> Iterator[Path]:
    """Gone at the end, and also when this process is killed: a janitor sees to it in both cases."""
    folder = Path(tempfile.mkdtemp(prefix=f"mrflight-{name}-"))
    lock = ParentWatch(folder / "parent.lock")
    removal = subprocess.Popen(
        [sys.executable, "-I", "-S", janitor.__file__, str(folder)],
        stdin=subprocess.DEVNULL,
        start_new_session=True,  # it outlives Ctrl-C, and a signal to the tests' whole group
    )
    try:
        yield folder
    finally:
        lock.close()
        removal.wait()
