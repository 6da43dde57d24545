"""The thesis's tables 4.1 to 4.8, with our figures beside its own, and a comparison of versions."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence

from experiments.thesis import published
from experiments.thesis.plan import KEYS, Cell, Plan
from experiments.thesis.results import STEPS, Results

_NAMES = {"10": "10 unique keys", "unique": "a key per row"}


def report(plan: Plan, results: Results) -> str:
    """Return all tables of the measured versions as Markdown."""
    sections = [
        *_first_version(plan, results),
        *_by_step(plan, results),
        *_local_and_distributed(plan, results),
        *_walls(plan, results),
        *_mrflight(plan, results),
    ]
    return "\n\n".join(sections) + "\n"


def markdown(title: str, header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return a table. Floats have three digits, and None is a dash."""
    lines = [f"**{title}**", "", _line(header), _line(["---"] * len(header))]
    return "\n".join(lines + [_line([_cell(value) for value in row]) for row in rows])


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.3f}" if isinstance(value, float) else str(value)


def _rows_note(rows: int, theirs: int) -> str:
    return f"{rows:,} rows" if rows == theirs else f"{rows:,} rows; the thesis: {theirs:,}"


def _first_version(plan: Plan, results: Results) -> Iterator[str]:
    tables = [
        ("4.1", plan.table_4_1_data(), published.TABLE_4_1, 2 * published.ROWS),
        ("4.2", plan.table_4_2_data(), published.TABLE_4_2, published.ROWS),
    ]
    header = ["partitions", "keys per partition", "execution s", "std s", "reducer s"]
    header += ["thesis: execution s", "std s", "reducer s"]
    for number, data, theirs, their_rows in tables:
        rows = []
        for partitions in plan.partitions:
            runs = results.of(Cell("plain", data, partitions, "tasks"))
            if runs:
                walls = [run["wall_s"] for run in runs]
                reducers = [run["steps"]["reduce"]["seconds"] for run in runs]
                ours = [_spread(runs[0]["keys_per_partition"]), statistics.mean(walls)]
                ours += [statistics.stdev(walls) if len(walls) > 1 else None]
                ours += [statistics.mean(reducers)]
                rows.append([partitions, *ours, *theirs.get(partitions, [None] * 3)])
        if rows:
            note = f"{_NAMES[data.keys]}, {_rows_note(data.rows, their_rows)}"
            title = f"Table {number}: plain Python, a process per task ({note})"
            yield markdown(title, header, rows)


def _spread(keys: list[int]) -> str:
    """Return the keys per partition as in the thesis: a few in full, many by their range."""
    if sum(keys) > 100:
        return "uniform" if max(keys) <= 1.1 * sum(keys) / len(keys) else "not uniform"
    return str(keys) if len(keys) <= 10 else f"max {max(keys)}"


def _by_step(plan: Plan, results: Results) -> Iterator[str]:
    header = ["partitions", *(f"{step} s" for step in STEPS), "total s"]
    header += [f"thesis: {name}" for name in header[1:]]
    for number, (version, keys) in enumerate(published.BY_STEP, 3):
        theirs = published.BY_STEP[version, keys]
        rows = []
        for partitions in plan.partitions:
            cell = Cell(version, plan.base_data(keys), partitions, "alone")
            if results.of(cell):
                ours = [results.per_task_s(cell, step) for step in STEPS]
                ours += [results.total_per_task_s(cell)]
                rows.append([partitions, *ours, *theirs.get(partitions, [None] * 4)])
        if rows:
            note = f"{_NAMES[keys]}, {_rows_note(plan.rows, published.ROWS)}"
            title = f"Table 4.{number}: {version}, time over tasks ({note})"
            yield markdown(title, header, rows)


def _local_and_distributed(plan: Plan, results: Results) -> Iterator[str]:
    header = ["partitions", "local s", "distributed s", "thesis: local s", "distributed s"]
    for number, keys in enumerate(KEYS, 7):
        rows = []
        for partitions in plan.partitions:
            ours = [
                results.total_per_task_s(Cell(version, plan.base_data(keys), partitions, "alone"))
                for version in ("arrow", "flight")
            ]
            tables = [published.BY_STEP[version, keys] for version in ("arrow", "flight")]
            theirs = [table[partitions][-1] if partitions in table else None for table in tables]
            rows.append([partitions, *ours, *theirs])
        if any(row[1] or row[2] for row in rows):
            title = f"Table 4.{number}: total time over tasks ({_NAMES[keys]})"
            yield markdown(title, header, rows)


def _walls(plan: Plan, results: Results) -> Iterator[str]:
    header = ["partitions", *(f"{version} s" for version in plan.versions)]
    for keys in KEYS:
        rows = [
            [partitions]
            + [
                results.wall_s(Cell(version, plan.base_data(keys), partitions, "cores"))
                for version in plan.versions
            ]
            for partitions in plan.partitions
        ]
        if any(value for row in rows for value in row[1:]):
            note = f"{_NAMES[keys]}, {plan.rows:,} rows"
            yield markdown(f"Wall time, as many processes as cores ({note})", header, rows)


def _mrflight(plan: Plan, results: Results) -> Iterator[str]:
    header = ["partitions", "map and shuffle s", "reduce s", "total s", "flight: total s", "times"]
    for keys in KEYS:
        rows = []
        for partitions in plan.partitions:
            cell = Cell("mrflight", plan.base_data(keys), partitions, "alone")
            flight = Cell("flight", plan.base_data(keys), partitions, "alone")
            total, theirs = results.total_per_task_s(cell), results.total_per_task_s(flight)
            if total:
                ours = [results.per_task_s(cell, "map"), results.per_task_s(cell, "reduce"), total]
                rows.append([partitions, *ours, theirs, theirs / total if theirs else None])
        if rows:
            title = f"mrflight with one worker, time over tasks as in 4.5 and 4.6 ({_NAMES[keys]})"
            yield markdown(title, header, rows)
