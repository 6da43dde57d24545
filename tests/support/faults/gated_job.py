"""A job that waits in its last reduce task until a test opens the gate, and what it commits."""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from mrflight.config.formats import OutputFormat
from tests.support.commands.clean_command import run_clean
from tests.support.commands.driver import DriverRun, driver_command, write_job
from tests.support.commands.mrflight import Running, started
from tests.support.commands.running_command import running_command
from tests.support.faults import stopped_driver
from tests.support.faults.stopped_driver import Plan
from tests.support.suite.waiting import Awaited, await_end, await_that, communicate
from tests.support.tables.manifests import manifests, runs_of
from tests.support.tables.outputs import READERS, Output

PARTITIONS = 4
OTHERS = PARTITIONS - 1
LOST = 5
OLD = range(1000, 1010)
"""Keys of `old_table`."""
SCHEMA = pa.schema([("k", pa.int64())])

KILLED_BY_A_LONG_FILE = (
    sys.executable,
    "-c",
    "import signal; signal.signal(signal.SIGXFSZ, signal.SIG_DFL); "
    "from mrflight.driver import leave, main; leave(main())",
)
"""Python ignores that signal; with its default, a write beyond the limit ends the process."""

JOB = """
[job]
name = "gated"
speculation = false
RUN
[inputs.rows]
path = "in.csv"
key = ["k"]
[shuffle]
partitions = PARTITIONS
[reduce]
function = "waiting:reduce"
[output]
table = "TABLE"
format = "FORMAT"
mode = "MODE"
[cluster]
workers = WORKERS
"""

WAITING = """
from pathlib import Path

FOLDER = Path(__file__).parent

def reduce(table):
    '''The partition of key 0 waits where there is a gate, a FIFO, until somebody writes to it.'''
    gate = FOLDER / "gate"
    if gate.exists() and 0 in [key % 1000 for key in table["k"].to_pylist()]:
        (FOLDER / "waits").touch()
        gate.read_bytes()
    return table
"""


@dataclass(frozen=True)
class GatedJob:
    """A job in a folder of its own that writes ``keys`` to ``table``; one of them is 0 mod 1000."""

    folder: Path
    table: Path
    format: OutputFormat
    keys: range

    @property
    def path(self) -> Path:
        return self.folder / "job.toml"

    @contextmanager
    def gated(
        self, *options: str, command: Sequence[str] = (), plan: Plan | None = None
    ) -> Iterator[GatedDriver]:
        """Its driver, once the reduce task of key 0 waits and the others' files are written."""
        (self.folder / "waits").unlink(missing_ok=True)
        os.mkfifo(self.folder / "gate")
        try:
            with self.started(*options, command=command, plan=plan) as driver:
                until((self.folder / "waits").exists, driver.process)
                yield driver
        finally:
            (self.folder / "gate").unlink(missing_ok=True)

    @contextmanager
    def started(
        self, *options: str, command: Sequence[str] = (), plan: Plan | None = None
    ) -> Iterator[GatedDriver]:
        """Its driver, which waits for nobody where there is no gate.

        It is run by ``command``, or is a `stopped_driver` with a plan.
        """
        words = driver_command(self.path, *options, command=command)
        if command:
            with running_command(words, self.environment()) as process:
                yield GatedDriver(self, process)
            return
        module = "mrflight.driver"
        if plan is not None:
            module, words = stopped_driver.MODULE, [*plan.words(), *words]
        with started(*words, environment=self.environment(), module=module) as forked:
            yield GatedDriver(self, forked)

    def environment(self) -> Mapping[str, str]:
        """Return the drivers' environment: a temporary folder, a mark for `nothing_left_over`."""
        temporary = self.folder / "tmp"
        temporary.mkdir(exist_ok=True)
        return {
            "TMPDIR": str(temporary),
            "MRFLIGHT_TEST_RUN": f"{os.getpid()}-{temporary.name}",
        }

    def new_parts(self) -> set[Path]:
        """The part files that no commit names."""
        return {self.table / name for name in unnamed_files(self.table)}

    def read(self) -> list[int]:
        """The keys that a reader finds who knows nothing of mrflight."""
        found: list[int] = READERS[self.format](self.table, SCHEMA).column("k").to_pylist()
        return sorted(found)


