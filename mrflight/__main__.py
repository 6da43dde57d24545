"""The entry point of the ``mrflight`` command, which is in `mrflight.frontend.cli`."""

from __future__ import annotations

import gc
import sys

from mrflight.system.early_interrupt import leave_when_interrupted


def main() -> int:
    """Run the command and return the exit code."""
    leave_when_interrupted()
    gc.disable()  # imports make no garbage, and looking for it is a tenth of their time
    from mrflight.frontend import cli  # takes 0.1 s, in which an interrupt may come

    gc.enable()
    return cli.main()


if __name__ == "__main__":
    sys.exit(main())
