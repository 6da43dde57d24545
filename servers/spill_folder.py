"""The folder to which a data server spills."""

from __future__ import annotations

import os
from pathlib import Path

from mrflight.errors import JobFileError
from mrflight.system.scratch import ScratchFolder, remove_dead_folders


def new_spill_folder(root: Path) -> ScratchFolder:
    """Return a new folder below ``root``, which is created and cleared of dead servers' folders."""
    try:
        root.mkdir(parents=True, exist_ok=True)
        remove_dead_folders(root)
    except OSError as error:
        raise JobFileError(f"--spill-dir {root}: {error}") from error
    if not os.access(root, os.W_OK | os.X_OK):
        raise JobFileError(f"--spill-dir {root}: it cannot be written to")
    return ScratchFolder("spill", root)
