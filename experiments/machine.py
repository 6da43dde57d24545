"""Describe the machine of a measurement, for its report."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from importlib import metadata
from pathlib import Path

_PACKAGES = ("mrflight", "pyarrow", "joblib", "deltalake", "duckdb", "polars", "datafusion")


def cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def use_cores(count: int) -> None:
    """Keep this process, and all that it starts, to so many cores, where the system can do that."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:count])


def fill_memory(size: int) -> None:
    """Use memory and let it go, in a process that ends.

    The host of a virtual machine may take freed memory back, and is slow to give it again. That
    would count against the first who needs it.
    """
    subprocess.run([sys.executable, "-I", "-S", "-c", f"bytearray(b'1') * {size}"], check=True)


def description() -> dict[str, object]:
    """Return the processor, the cores, the memory and the versions of the compared packages."""
    return {
        "processor": _processor(),
        "cores": cores(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "packages": {name: version for name in _PACKAGES if (version := _version(name))},
    }


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
