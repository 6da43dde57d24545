"""Let a shared library be loaded where glibc is older than the one that it was linked with.

    python experiments/querying/older_glibc.py LIBRARY.so [GLIBC_2.39]

The library must only need that version for functions that it can do without (`objdump -T` shows
them as weak). Its reference to the version is marked as weak too, so that the loader ignores it.
"""

from __future__ import annotations

import struct
import sys
from pathlib import Path

WEAK = 2  # VER_FLG_WEAK of elf.h


def weakened(library: bytes, version: str) -> bytes:
    """Return a library whose reference to a version is weak."""
    needed = struct.pack("<IH", elf_hash(version), 0)
    if library.count(needed) != 1:
        raise ValueError(f"the library has {library.count(needed)} references to {version}, not 1")
    return library.replace(needed, struct.pack("<IH", elf_hash(version), WEAK))


def elf_hash(name: str) -> int:
    """Return the hash of a name in ELF's tables, as the System V ABI defines it."""
    value = 0
    for byte in name.encode():
        value = (value << 4) + byte
        high = value & 0xF0000000
        value = (value ^ (high >> 24)) & ~high
    return value


def main() -> None:
    path, *version = sys.argv[1:]
    library = Path(path).read_bytes()
    Path(path).write_bytes(weakened(library, *(version or ["GLIBC_2.39"])))


if __name__ == "__main__":
    main()
