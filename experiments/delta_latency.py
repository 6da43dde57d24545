"""Measure how long Delta tables take to be written and read (Manfredi, KTH 2024, section 3.2).

    python -m experiments.delta_latency [--repeats N] [--out FOLDER] [--data FOLDER]
        [--tables supplier-1,...] [--stores hdfs,disk] [--cores 1,2]
        [--operations write,read] [--systems mrflight,mrflight-snappy,...]
        [--memory SIZE]

TPC-H's supplier at scale factors 1, 10 and 100 and lineitem at 1 and 10 are written and read on an
HDFS of its own and on the local disk, by mrflight and by delta-rs. The measured process is pinned
to some cores; the servers of HDFS and everything else may use all cores. Every repeat runs all
cells once, so that those that are compared run one after the other. Runs that are in the JSON are
not repeated. The output is ``delta_latency.json``, ``.md`` (tables 5.1 to 5.4, with the thesis's
figures beside ours, and ratios) and the histograms as PNG.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from experiments import machine
from experiments.datasets import WORK
from experiments.latency import figures, tables
from experiments.latency.cells import SYSTEMS, THESIS_DATA, Cell, Data, cells
from experiments.latency.results import Results
from experiments.latency.runs import Runner
from mrflight.units import parse_bytes
from tests.services.hdfs import running_hdfs

SERVERS = "an HDFS of one name node and two data nodes on the same machine, on all of its cores"


def measure(runner: Runner, all_cells: Sequence[Cell], repeats: int, results: Results) -> None:
    """Make the missing runs; every other repeat goes backwards."""
    for repeat in range(repeats):
        for cell in all_cells if repeat % 2 else reversed(all_cells):
            if len(results.of(cell)) <= repeat:
                results.add(cell, runner.run(cell))
                run = results.of(cell)[-1]
                line = f"{cell.name}: {run.call_s:.3f} s, process {run.process_s:.2f} s"
                print(f"{repeat + 1}/{repeats} {line}", file=sys.stderr, flush=True)


def _list_of(*known: str) -> Callable[[str], list[str]]:
    """Return a parser of words split by commas, which must be among the known ones."""

    def parse(text: str) -> list[str]:
        words = text.split(",")
        for word in words:
            if word not in known:
                raise argparse.ArgumentTypeError(f"{word!r} is none of {', '.join(known)}")
        return words

    return parse


def _tables(text: str) -> list[Data]:
    found = [re.fullmatch(r"(supplier|lineitem)-([0-9.]+)", word) for word in text.split(",")]
    if not all(found):
        raise argparse.ArgumentTypeError(f"{text!r} is not like supplier-10,lineitem-0.1")
    return [Data(match[1], float(match[2])) for match in found if match]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--repeats", type=int, default=50)
    default = ",".join(f"{data.table}-{data.scale:g}" for data in THESIS_DATA)
    parser.add_argument("--tables", type=_tables, default=default, help="table-scale,...")
    parser.add_argument("--stores", type=_list_of("hdfs", "disk"), default="hdfs,disk")
    cores = [str(number + 1) for number in range(machine.cores())]
    parser.add_argument("--cores", type=_list_of(*cores), default=",".join(cores[:2]))
    parser.add_argument("--operations", type=_list_of("write", "read"), default="write,read")
    parser.add_argument("--systems", type=_list_of(*SYSTEMS), default="mrflight,delta-rs")
    parser.add_argument(
        "--memory", help='of a job, like "2 GiB"; its default is half of what is free'
    )
    parser.add_argument(
        "--touch", default="0 B", help="memory that is filled, and freed, before each run: 13 GiB"
    )
    parser.add_argument("--python", type=Path, default=Path(sys.executable), help="has tpchgen-cli")
    parser.add_argument("--data", type=Path, default=WORK / "data")
    parser.add_argument("--out", type=Path, default=WORK / "delta_latency")
    return parser


def main() -> None:
    parser = _parser()
    options = parser.parse_args()
    stores, cores = options.stores, [int(text) for text in options.cores]
    all_cells = list(cells(options.tables, options.operations, stores, cores, options.systems))
    options.out.mkdir(parents=True, exist_ok=True)
    options.data.mkdir(parents=True, exist_ok=True)
    memory = options.memory or "half of what is free"
    settings = {"servers": SERVERS, "cluster.memory": memory, "filled before": options.touch}
    try:
        results = Results.load(options.out / "delta_latency.json", settings)
    except ValueError as error:
        parser.error(str(error))
    with ExitStack() as stack:
        roots = {}
        if "hdfs" in stores:
            roots["hdfs"] = stack.enter_context(running_hdfs(java_options=())).folder()
        if "disk" in stores:
            temporary = tempfile.TemporaryDirectory(dir=options.data, prefix="tables-")
            roots["disk"] = stack.enter_context(temporary)
        runner = Runner(
            roots,
            options.data.absolute(),
            options.python,
            options.memory,
            parse_bytes(options.touch),
        )
        measure(runner, all_cells, options.repeats, results)
    page = tables.page(results)
    (options.out / "delta_latency.md").write_text(page)
    figures.draw(results, options.out)
    print(page)


if __name__ == "__main__":
    main()
