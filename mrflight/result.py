"""The result of a job, and its summary."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from mrflight.units import format_bytes, format_count


class StageSeconds(msgspec.Struct, frozen=True):
    """The wall time of a job and of its phases, in seconds."""

    total: float = 0.0
    start: float = 0.0
    map: float = 0.0
    reduce: float = 0.0
    commit: float = 0.0


class Attempts(msgspec.Struct, frozen=True):
    """How many task attempts were started, and how many of them failed.

    Tasks that sample, that check functions, or that rewrite files for a merge are not counted.
    Attempts that were ended or failed because a server was lost do not count as failed.
    """

    map: int = 0
    reduce: int = 0
    failed: int = 0


class MergeCounts(msgspec.Struct, frozen=True):
    """What a merge changed in the table; its new rows are the job's ``rows_out``."""

    rows_updated: int = 0
    """Rows of the table that were replaced."""
    rows_deleted: int = 0
    files_rewritten: int = 0
    """Files that were replaced by a file without the updated and deleted rows."""
    files_removed: int = 0
    """Files that had no other rows."""


class OperatorProfile(msgspec.Struct, frozen=True):
    """What an operator of a query did, in all tasks of its stage together."""

    text: str
    """The operator, as the plan has it."""
    rows: int
    """The rows that it put out."""
    seconds: float
    """How long it computed, as DataFusion measures it."""


class StageProfile(msgspec.Struct, frozen=True):
    """What the tasks of one stage took, with those that ran again because something was lost."""

    name: str
    tasks: int
    attempts: int
    """The attempts that ended, of all kinds."""
    retried: int
    """The attempts that were not the first of their task, without speculative ones."""
    speculative: int
    seconds: float
    """The wall time of the stage."""
    median_seconds: float
    """The wall time of a task in the middle."""
    longest_seconds: float
    longest_task: str
    cpu_seconds: float
    rows: int
    size_bytes: int
    """The bytes that maps read, or of the files that reduces wrote."""
    sent_bytes: int
    """What was sent to data servers, with replicas and what was sent again."""
    fetched_bytes: int
    spilled_bytes: int
    """What workers, and data servers meanwhile, wrote to disk for lack of memory."""
    memory_bytes: int = 0
    """The most memory that a worker held."""
    query_stage: str = ""
    """The stage of a query whose result the tasks made."""
    operators: tuple[OperatorProfile, ...] = ()
    """The operators of that stage, from the last one on, each before those that it reads."""

    def __str__(self) -> str:
        moved = [
            f"{format_bytes(size)} {done}"
            for size, done in (
                (self.size_bytes, "written" if self.fetched_bytes else "read"),
                (self.sent_bytes, "sent"),
                (self.fetched_bytes, "fetched"),
                (self.spilled_bytes, "spilled"),
            )
            if size
        ]
        retried = [f"{self.retried:,} retried"] if self.retried else []
        times = f"median {self.median_seconds:.2f} s, longest {self.longest_seconds:.2f} s"
        tasks = f"{format_count(self.tasks, 'task')} in {self.seconds:.2f} s"
        return f"{self.name}: {tasks}, {times}; {', '.join([*moved, *retried])}".rstrip("; ")


class Finding(msgspec.Struct, frozen=True):
    """Something that stood out in a job, and what may help."""

    kind: str
    """``skewed_partition``, ``slow_worker`` or ``spilled``."""
    stage: str
    message: str
    setting: str
    """The key of the job file to change; empty if none helps."""
    advice: str

    def __str__(self) -> str:
        return f"{self.message}; {self.advice}"


class JobProfile(msgspec.Struct, frozen=True):
    """Where the time of a job went."""

    stages: tuple[StageProfile, ...] = ()
    """In the order in which they began, without what the driver did itself."""
    findings: tuple[Finding, ...] = ()

    def lines(self) -> list[str]:
        """Return a line for each stage that took longest, at most five, and for each finding."""
        longest = sorted(self.stages, key=lambda stage: -stage.seconds)[:_STAGE_LINES]
        shown = [str(stage) for stage in self.stages if stage in longest]
        others = [stage for stage in self.stages if stage not in longest]
        if others:
            seconds = sum(stage.seconds for stage in others)
            shown.append(f"{format_count(len(others), 'other stage')}: {seconds:.2f} s")
        return [*shown, *(f"note: {finding}" for finding in self.findings)]


_STAGE_LINES = 5


def describe_bad_rows(bad_rows: Mapping[str, int]) -> list[str]:
    """Return how many bad rows each input has, without those that have none."""
    return [f"{format_count(rows, 'bad row')} of {name}" for name, rows in bad_rows.items() if rows]


