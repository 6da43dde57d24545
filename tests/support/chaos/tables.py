"""The tables of a stream to which much is done, and the job that writes them."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from tests.support.chaos.delta import DeltaChaosTable
from tests.support.chaos.ducklake import DuckLakeChaosTable
from tests.support.chaos.iceberg import IcebergChaosTable
from tests.support.chaos.plan import Place
from tests.support.chaos.servers import ChaosServers
from tests.support.chaos.table import ChaosTable
from tests.support.jobs.job_sections import toml_section
from tests.support.streams.ingest_job import Stream

_OUTPUT = '[output]\ntable = "out/events"\nmode = "append"\n'


@contextmanager
def tables_at(
    servers: ChaosServers, folder: Path, place: Place
) -> Iterator[tuple[ChaosTable, DeltaChaosTable]]:
    """Yield the table of a run, and that of its dead letters, neither of which exists yet."""
    with ExitStack() as stack:
        root, storage, catalog = "", dict[str, str](), f"{place.catalog}:///catalog.db"
        if place.store == "s3":
            assert servers.minio is not None
            bucket = stack.enter_context(servers.minio.bucket())
            root, storage = f"{bucket.url}/", bucket.options
        if place.catalog == "postgres":
            assert servers.postgres is not None
            database = stack.enter_context(servers.postgres.database())
            catalog = servers.postgres.uri(database)
        elif place.catalog == "rest":
            assert servers.rest is not None
            catalog = servers.rest.uri
        dead_letters = DeltaChaosTable(folder, {"table": f"{root}out/rejected"}, storage)
        output: dict[str, Any] = {"format": place.format, "mode": "append"}
        if place.format == "delta":
            output |= {"table": f"{root}out/events"}
            yield DeltaChaosTable(folder, output, storage), dead_letters
        elif place.format == "iceberg":
            output |= {"table": f"ns_{secrets.token_hex(4)}.events", "catalog": catalog}
            output |= {} if place.catalog == "rest" else {"warehouse": f"{root}warehouse"}
            yield IcebergChaosTable(folder, output, storage), dead_letters
        else:
            output |= {"table": "sales.events", "catalog": catalog, "data_path": f"{root}data"}
            yield DuckLakeChaosTable(folder, output, storage), dead_letters


def write_job(
    stream: Stream,
    table: ChaosTable,
    dead_letters: DeltaChaosTable,
    *,
    max_rows: int,
    workers: int = 2,
    input: str = "",
) -> Path:
    """Write the job file of a stream, with further lines of its input."""
    job = stream.write_job(
        input=input,
        stream=f'max_rows = {max_rows}\non_bad_row = "dead_letter"\n'
        f'dead_letter = "{dead_letters.output["table"]}"\nmax_bad = "100 %"',
        rest=toml_section("storage", table.storage) if table.storage else "",
    )
    text = job.read_text().replace(_OUTPUT, toml_section("output", table.output))
    job.write_text(text.replace("workers = 2", f"workers = {workers}"))
    return job
