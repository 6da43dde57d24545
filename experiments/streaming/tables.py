"""The thesis's tables 5.1 to 6.1, with our figures before its own."""

from __future__ import annotations

from collections.abc import Iterator

from experiments.streaming import published, results
from experiments.streaming.outcome import Spread
from experiments.streaming.results import Results
from experiments.thesis.tables import markdown

SINGLE, BATCH = published.SINGLE, published.BATCH
HEADINGS = {SINGLE: "Events one by one", BATCH: "Events in batches of 1,000"}
NUMBERS = {SINGLE: ("5.1", "5.1", "5.2", "5.3"), BATCH: ("5.7", "5.4", "5.5", "5.6")}
"""The figure with the events, and the tables of bytes, of write times and of flushes."""


def sections(found: Results) -> list[str]:
    """Return all tables as Markdown."""
    parts = []
    for batch in (SINGLE, BATCH):
        if any(found.of(system, batch) for system in found.systems):
            parts += [f"## {HEADINGS[batch]}", *_of_batch(found, batch)]
    return [
        *parts,
        "## Files",
        _files(found),
        "## What has happened when a write ends",
        _means(found),
    ]


def _of_batch(found: Results, batch: int) -> Iterator[str]:
    figure, written, times, flushed = NUMBERS[batch]
    yield _events(found, batch, figure)
    yield _bytes(found, batch, written)
    yield _writes(found, batch, times)
    yield from _flushes(found, batch, flushed)
    yield _reads_and_cpu(found, batch)


def _events(found: Results, batch: int, number: str) -> str:
    rounds = sorted({run.round for run in found.outcomes})
    header = ["system", *(f"run {each}{' (cold)' if not each else ''}" for each in rounds)]
    header += ["thesis, about"]
    rows = []
    for system in found.systems:
        rates = {run.round: f"{run.events_per_s:,.1f}" for run in found.of(system, batch)}
        theirs = published.EVENTS.get((batch, system.published))
        shown = None if theirs is None else f"{theirs / published.RUN_S:,.0f}"
        rows.append([system.title, *(rates.get(each) for each in rounds), shown])
    return markdown(f"Figure {number}: events/s", header, rows)


def _bytes(found: Results, batch: int, number: str) -> str:
    header = ["system", "disk median", "IQR", "own median", "IQR", "thesis: disk median", "IQR"]
    rows = []
    for system in found.systems:
        disk = found.middle(system, batch, results.disk_bytes)
        own = found.middle(system, batch, results.own_bytes)
        theirs = published.WRITTEN_MB[batch].get(system.published, (None, None))
        rows.append([system.title, *_pair(disk, 1e-6), *_pair(own, 1e-6), *theirs])
    title = f"Table {number}: MB written in a second, by all programs and by the system alone"
    return markdown(title, header, rows)


def _writes(found: Results, batch: int, number: str) -> str:
    header = ["system", "median", "IQR", "p99", "writes", "thesis: median", "IQR"]
    rows = []
    for system in found.systems:
        took = found.middle(system, batch, results.writes)
        theirs = published.WRITE_MS[batch].get(system.published, (None, None))
        more = (None, None) if took is None else (1000 * took.p99, f"{took.count:,}")
        rows.append([system.title, *_pair(took, 1000), *more, *theirs])
    return markdown(f"Table {number}: ms of a write", header, rows)


def _flushes(found: Results, batch: int, number: str) -> Iterator[str]:
    names = {
        "ducklake-inlined": "DuckLake, inlined: flush",
        "mrflight-log": "mrflight, log: `mrflight ingest` into Delta, from its start to its end",
        "ducklake": "DuckLake: merge of its files (section 6.3)",
    }
    theirs = {
        "ducklake-inlined": ", ".join(f"{each:.3f}" for each in published.FLUSH_S[batch]),
        "ducklake": f"{published.MERGE_S:.0f}, of 30,000 files",
    }
    rows = []
    for system in found.systems:
        runs = found.of(system, batch)
        took = [(run.flush_s or run.merge_s, run.events) for run in runs]
        if any(seconds is not None for seconds, _ in took):
            shown = ", ".join(f"{seconds:.3f}" for seconds, _ in took if seconds is not None)
            events = ", ".join(f"{count:,}" for _, count in took)
            rows.append([names[system.name], shown, events, theirs.get(system.name)])
    if rows:
        header = ["what", "s, by run", "events, by run", "thesis: s, by run"]
        yield markdown(f"Table {number}: flush", header, rows)


def _reads_and_cpu(found: Results, batch: int) -> str:
    header = ["system", "read median ms", "IQR", "CPU of the machine %", "own core-ms an event"]
    rows = []
    for system in found.systems:
        read = found.middle(system, batch, results.reads)
        cpu = found.middle(system, batch, results.cpu_percent)
        rows.append(
            [
                system.title,
                *_pair(read, 1000),
                None if cpu is None else f"{cpu.median:.0f}",
                found.cpu_ms_per_event(system, batch),
            ]
        )
    return markdown("Reading an event from Kafka, and CPU usage", header, rows)


def _files(found: Results) -> str:
    header = ["system", "events", "data files", "MB", "metadata files", "MB"]
    header += ["thesis: data files", "MB", "metadata files", "MB"]
    rows: list[list[object]] = []
    for batch in (SINGLE, BATCH):
        for system in found.systems:
            runs = found.hot(system, batch)
            if system.format == "log" or not runs:
                continue
            last = runs[-1]
            theirs: list[object] = [None] * 4
            if system.published == published.FILES_OF:
                data, data_mb, metadata, metadata_mb = published.FILES[batch]
                theirs = [f"{data:,}", data_mb, f"{metadata:,}", metadata_mb]
            rows.append(
                [
                    f"{system.title}, {'one by one' if batch == SINGLE else 'batches'}",
                    f"{last.events:,}",
                    f"{last.files.data:,}",
                    last.files.data_bytes / 1e6,
                    f"{last.files.metadata:,}",
                    last.files.metadata_bytes / 1e6,
                    *theirs,
                ]
            )
    title = "Table 6.1: files of the last run; the thesis: of three runs of five minutes"
    return markdown(title, header, rows)


def _means(found: Results) -> str:
    header = ["system", "a write has ended when"]
    rows = [[system.title, system.answered] for system in found.systems]
    return markdown("What an answer means", header, rows)


def _pair(values: Spread | None, scale: float) -> tuple[float | None, float | None]:
    return (None, None) if values is None else (values.median * scale, values.iqr * scale)
