"""Says what the stages of a query did when it ran: ``mrflight sql --explain-analyze``."""

from __future__ import annotations

from collections.abc import Iterator

from mrflight.planner.explain import labelled
from mrflight.planner.explain_input import Line
from mrflight.result import JobResult, OperatorProfile, StageProfile
from mrflight.units import format_bytes, format_count

_INPUTS = ("DataSourceExec", "Exchange", "Table")
"""What the operators begin with that read files, other stages, or tables."""


def analysis(result: JobResult) -> list[str]:
    """Return the lines for the stages of a query that has run, and for the query."""
    lines: list[str] = []
    for stage in result.profile.stages:
        lines += [*labelled(_stage(stage)), *labelled(_plan(stage.operators)), ""]
    return [*lines, *labelled(_total(result))]


def _stage(stage: StageProfile) -> Iterator[Line]:
    yield "stage", f"{stage.query_stage} ({stage.name})" if stage.query_stage else stage.name
    yield "tasks", ", ".join(_tasks(stage))
    read = [each.rows for each in stage.operators if each.text.startswith(_INPUTS)]
    given = f"{sum(read):,} in, " if read else ""
    yield "rows", f"{given}{stage.rows:,} out"
    for label, size in (
        ("fetched", stage.fetched_bytes),
        ("sent", stage.sent_bytes),
        ("spilled", stage.spilled_bytes),
    ):
        if size:
            yield label, format_bytes(size)
    if stage.memory_bytes:
        yield "memory", f"at most {format_bytes(stage.memory_bytes)} in a worker"


def _tasks(stage: StageProfile) -> Iterator[str]:
    yield f"{stage.tasks:,} in {stage.seconds:.2f} s"
    if stage.tasks > 1:
        yield f"median {stage.median_seconds:.2f} s"
        yield f"longest {stage.longest_seconds:.2f} s"
    if stage.retried:
        yield f"{stage.retried:,} retried"
    if stage.speculative:
        yield format_count(stage.speculative, "speculative attempt")


def _plan(operators: tuple[OperatorProfile, ...]) -> Iterator[Line]:
    """Yield the operators, each with the rows that it put out and its time in all tasks."""
    rows = [format_count(each.rows, "row") for each in operators]
    width = max(map(len, rows), default=0)
    for number, (text, each) in enumerate(zip(rows, operators, strict=True)):
        label = "  plan" if number == 0 else "  over"
        yield label, f"{text:>{width}}, {each.seconds:.3f} s: {each.text}"


def _total(result: JobResult) -> Iterator[Line]:
    yield "rows", f"{result.rows_in:,} read, {result.rows_out:,} in the result"
    yield "shuffled", format_bytes(result.bytes_shuffled)
    seconds = result.seconds
    yield "time", f"{seconds.total:.2f} s, of which the start took {seconds.start:.2f} s"
    if result.peak_memory_bytes:
        yield "memory", f"at most {format_bytes(result.peak_memory_bytes)} in all processes"
    for finding in result.profile.findings:
        yield "note", str(finding)