class JobResult(msgspec.Struct, frozen=True):
    """The result of a job, which ``--json`` prints as its last line.

    For a job that failed or was interrupted it has what was known by then. The numbers of phases
    that it did not reach are 0. So is ``rows_out``, because nothing was committed.
    """

    job_id: str
    state: str
    """``committed``, or ``failed`` or ``interrupted`` with an ``error``. If the rows are read by
    `Batches`, it is what ``Batches.result`` says."""
    rows_in: int = 0
    rows_out: int = 0
    partitions: int = 0
    bytes_shuffled: int = 0
    seconds: StageSeconds = StageSeconds()
    table: str = ""
    """The full path or URL of the output."""
    version: int | None = None
    """The version of the Delta table that was committed; None for folders of files."""
    input_versions: dict[str, int] = {}
    """The version that was read of each input that is a Delta table."""
    bad_rows: dict[str, int] = {}
    """The rows that were skipped of each input with ``bad_rows``, because they cannot be read; they
    are not in ``rows_in``."""
    attempts: Attempts = Attempts()
    peak_memory_bytes: int = 0
    """The most memory that all processes of the job held together, as measured, without the servers
    of a standing cluster. 0 if the rows are read by `Batches`."""
    error: str | None = None
    profile: JobProfile = JobProfile()
    merged: MergeCounts | msgspec.UnsetType = msgspec.UNSET
    """Only present for a merge that this run committed."""

    def __repr__(self) -> str:
        rows = self._rows()
        width = max(len(name) for name, _ in rows)
        lines = [f"  {name:{width}}  {text}" for name, text in rows]
        return "\n".join([f"JobResult: {self.state}", *lines])

    def _repr_html_(self) -> str:
        """Return the result as a table for a notebook."""
        return html_table(f"Job {self.state}", self._rows())

    def _rows(self) -> list[tuple[str, str]]:
        """Return what people want to know, each with its name."""
        seconds, attempts, peak = self.seconds, self.attempts, self.peak_memory_bytes
        version = "" if self.version is None else f", version {self.version}"
        read = ", ".join(
            f"{name}, version {number}" for name, number in self.input_versions.items()
        )
        tasks = f"{format_count(attempts.map, 'map')}, {format_count(attempts.reduce, 'reduce')}"
        rows = [
            ("error", self.error),
            ("table", self.table and f"{self.table}{version}"),
            ("read", read),
            ("rows", f"{self.rows_in:,} in, {self.rows_out:,} out"),
            ("skipped", ", ".join(describe_bad_rows(self.bad_rows))),
            ("merged", self._merged().strip()),
            (
                "shuffled",
                f"{format_bytes(self.bytes_shuffled)} in "
                f"{format_count(self.partitions, 'partition')}",
            ),
            (
                "time",
                f"{seconds.total:.2f} s: start {seconds.start:.2f}, map {seconds.map:.2f}, "
                f"reduce {seconds.reduce:.2f}, commit {seconds.commit:.2f}",
            ),
            ("memory", peak and f"at most {format_bytes(peak)}"),
            ("attempts", tasks + (f", {attempts.failed:,} failed" if attempts.failed else "")),
            ("job", self.job_id),
        ]
        return [(name, text) for name, text in rows if text]

    def summary(self) -> str:
        """Return a few lines for people."""
        seconds = self.seconds
        stages = f"start {seconds.start:.2f}, map {seconds.map:.2f}, reduce {seconds.reduce:.2f}"
        version = "" if self.version is None else f", version {self.version}"
        read = "".join(f"{name}, version {v}, " for name, v in self.input_versions.items())
        profile = "".join(f"{line}\n" for line in self.profile.lines())
        return (
            f"{format_count(self.rows_in, 'row')} in, {self._skipped()}"
            f"{format_count(self.rows_out, 'row')} out, "
            f"{format_count(self.partitions, 'partition')}, "
            f"{format_bytes(self.bytes_shuffled)} shuffled\n"
            f"{seconds.total:.2f} s: {stages}, commit {seconds.commit:.2f}; "
            f"at most {format_bytes(self.peak_memory_bytes)} of memory\n"
            f"{profile}"
            f"{read and f'read {read}wrote '}{self.table}{version}{self._merged()}"
        )

    def _skipped(self) -> str:
        return "".join(f"{each} skipped, " for each in describe_bad_rows(self.bad_rows))

    def _merged(self) -> str:
        merged = self.merged
        if isinstance(merged, msgspec.UnsetType):
            return ""
        return (
            f"\n{format_count(merged.rows_updated, 'row')} updated, "
            f"{merged.rows_deleted:,} deleted; "
            f"{format_count(merged.files_rewritten, 'file')} rewritten, "
            f"{merged.files_removed:,} removed"
        )


def html_table(caption: str, rows: Iterable[tuple[str, str]]) -> str:
    """Return names and texts as a table of HTML, which a notebook shows."""
    from html import escape  # only notebooks need it

    style = 'style="text-align:left;vertical-align:top;white-space:pre-wrap"'
    lines = [
        f"<tr><th {style}>{escape(name)}</th><td {style}>{escape(text)}</td></tr>"
        for name, text in rows
    ]
    heading = f'<caption style="text-align:left;white-space:nowrap">{escape(caption)}</caption>'
    return "\n".join(["<table>", heading, *lines, "</table>"])
