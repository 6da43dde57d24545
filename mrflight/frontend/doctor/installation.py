"""What is installed: the kernel and the extras."""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterator

from mrflight import __version__
from mrflight.compute.kernel_choice import kernel_language
from mrflight.frontend.doctor.finding import Finding
from mrflight.frontend.installation import installed_extras


def installation() -> Iterator[Finding]:
    """Yield what was found of the package that runs here."""
    where = f"mrflight {__version__}, Python {platform.python_version()} at {sys.executable}"
    yield Finding("package", "ok", where)
    if kernel_language() == "rust":
        yield Finding("kernel", "ok", "native (Rust)")
    else:
        yield Finding(
            "kernel",
            "warning",
            "in Python, with which maps take two to three times as long",
            "install a wheel for this platform, or Rust from https://rustup.rs, and then mrflight "
            "again: pip install --force-reinstall --no-deps mrflight",
        )
    found, missing = installed_extras()
    yield Finding("extras", "ok", ", ".join(found) or "none")
    if missing:
        yield Finding("not installed", "ok", ", ".join(missing))
