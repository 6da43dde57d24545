"""Says which kernel there is, without loading it."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Literal


def kernel_language() -> Literal["rust", "python"]:
    """Return what the kernel is written in: Rust, unless that was not built with the package."""
    return "rust" if find_spec("mrflight._kernel") is not None else "python"
