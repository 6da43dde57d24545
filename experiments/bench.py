"""mrflight beside DuckDB, Polars and DataFusion: the clicks job, csv in, parquet out.

Every run is a process of its own, timed from its start to its end, over the
same files in warm memory with the same number of threads. All take turns in
each round, from another one on each time, so that a slow moment of the machine
falls on all. Every result is checked. mrflight's is a committed Delta table.

    python -m experiments.bench
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import statistics
import sys
import tempfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from experiments import datasets, machine, mrflight_job, oracle, timed_process

PEERS = ("duckdb", "polars", "datafusion")

Round = dict[str, dict[str, Any]]
"""By contestant: ``wall_s`` and ``peak_rss_bytes``."""


def run(
    contestant: str, inputs: list[Path], work: Path, settings: list[str]
) -> timed_process.Timed:
    """One run of ``mrflight`` or a peer; its result is left in ``work``."""
    result = work / "result"
    if contestant == "mrflight":
        command = mrflight_job.command(inputs, result, settings)
    else:
        module = f"experiments.peers.{contestant}"
        where = [f"{inputs[0].parent}/*.csv", str(result), str(machine.cores())]
        command = [sys.executable, "-m", module, *where]
    return timed_process.run(command, mrflight_job.TIMEOUT_S)


def result_of(contestant: str, work: Path) -> pa.Table:
    """What that run left."""
    if contestant == "mrflight":
        return mrflight_job.read_table(work / "result").select(["url", "clicks"])
    result = work / "result"
    parts = sorted(result.glob("*.parquet")) if result.is_dir() else [result]
    return pa.concat_tables([pq.ParquetFile(part).read(["url", "clicks"]) for part in parts])


def rounds(
    data: datasets.DataSet,
    contestants: Sequence[str],
    count: int,
    settings: list[str],
    folder: Path,
) -> list[Round]:
    """So many rounds over one data set; raises if any result is wrong."""
    inputs = datasets.generate(data, folder)
    expected = oracle.clicks_of(inputs)
    made: list[Round] = []
    for number in range(count):
        turn = number % len(contestants)
        this: Round = {}
        for contestant in (*contestants[turn:], *contestants[:turn]):
            work = folder / "run"
            work.mkdir()
            datasets.warm(inputs)
            timed = run(contestant, inputs, work, settings)
            oracle.check(result_of(contestant, work), expected, contestant)
            shutil.rmtree(work)
            this[contestant] = {"wall_s": timed.wall_s, "peak_rss_bytes": timed.peak_rss_bytes}
        made.append(this)
        print(f"{data.keys} keys, round {number + 1}: {_round_line(this)}", file=sys.stderr)
    return made


def ratios(made: list[Round], peer: str) -> list[float]:
    """Mrflight's time over the peer's, round by round: below 1, mrflight is faster."""
    return [this["mrflight"]["wall_s"] / this[peer]["wall_s"] for this in made]


def _round_line(this: Round) -> str:
    ours = this["mrflight"]["wall_s"]
    return ", ".join(
        f"{name} {times['wall_s']:.2f} s"
        + ("" if name == "mrflight" else f" (ratio {ours / times['wall_s']:.2f})")
        for name, times in sorted(this.items(), key=lambda item: item[1]["wall_s"])
    )


def table(data: datasets.DataSet, made: list[Round]) -> str:
    """The rounds over one data set as a markdown table."""
    sites = "a key per row" if data.keys == "unique" else f"{data.keys} keys"
    lines = [
        f"**{data.rows:,} rows, {sites}**: median of {len(made)} rounds (range)",
        "",
        "| | seconds | mrflight's time over its | peak memory, MiB |",
        "| --- | --- | --- | --- |",
    ]
    for name in sorted(made[0], key=["mrflight", *PEERS].index):
        walls = _median_and_range([this[name]["wall_s"] for this in made])
        ratio = "1" if name == "mrflight" else _median_and_range(ratios(made, name))
        lines.append(f"| {name} | {walls} | {ratio} | {_memory(made, name)} |")
    return "\n".join(lines) + "\n"


def _median_and_range(values: list[float]) -> str:
    return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


def _memory(made: list[Round], name: str) -> str:
    peaks = [this[name]["peak_rss_bytes"] for this in made]
    known = [peak for peak in peaks if peak is not None]
    return f"{statistics.median(known) / 2**20:.0f}" if known else "-"


def _options() -> argparse.Namespace:
    installed = [peer for peer in PEERS if find_spec(peer)]
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, default=15_000_000)
    parser.add_argument("--files", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--keys", default="unique,10", help="numbers of sites, or 'unique'")
    parser.add_argument("--peers", default=",".join(installed), help="default: what is installed")
    parser.add_argument("--set", action="append", default=[], help="passed to mrflight's driver")
    parser.add_argument("--work", type=Path, help="where the temporary folder is made")
    parser.add_argument("--out", type=Path, default=datasets.REPOSITORY / "experiments/.work/bench")
    options = parser.parse_args()
    for peer in options.peers.split(","):
        if peer not in installed:
            parser.error(f"{peer} is not installed; there are {', '.join(installed) or 'none'}")
    return options


def main() -> None:
    """The command line."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started is ended
    options = _options()
    contestants = ("mrflight", *options.peers.split(","))
    made: dict[str, list[Round]] = {}
    tables = []
    with tempfile.TemporaryDirectory(dir=options.work, prefix="bench-") as folder:
        for keys in options.keys.split(","):
            data = datasets.DataSet(keys, options.rows, options.files)
            made[keys] = rounds(data, contestants, options.rounds, options.set, Path(folder))
            tables.append(table(data, made[keys]))
    options.out.mkdir(parents=True, exist_ok=True)
    report = {"machine": machine.description(), "rows": options.rows, "rounds": made}
    (options.out / "bench.json").write_text(json.dumps(report, indent=1))
    (options.out / "bench.md").write_text("\n".join(tables))
    print("\n".join(tables))


if __name__ == "__main__":
    main()
