"""The engines of the comparison, and how each is started."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from experiments import datasets, mrflight_job
from experiments.comparison.cases import Case
from experiments.engines.task import Task

MRFLIGHT = "mrflight"

PACKAGES = {
    MRFLIGHT: "mrflight",
    "duckdb": "duckdb",
    "polars": "polars",
    "datafusion": "datafusion",
    "pyarrow": "pyarrow",
    "pyspark": "pyspark",
    "dask": "distributed",
    "daft": "daft",
    "ray": "ray",
}
"""The package that each engine needs."""

ENGINES = tuple(PACKAGES)

WRITES_DELTA = {
    MRFLIGHT: "a file per partition, one commit with statistics",
    "duckdb": "its stream into delta-rs (capped: its own Parquet), partitioned by a hash column",
    "polars": "its Parquet, partitioned by a hash column, made a table by delta-rs",
    "datafusion": "its Parquet, partitioned by a hash column, made a table by delta-rs",
    "pyarrow": "its stream into delta-rs, partitioned by a hash column",
    "pyspark": "its Parquet, a file per partition, made a table by delta-rs",
    "dask": "its Parquet, a file per partition, made a table by delta-rs",
    "daft": "write_deltalake, partitioned by a hash column",
    "ray": "its Parquet, a file per partition, made a table by delta-rs",
}

NO_CAP = {"pyarrow": "has no memory limit to set"}
"""The engines that cannot be given a cap. All others have a setting for it."""


@dataclass(frozen=True)
class Interpreters:
    """The interpreters of mrflight and of its peers, which may be installed elsewhere."""

    mrflight: Path
    peers: Path

    def of(self, engine: str) -> Path:
        """Return the interpreter that runs ``engine``."""
        return self.mrflight if engine == MRFLIGHT else self.peers


def versions(python: Path, packages: list[str]) -> dict[str, str]:
    """Return the versions of those packages that ``python`` finds."""
    program = (
        "import json, sys\n"
        "from importlib import metadata\n"
        "found = {}\n"
        "for name in sys.argv[1:]:\n"
        "    try: found[name] = metadata.version(name)\n"
        "    except metadata.PackageNotFoundError: pass\n"
        "print(json.dumps(found))\n"
    )
    words = [str(python), "-c", program, *packages]
    printed = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    found: dict[str, str] = json.loads(printed)
    return found


def missing(engine: str, installed: Mapping[str, str], packages: Sequence[str] = ()) -> str | None:
    """Return what an engine lacks to take part, which needs other packages or those of peers."""
    absent = [name for name in packages or (PACKAGES[engine],) if name not in installed]
    if absent:
        return f"{' and '.join(absent)} is not installed"
    if engine == "pyspark" and shutil.which("java") is None:
        return "java is not installed"
    return None


@dataclass(frozen=True)
class Assignment:
    """The input, limits and folder of one run, the same for every engine."""

    case: Case
    input: Path
    folder: Path
    """The folder in which ``result`` and ``scratch`` are created."""
    threads: int
    memory_bytes: int | None
    mrflight_settings: tuple[str, ...] = ()

    @property
    def result(self) -> Path:
        """The folder of the result."""
        return self.folder / "result"


def command(engine: str, assignment: Assignment, interpreters: Interpreters) -> list[str]:
    """Return the command line of a run. For a peer, this writes its task to a file."""
    if engine == MRFLIGHT:
        return _mrflight(assignment, interpreters.mrflight)
    scratch = assignment.folder / "s"  # short: Ray has unix sockets in it
    scratch.mkdir()
    task = Task(
        job=assignment.case.job,
        input=str(assignment.input),
        output=str(assignment.result),
        scratch=str(scratch),
        threads=assignment.threads,
        partitions=assignment.case.partitions,
        memory_bytes=assignment.memory_bytes,
    )
    path = assignment.folder / "task.json"
    path.write_text(json.dumps(asdict(task)))
    return [str(interpreters.peers), "-m", f"experiments.engines.{engine}", str(path)]


def job_seconds(engine: str, stdout: str) -> float:
    """Return the seconds of the job without the engine's start, which its last line has."""
    printed = json.loads(stdout.splitlines()[-1])
    if engine == MRFLIGHT:
        seconds = printed["seconds"]
        return float(seconds["total"] - seconds["start"])
    return float(printed["job_seconds"])


def _mrflight(assignment: Assignment, python: Path) -> list[str]:
    case = assignment.case
    job = datasets.REPOSITORY / "experiments" / "jobs" / f"{case.job}.toml"
    suffix = "csv" if case.job == "clicks" else "parquet"
    table = "lineitem" if case.is_lineitem else "visits"
    settings = [
        f"inputs.{table}.path={assignment.input}/*.{suffix}",
        f"output.table={assignment.result}",
        f"shuffle.partitions={case.partitions}",
    ]
    if assignment.memory_bytes:
        settings.append(f"cluster.memory={assignment.memory_bytes >> 20} MiB")
    job = datasets.CLICKS_JOB if case.job == "clicks" else job
    settings += assignment.mrflight_settings
    return mrflight_job.driver_command(job, settings, str(python))


def here() -> Path:
    """Return the interpreter that runs this process."""
    return Path(sys.executable)
