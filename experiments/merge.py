"""Merge into a table much larger than the memory of the job, with mrflight and with deltalake.

    python -m experiments.merge [--rows N] [--share X] [--memory SIZE] [--rounds N] [--out FOLDER]

The table has ``--rows`` rows of an id, three numbers and a text of 40 characters, in files of a
million rows. The ids increase from file to file, so statistics can tell which files have an id. The
source, one parquet file, has ``--share`` of the ids, either spread over the whole table
(``spread``) or of its last rows (``recent``). A tenth of them is to be deleted, and a tenth as many
are new. mrflight and deltalake take turns to merge it into a copy of the table, each in a process
of its own. Time and peak memory (PSS of all processes) are measured from outside, and the resulting
tables are compared.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable, write_deltalake

from experiments import mrflight_job, report, timed_process
from experiments.datasets import WORK
from mrflight.units import parse_bytes

TIMEOUT_S = 3600.0
FILE_ROWS = 1_000_000
COLUMNS = ["id", "a", "b", "c", "text"]

JOB = """
[job]
name = "merge"
[inputs.changes]
path = "source.parquet"
[output]
table = "table"
mode = "merge"
keys = ["id"]
delete_when = "op = 'D'"
[cluster]
workers = 2
"""

THEIRS = """
import sys
import pyarrow.parquet as pq
from deltalake import DeltaTable
columns = sys.argv[3].split(",")
values = {name: f"s.{name}" for name in columns}
(DeltaTable(sys.argv[1])
    .merge(pq.read_table(sys.argv[2]), "t.id = s.id", source_alias="s", target_alias="t")
    .when_matched_delete("s.op = 'D'")
    .when_matched_update(values)
    .when_not_matched_insert(values, "s.op <> 'D'")
    .execute())
"""


def rows_of(ids: np.ndarray[Any, Any], seed: int) -> pa.Table:
    """Return rows with these ids and values that do not compress."""
    random = np.random.default_rng(seed)
    words = random.integers(0, 2**63, (len(ids), 2), dtype=np.int64)
    texts = pc.binary_join_element_wise(
        *(pc.utf8_lpad(pa.array(words[:, i]).cast(pa.string()), 20, "0") for i in (0, 1)), ""
    )
    numbers = [pa.array(random.random(len(ids))) for _ in range(3)]
    return pa.table([pa.array(ids), *numbers, texts], names=COLUMNS)


def make_table(folder: Path, rows: int) -> None:
    for number, start in enumerate(range(0, rows, FILE_ROWS)):
        ids = np.arange(start, min(rows, start + FILE_ROWS))
        write_deltalake(folder, rows_of(ids, number), mode="append")


def make_source(path: Path, rows: int, share: float, kind: str) -> None:
    count = max(10, int(rows * share))
    random = np.random.default_rng(99)
    if kind == "spread":
        ids = np.sort(random.choice(rows, count, replace=False))
    else:
        ids = np.arange(rows - count, rows)
    ids = np.concatenate([ids, np.arange(rows, rows + count // 10)])
    operations = pa.array(np.where(np.arange(len(ids)) % 10 == 3, "D", "U"))
    pq.write_table(rows_of(ids, 1234).append_column("op", operations), path)


def fingerprint(table: Path) -> list[Any]:
    """Return the number of rows and sums of their values, read file by file."""
    count, ids, texts, numbers = 0, 0, 0, 0.0
    for uri in DeltaTable(table).file_uris():
        for batch in pq.ParquetFile(uri).iter_batches():
            beginnings = pc.utf8_slice_codeunits(batch["text"].cast(pa.string()), 0, 6)
            count += batch.num_rows
            ids += pc.sum(batch["id"]).as_py() or 0
            texts += pc.sum(beginnings.cast(pa.int64())).as_py() or 0
            numbers += pc.sum(batch["a"]).as_py() or 0.0
    return [count, ids, texts, round(numbers, 3)]


def run(name: str, folder: Path, memory: str) -> dict[str, Any]:
    """Run one merge in a folder with a table and a source."""
    if name == "mrflight":
        (folder / "job.toml").write_text(JOB)
        settings = [f"cluster.memory={memory}"]
        command = mrflight_job.driver_command(folder / "job.toml", settings, sys.executable)
    else:
        script = folder / "theirs.py"
        script.write_text(THEIRS)
        where = [str(folder / "table"), str(folder / "source.parquet")]
        command = [sys.executable, str(script), *where, ",".join(COLUMNS)]
    timed = timed_process.run(command, TIMEOUT_S)
    return {
        "wall_s": round(timed.wall_s, 2),
        "cpu_s": round(timed.cpu_s, 2),
        "peak_mib": round((timed.peak_pss_bytes or timed.peak_rss_bytes) / 2**20),
        "result": fingerprint(folder / "table"),
    }


def measure(options: argparse.Namespace, work: Path) -> Iterator[dict[str, Any]]:
    table = work / "table"
    make_table(table, options.rows)
    size = sum(path.stat().st_size for path in table.glob("*.parquet"))
    print(f"{options.rows:,} rows, {size / 2**20:,.0f} MiB of files", file=sys.stderr)
    for kind in ("spread", "recent"):
        make_source(work / "source.parquet", options.rows, options.share, kind)
        for number in range(options.rounds):
            made = {}
            for name in ("mrflight", "deltalake")[:: 1 if number % 2 else -1]:
                with tempfile.TemporaryDirectory(dir=work) as folder:
                    shutil.copytree(table, Path(folder) / "table")
                    shutil.copy(work / "source.parquet", folder)
                    made[name] = run(name, Path(folder), options.memory)
                print(kind, number, name, made[name], file=sys.stderr, flush=True)
            if made["mrflight"]["result"] != made["deltalake"]["result"]:
                raise SystemExit(f"the tables differ: {made}")
            yield {"kind": kind, "round": number, "files_bytes": size, **made}


def page(options: argparse.Namespace, rounds: list[dict[str, Any]]) -> str:
    """Return the table as Markdown."""
    lines = [
        f"# A merge of {options.share:g} of {options.rows:,} rows, mrflight in {options.memory}",
        "",
        "| ids | way | s | of processors, s | most memory, MiB | of what it was given |",
        "|---|---|---|---|---|---|",
    ]
    given = parse_bytes(options.memory) / 2**20
    for each in rounds:
        for name in ("mrflight", "deltalake"):
            run = each[name]
            share = f"{run['peak_mib'] / given:.2f}" if name == "mrflight" else ""
            lines += [
                f"| {each['kind']} | {name} | {run['wall_s']} | {run['cpu_s']} "
                f"| {run['peak_mib']:,} | {share} |"
            ]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=20_000_000)
    parser.add_argument("--share", type=float, default=0.01)
    parser.add_argument("--memory", default="640 MiB")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--out", type=Path, default=WORK / "merge")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=options.out, prefix="run-") as work:
        rounds = list(measure(options, Path(work)))
    settings = {"rows": options.rows, "share": options.share, "memory": options.memory}
    report.write(options.out, "merge", {**settings, "rounds": rounds}, page(options, rounds))


if __name__ == "__main__":
    main()
