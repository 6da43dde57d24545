"""The ``mrflight`` command, which `mrflight.frontend.cli` is, from its first moment on."""

from __future__ import annotations

import sys

from mrflight.system.early_interrupt import leave_when_interrupted


def main() -> int:
    """Run the command; the exit code."""
    leave_when_interrupted()
    from mrflight.frontend import cli  # takes a tenth of a second, in which an interrupt may come

    return cli.main()


if __name__ == "__main__":
    sys.exit(main())
