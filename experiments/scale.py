"""Simulate a job of 100 nodes and 10 TB: its driver, its planner and its metadata server.

    python -m experiments.scale [--sizes 1000,3000,10000] [--servers 200] [--loses] [--out FOLDER]

No rows are moved; everything else is real. As many maps as partitions are planned. A metadata
server with its journal places the partitions on simulated data servers, which only send heartbeats.
Maps ask where to write, and commit with the rows and bytes of every partition. Reduces answer with
part files. Each size has a driver of its own. The result is compared with what was sent.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

import msgspec

from experiments import datasets, report
from experiments.datasets import WORK
from experiments.scaling.run import Run
from experiments.scaling.tables import page


def _measured(size: int, servers: int, *, loses: bool) -> Run:
    """Run one size, in a driver of its own."""
    command = [sys.executable, "-m", "experiments.scaling.run", "--servers", str(servers)]
    command += ["--maps", str(size), "--partitions", str(size), *(["--loses"] if loses else [])]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, cwd=datasets.REPOSITORY)
    return msgspec.json.decode(done.stdout, type=Run)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--sizes", default="1000,3000,10000", help="maps, and partitions")
    parser.add_argument("--servers", type=int, default=200)
    parser.add_argument("--loses", action="store_true", help="lose a data server as well, once")
    parser.add_argument("--out", type=Path, default=WORK / "scale")
    options = parser.parse_args()
    sizes = [int(text) for text in options.sizes.split(",")]
    runs = [_measured(size, options.servers, loses=False) for size in sizes]
    if options.loses:
        runs.append(_measured(sizes[-1], options.servers, loses=True))
    report.write(options.out, "scale", {"runs": runs}, page(runs))


if __name__ == "__main__":
    main()
