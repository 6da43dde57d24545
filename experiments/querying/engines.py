"""The engines, and how each is started with a query."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from experiments import machine
from experiments.comparison import engines
from experiments.tpch import module_of

MRFLIGHT = "mrflight"
SHUFFLED = "mrflight-shuffled"
DATAFUSION = "datafusion"
WITH_PANDAS = "datafusion-with-pandas"
"""DataFusion makes pyarrow import pandas where that is installed, which takes 0.3 s."""

PARTITIONS = 4
SHUFFLE = f"shuffle.partitions={PARTITIONS}"
"""Without it mrflight runs a query in one task if its rows fit into memory."""

PACKAGES: Mapping[str, tuple[str, ...]] = {
    MRFLIGHT: ("mrflight", "datafusion"),
    SHUFFLED: ("mrflight", "datafusion"),
    DATAFUSION: ("datafusion",),
    WITH_PANDAS: ("datafusion", "pandas"),
    "dask": ("dask", "pandas"),
    "pyspark": ("pyspark",),
    "ballista": ("ballista", "datafusion"),
    "daft": ("daft",),
    "daft-ray": ("daft", "ray"),
}
"""The packages that each engine needs."""

ENGINES = tuple(PACKAGES)
OURS = (MRFLIGHT, SHUFFLED)
THEIRS = tuple(engine for engine in ENGINES if engine not in OURS)


@dataclass(frozen=True)
class Interpreters:
    """Ballista has one of its own, since it wants an older DataFusion than mrflight.

    DataFusion has one without pandas, or else that of mrflight.
    """

    here: Path
    peers: Path
    ballista: Path
    datafusion: Path

    def of(self, engine: str) -> Path:
        """Return the interpreter of an engine."""
        if engine in (*OURS, WITH_PANDAS):
            return self.here
        return {DATAFUSION: self.datafusion, "ballista": self.ballista}.get(engine, self.peers)

    def versions(self, engine: str) -> dict[str, str]:
        """Return the versions of the engine's packages that are installed."""
        return engines.versions(self.of(engine), list(PACKAGES[engine]))


@dataclass(frozen=True)
class Query:
    """A query, and the folder with a Parquet file for each table."""

    file: Path
    data: Path

    @property
    def tables(self) -> dict[str, Path]:
        return {path.stem: path for path in sorted(self.data.glob("*.parquet"))}


def command(
    engine: str, query: Query, python: Path, folder: Path, memory_bytes: int | None = None
) -> list[str]:
    """Return the command line of a run, which leaves its answer in a folder."""
    if engine in OURS:
        settings = [SHUFFLE] if engine == SHUFFLED else []
        if memory_bytes is not None:
            settings.append(f"cluster.memory={memory_bytes >> 20} MiB")
        words = sql_words(query, python, settings)
        return ["sh", "-c", 'exec "$@" > "$0"', str(folder / "answer.arrow"), *words]
    module = module_of(DATAFUSION if engine == WITH_PANDAS else engine)
    arguments = [query.file, query.data, folder / "answer", machine.cores()]
    arguments += [memory_bytes] if memory_bytes is not None else []
    return [str(python), "-m", module, *map(str, arguments)]


def sql_words(query: Query, python: Path, settings: Sequence[str]) -> list[str]:
    """Return the command line of ``mrflight sql`` that prints a query's rows as Arrow."""
    named = [f"--table={name}={path}" for name, path in query.tables.items()]
    options = [f"--set={setting}" for setting in settings]
    words = [str(python), "-m", "mrflight", "sql", "-q", "--format=arrow"]
    return [*words, f"--file={query.file}", *named, *options]
