"""Reads of a store that fails: of every format, and of a job in the middle of its map."""

from __future__ import annotations

import gzip
import os
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import deltalake
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from mrflight.config.input_spec import InputSpec
from mrflight.errors import StoreError
from mrflight.sources import open_source
from mrflight.sources.base import Source
from mrflight.storage import Location
from mrflight.storage.delta import storage_options, table_uri
from tests.support.commands.driver import DriverRun, driver_command, write_job
from tests.support.commands.leftovers import nothing_left_over, tree
from tests.support.commands.running_command import running_command
from tests.support.faults.gated_job import until
from tests.support.suite.waiting import communicate

ROWS = pa.table({"n": list(range(10))})
FILES = 5
"""The files of the job, which one worker reads in order."""

JOB = """
[job]
name = "reads"
attempts = ATTEMPTS
[inputs.rows]
path = "INPUT"
key = ["n"]
map = "gated:rows"
[output]
table = "out"
mode = "error"
[storage]
OPTIONS
[cluster]
workers = 1
"""

GATED = """
from pathlib import Path

FOLDER = Path(__file__).parent

def rows(batch):
    '''Waits where there is a gate, a FIFO, until somebody has opened it to write.'''
    gate = FOLDER / "gate"
    if gate.exists():
        (FOLDER / "waits").touch()
        gate.read_bytes()
    return batch
"""


def put_formats(folder: Location) -> list[Location]:
    """An input of each format that is read in its own way."""
    inputs = [folder.child(f"1.{name}") for name in ("csv", "csv.gz", "json", "parquet", "arrow")]
    for location in inputs:
        with location.create() as file:
            file.write(_encoded(location.path.partition(".")[2]))
    table = folder.child("table")
    deltalake.write_deltalake(table_uri(table), ROWS, storage_options=storage_options(table))
    return [*inputs, table]


def _encoded(format: str) -> bytes:
    data = BytesIO()
    if format == "parquet":
        pa.parquet.write_table(ROWS, data)
    elif format == "arrow":
        with pa.ipc.new_file(data, ROWS.schema) as writer:
            writer.write_table(ROWS)
    elif format == "json":
        data.writelines(b'{"n": %d}\n' % n for n in ROWS["n"].to_pylist())
    else:
        pa.csv.write_csv(ROWS, data)
    return gzip.compress(data.getvalue()) if format.endswith("gz") else data.getvalue()


def opened(location: Location) -> Source:
    return open_source("rows", InputSpec(path=location.url), Path("/"), location.options, 1 << 20)


def check_reads_tell(
    sources: Sequence[Source], inputs: Sequence[Location], why: str, look_at: str
) -> None:
    """Check that a reader, or the planner, says why the store has failed, and may be retried."""
    reads: list[Callable[[], object]] = [
        lambda source=source: [list(source.reader.read(split)) for split in source.splits]
        for source in sources
    ]
    plans: list[Callable[[], object]] = [lambda place=place: opened(place) for place in inputs]
    for call in (*reads, *plans):
        with pytest.raises(StoreError, match=f"as its store failed: .*{why}.*{look_at}") as raised:
            call()
        assert raised.value.retryable
        assert "damaged" not in str(raised.value)


@dataclass(frozen=True)
class ReadingJob:
    """A job's driver, and the folder that it lies in."""

    folder: Path
    process: subprocess.Popen[str]

    def go_on(self) -> None:
        """The map that waits reads on, and none waits any more."""
        gate = self.folder / "gate"
        with gate.open("w"):
            gate.unlink()

    def await_line(self, words: str) -> str:
        """The next line that the driver says with these words."""
        assert self.process.stderr is not None
        return next(line for line in self.process.stderr if words in line)

    def end(self) -> DriverRun:
        stdout, stderr = communicate(self.process, "the job")
        return DriverRun(self.process.returncode, stdout, stderr)


@contextmanager
def reading_job(folder: Path, files: Location, attempts: int) -> Iterator[ReadingJob]:
    """A job from these new files, whose first map waits; it may leave nothing but its output."""
    for number in range(FILES):
        with files.child(f"{number}.csv").create() as file:
            file.write(_encoded("csv"))
    options = "\n".join(f'{key} = "{value}"' for key, value in files.options.items())
    text = JOB.replace("INPUT", files.url).replace("OPTIONS", options)
    job = write_job(folder, text.replace("ATTEMPTS", str(attempts)))
    (folder / "gated.py").write_text(GATED)
    os.mkfifo(folder / "gate")
    with (
        nothing_left_over(folder / "tmp") as environment,
        running_command(driver_command(job), environment) as process,
    ):
        until((folder / "waits").exists, process)
        yield ReadingJob(folder, process)


def check_told(job: ReadingJob, attempts: int, url: str, why: str) -> None:
    """The job ends as one that another run may finish, after all attempts, and writes nothing."""
    done = job.end()
    assert done.code == 1, done.stderr
    for attempt in range(1, attempts):
        assert f"attempt {attempt} of {attempts} failed and is retried: {url}" in done.stderr
    assert f"mrflight: {url}" in done.stderr
    assert f", attempt {attempts}" in done.stderr
    assert "as its store failed: " in done.message
    assert why in done.message
    assert "damaged" not in done.stderr
    assert tree(job.folder / "out") == {}
