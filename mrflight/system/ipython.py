"""Finds IPython, in which notebooks and some consoles run a program, without loading it."""

from __future__ import annotations

import sys
from typing import Any


def ipython_shell() -> Any:
    """Return the shell of IPython that runs this program, or None."""
    ipython = sys.modules.get("IPython")  # a shell has loaded it
    return None if ipython is None else ipython.get_ipython()


def is_notebook() -> bool:
    """Return whether this process is the kernel of a notebook, which can show HTML."""
    return hasattr(ipython_shell(), "kernel")
