"""Write the eight tables of TPC-H as Parquet files, by tpchgen-cli."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

TABLES = ("customer", "lineitem", "nation", "orders", "part", "partsupp", "region", "supplier")

_SCALE = ".scale"


def write(scale: float, folder: Path) -> list[Path]:
    """The files of all tables in ``folder``; kept if they are there already in that scale.

    A hidden file says which scale the folder has. It is written last, so that after a run that
    was killed all files are written again. FileNotFoundError where tpchgen-cli is not installed.
    """
    paths = [folder / f"{table}.parquet" for table in TABLES]
    known = folder / _SCALE
    if known.exists() and float(known.read_text()) == scale and all(map(Path.exists, paths)):
        return paths
    folder.mkdir(parents=True, exist_ok=True)
    known.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".") as made:
        words = [generator(), "parquet", f"--scale-factor={scale}", f"--output-dir={made}"]
        subprocess.run([*words, "--quiet"], check=True, stdout=subprocess.DEVNULL)
        for path in paths:
            (Path(made) / path.name).replace(path)
    known.write_text(f"{scale}\n")
    return paths


def generator() -> str:
    """The program tpchgen-cli, beside this interpreter or elsewhere; FileNotFoundError."""
    for place in (str(Path(sys.executable).parent), None):
        if found := shutil.which("tpchgen-cli", path=place):
            return found
    raise FileNotFoundError("tpchgen-cli makes the tables of TPC-H: pip install tpchgen-cli")


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("scale", type=float, nargs="?", default=1.0, help="factor; 1 is 1 GB")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "data")
    options = parser.parse_args()
    if options.scale <= 0:
        parser.error("the scale factor is more than 0; 0.1 is quick")
    try:
        paths = write(options.scale, options.out)
    except FileNotFoundError as missing:
        sys.exit(str(missing))
    size = sum(path.stat().st_size for path in paths)
    where = os.path.relpath(options.out)
    print(f"scale factor {options.scale:g}: {len(paths)} tables, {size:,} bytes in {where}")


if __name__ == "__main__":
    main()
