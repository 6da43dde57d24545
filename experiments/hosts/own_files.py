"""Give this mount namespace folders of its own, and hold it until the input ends.

The arguments are paths that are still seen, also where they are below one of these folders. It is
run by its path, by a Python that may be below one of them too.
"""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path

OWN = ("/tmp", "/dev/shm")
"""The folders for temporary files, sockets and shared memory, which no two hosts share."""
_MS_BIND, _MS_REC = 4096, 16384


def mount(source: str, target: str, kind: str, flags: int = 0) -> None:
    """Mount a file system by the system call; raise OSError if it fails."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(source.encode(), target.encode(), kind.encode(), flags, None):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), target)


def cover(own: str, kept: list[str]) -> None:
    """Mount an empty file system at ``own``, and put what is ``kept`` of the old one into it."""
    below = sorted({path for path in kept if Path(own) in Path(path).parents})
    opened = {path: os.open(path, os.O_PATH) for path in below}
    mount("tmpfs", own, "tmpfs")
    Path(own).chmod(0o1777)
    for path, descriptor in opened.items():
        if not os.path.exists(path):  # it may be below another one
            os.makedirs(path)
            mount(f"/proc/self/fd/{descriptor}", path, "none", _MS_BIND | _MS_REC)
        os.close(descriptor)


def main() -> None:
    for own in OWN:
        cover(own, sys.argv[1:])
    print("ready", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