@dataclass(frozen=True)
class GatedDriver:
    """A driver that runs, and may wait at its gate."""

    job: GatedJob
    process: subprocess.Popen[str] | Running

    def wait_for_parts(self) -> None:
        """Until the files of all tasks but that at the gate are written."""

        def are_there() -> bool:
            return len({path for path in self.job.new_parts() if path.stat().st_size}) >= OTHERS

        until(are_there, self.process)

    def open_gate(self) -> None:
        """Returns at once; the last reduce task goes on, and the commit comes."""
        with open(self.job.folder / "gate", "w"):
            pass

    def end(self) -> DriverRun:
        """Return the result, once it has ended."""
        if isinstance(self.process, Running):
            stdout, stderr = self.process.communicate()
            return DriverRun(await_end(self.process, "the driver"), stdout, stderr)
        stdout, stderr = communicate(self.process, "the driver")
        return DriverRun(self.process.returncode, stdout, stderr)


def gated_job(
    base: Path,
    format: OutputFormat,
    mode: str = "append",
    run_id: str = "",
    keys: range = range(100),
    name: str = "job",
    workers: int = 2,
) -> GatedJob:
    """A job in ``base``/``name`` that writes to the table of `old_table`."""
    table = base / "out" / "table"
    folder = base / name
    folder.mkdir()
    (folder / "in.csv").write_text("k\n" + "".join(f"{key}\n" for key in keys))
    (folder / "waiting.py").write_text(WAITING)
    text = JOB.replace("PARTITIONS", str(PARTITIONS)).replace("TABLE", str(table))
    text = text.replace("FORMAT", format).replace("MODE", mode).replace("WORKERS", str(workers))
    write_job(folder, text.replace("RUN", f'run_id = "{run_id}"' if run_id else ""))
    return GatedJob(folder, table, format, keys)


def old_table(base: Path, format: OutputFormat, keys: range = OLD) -> Path:
    """A table that another job made."""
    output = Output(base, format)
    output.run([(key,) for key in keys], job_id="old", schema=SCHEMA)
    return output.folder


def until(condition: Callable[[], object], process: Awaited) -> None:
    """Wait for what a driver that runs is to bring about."""
    try:
        await_that(condition, "what the driver brings about", beside=process)
    except AssertionError as error:
        if isinstance(process, Running) and process.poll() is not None:
            raise AssertionError(f"{error}: {process.communicate()[1]}") from None
        raise


def kill_at_file_size(driver: GatedDriver, limit_bytes: int) -> None:
    """Open the gate; the kernel kills the driver once it writes a file beyond the limit."""
    for limit, most in ((resource.RLIMIT_FSIZE, limit_bytes), (resource.RLIMIT_CORE, 0)):
        resource.prlimit(driver.process.pid, limit, (most, most))
    driver.open_gate()
    assert driver.end().code == -signal.SIGXFSZ


def lost_attempts(driver: GatedDriver) -> list[str]:
    """Files as attempts would have left them whose workers were killed as they wrote."""
    driver.wait_for_parts()
    job = driver.job
    (like,) = {re.sub(r"part-\d+-\d+-", "", path.name) for path in job.new_parts()}
    lost = [f"part-00000-{attempt}-{like}" for attempt in range(5, 5 + LOST)]
    for name in lost:
        (job.table / name).write_bytes(b"half a file")
    return lost


def commits_of(table: Path, app_id: str) -> int:
    """Return how often a run was committed according to the log or the manifest."""
    log = table / "_delta_log"
    if log.exists():
        return sum(entry.read_text().count(f'"appId":"{app_id}"') for entry in log.glob("*.json"))
    return sum(run["app"] == app_id for run in runs_of(table))


def unnamed_files(table: Path) -> set[str]:
    """Return the files in the table's folder that its log or manifest does not name."""
    log = table / "_delta_log"
    kept = {
        *manifests(table),
        *log.glob("*.json"),
        *log.glob("*.parquet"),
        log / "_last_checkpoint",
    }
    for entry in log.glob("*.json"):
        actions = [json.loads(line) for line in entry.read_text().splitlines()]
        changes = [action.get(kind) for action in actions for kind in ("add", "remove")]
        kept |= {table / change["path"] for change in changes if change}
    if manifests(table):
        kept |= {table / file for run in runs_of(table) for file in run["files"]}
    files = {path for path in table.rglob("*") if path.is_file()}
    return {str(path.relative_to(table)) for path in files - kept}


def clean(table: Path, *options: str) -> set[str]:
    """Return the files that ``mrflight clean`` lists, whatever their age."""
    done = run_clean(table, "--older-than", "0 s", *options)
    assert done.returncode == 0, done.stderr
    return done.files
