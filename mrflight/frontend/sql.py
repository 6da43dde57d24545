"""``mrflight sql``: a query over files and tables, from the command line."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from mrflight import driver
from mrflight.config.output_section import NO_OUTPUT
from mrflight.config.overrides import parse_override, set_key
from mrflight.config.spec import JobSpec
from mrflight.errors import JobFileError, MrflightError
from mrflight.events.recorder import Recorder
from mrflight.result import JobResult
from mrflight.scheduler.job_rows import job_rows
from mrflight.scheduler.metrics import JobMetrics, PhaseTimer
from mrflight.storage.environment import with_environment
from mrflight.system.command_line import Command
from mrflight.system.early_interrupt import EXIT_INTERRUPTED
from mrflight.system.log_output import log_to_stderr
from mrflight.system.progress import progress_for
from mrflight.system.standard_streams import print_answer

if TYPE_CHECKING:
    import pyarrow as pa

    Rows = Iterator[pa.RecordBatch]

_FORMATS = ("table", "csv", "json", "arrow")
_SHOWN_ROWS = 40
"""The rows of a table on a terminal; the others are counted."""


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("query", nargs="?", metavar="QUERY", help="the query")
    parser.add_argument("--file", type=Path, metavar="QUERY.sql", help="read the query from a file")
    parser.add_argument(
        "--table",
        action="append",
        default=[],
        metavar="NAME=PATH",
        help="call the files of a path by this name in the query; may be repeated",
    )
    parser.add_argument(
        "--function",
        action="append",
        default=[],
        metavar="NAME=MODULE:FUNCTION",
        help="call a function of Python by this name in the query; its module is in the current "
        "folder or installed; may be repeated",
    )
    parser.add_argument(
        "--fresh",
        action="store_true",
        help="read the rows of live streams, too, that the Delta tables do not have yet",
    )
    parser.add_argument("--out", metavar="TABLE", help="write the result to this Delta table")
    parser.add_argument(
        "--mode",
        choices=("error", "append", "overwrite"),
        default="error",
        help="what to do if the table of --out exists; by default that is an error",
    )
    parser.add_argument(
        "--format",
        choices=_FORMATS,
        default="table",
        help="how to print the rows: csv, json (an object on each line) and arrow (an IPC stream) "
        "have all rows, table the first ones; by default table",
    )
    instead = parser.add_mutually_exclusive_group()
    instead.add_argument(
        "--explain", action="store_true", help="print how the query would run, and do not run it"
    )
    instead.add_argument(
        "--explain-analyze",
        action="store_true",
        help="run the query, and print what its stages did in place of its rows",
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="SECTION.KEY=VALUE",
        help="a setting of the job, as in a job file; may be repeated",
    )
    parser.add_argument("-q", "--quiet", action="store_true", help="show no progress")


COMMAND = Command(
    "sql",
    "run a query over files and tables",
    "Run a query in SQL over files and tables of any size, and print its rows or write them to a "
    "table. A table is a path in quotes, or a name that --table gives to a path. A file of several "
    "statements may create views before the query.",
    (
        "%(prog)s \"select url, count(*) from 'visits/*.parquet' group by url\"",
        "%(prog)s --table v=visits.csv 'select count(*) from v' --format json",
        "%(prog)s --file report.sql --out out/report --mode overwrite",
    ),
    _add_arguments,
)


def run(options: argparse.Namespace) -> int:
    """Run the query, and return the exit code."""
    log_to_stderr("warning")
    try:
        spec = _spec(options)
        if options.explain:
            from mrflight.planner.explain import explain

            return print_answer("\n".join(explain(spec, Path.cwd())))
        if options.out is None:
            return _print_rows(spec, options)
    except MrflightError as error:
        return driver.report_error(error)
    options.json = options.page = False
    options.report = options.log_level = None
    options.log_format, options.verbose = "text", 0
    describe = _print_analysis if options.explain_analyze else None
    driver.leave(driver.drive(options, lambda _: (spec, Path.cwd()), describe))


def _spec(options: argparse.Namespace) -> JobSpec:
    """Return the job that runs the query. Raises JobFileError."""
    from mrflight.compute.sql.statements import named_paths
    from mrflight.config.job_file import decode_job
    from mrflight.frontend.dataset_builder import name_of_files

    tables = _named(options.table, "--table", "NAME=PATH, such as visits='visits/*.csv'")
    functions = _named(
        options.function, "--function", "NAME=MODULE:FUNCTION, such as clean=visits:clean"
    )
    inputs: dict[str, dict[str, Any]] = {name: {"path": path} for name, path in tables.items()}
    text, paths = named_paths(_text(options), name_of_files, inputs)
    for each in paths:
        inputs[each.name] = {"path": each.path} | ({"format": each.format} if each.format else {})
    if options.fresh:
        inputs = {name: {**each, "fresh": True} for name, each in inputs.items()}
    job = {"name": "sql", "sql": text, "functions": functions}
    document: dict[str, Any] = {"job": job, "inputs": inputs}
    document["output"] = {"table": options.out or "-", "mode": options.mode}
    for key, value in map(parse_override, options.set):
        set_key(document, key.split("."), value)
    spec = decode_job(document)
    spec = msgspec.structs.replace(
        spec, storage=with_environment(spec.storage, spec.paths, os.environ, by_name=True)
    )
    return spec if options.out else msgspec.structs.replace(spec, output=NO_OUTPUT)


def _named(given: list[str], option: str, how: str) -> dict[str, str]:
    """Return what an option names, by the names."""
    found = {}
    for each in given:
        name, _, value = each.partition("=")
        if not (name and value):
            raise JobFileError(f"{option} {each}: write {how}")
        found[name] = value
    return found


def _text(options: argparse.Namespace) -> str:
    if (options.query is None) == (options.file is None):
        raise JobFileError("give the query as an argument, or its file with --file")
    if options.file is None:
        return str(options.query)
    try:
        return str(options.file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise JobFileError(f"--file {options.file}: it cannot be read: {error}") from error


def _print_rows(spec: JobSpec, options: argparse.Namespace) -> int:
    """Run the query, and print its rows as they come, or what was done for them.

    Progress is shown before the first rows.
    """
    from mrflight.frontend.batches import ProgressBeforeRows

    progress = ProgressBeforeRows(progress_for(None if options.quiet else sys.stderr))
    metrics = JobMetrics(PhaseTimer(driver.STARTED))
    with Recorder(progress) as events, progress:
        rows = job_rows(spec, Path.cwd(), events, metrics, owns_process=True)
        try:
            with closing(rows):
                (_read_all if options.explain_analyze else _WRITERS[options.format])(rows)
        except KeyboardInterrupt:
            return EXIT_INTERRUPTED
    return _print_analysis(metrics.result("done")) if options.explain_analyze else 0


def _print_analysis(result: JobResult) -> int:
    from mrflight.frontend.query_analysis import analysis

    return print_answer("\n".join(analysis(result)))


def _read_all(rows: Rows) -> None:
    for _ in rows:
        pass


def _print_table(rows: Rows) -> None:
    import pyarrow as pa

    from mrflight.frontend.printed_table import print_table

    shown, count, schema = [], 0, None
    for batch in rows:
        schema = batch.schema
        if count < _SHOWN_ROWS:
            shown.append(batch.slice(0, _SHOWN_ROWS - count))
        count += batch.num_rows
    print_table(pa.Table.from_batches(shown, schema), sys.stdout, total=count)


def _print_csv(rows: Rows) -> None:
    from pyarrow import csv

    first = next(rows)
    with csv.CSVWriter(sys.stdout.buffer, first.schema) as out:
        out.write_batch(first)
        for batch in rows:
            out.write_batch(batch)


def _print_json(rows: Rows) -> None:
    encoder = msgspec.json.Encoder(enc_hook=str)
    for batch in rows:
        lines = (encoder.encode(row) for row in batch.to_pylist())
        sys.stdout.buffer.write(b"".join(line + b"\n" for line in lines))


def _print_arrow(rows: Rows) -> None:
    import pyarrow as pa

    first = next(rows)
    with pa.ipc.new_stream(sys.stdout.buffer, first.schema) as out:
        out.write_batch(first)
        for batch in rows:
            out.write_batch(batch)


_WRITERS = {
    "table": _print_table,
    "csv": _print_csv,
    "json": _print_json,
    "arrow": _print_arrow,
}
