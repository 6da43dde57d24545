"""Run a command on some cores: ``python pinned.py COUNT COMMAND...``, in the same process."""

from __future__ import annotations

import os
import sys


def main() -> None:
    first = sorted(os.sched_getaffinity(0))[: int(sys.argv[1])]
    os.sched_setaffinity(0, first)
    os.execvp(sys.argv[2], sys.argv[2:])


if __name__ == "__main__":
    main()
