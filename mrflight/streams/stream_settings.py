"""The settings of a stream: its section of the job file, checked and with numbers in units."""

from __future__ import annotations

import re
from collections.abc import Callable

import msgspec

from mrflight.config.input_spec import InputSpec
from mrflight.config.spec import JobSpec
from mrflight.config.stream_section import StreamSection
from mrflight.errors import JobFileError
from mrflight.units import parse_bytes, parse_seconds

_NAME = re.compile(r"[A-Za-z0-9._-]{1,100}")
_PERCENT = re.compile(r"\s*(\d+(?:\.\d+)?)\s*%\s*")
_MIN_COMMIT_S = 0.01


class StreamSettings(msgspec.Struct, frozen=True):
    """What a stream reads, how large its batches are, and when it stops."""

    name: str
    input: str
    """The name of the input that is a stream."""
    commit_s: float
    max_rows: int
    max_bytes: int
    is_bounded: bool
    """True if it ends at the offsets that were the ends when it began."""
    on_bad_row: str
    dead_letter: str | None
    max_bad: float
    """The share of a batch's events that may be bad, from 0 to 1."""
    takes_earliest: bool
    """True if events that Kafka has deleted are skipped, and False if the stream stops then."""
    stop_within_s: float
    has_upkeep: bool
    is_live: bool = False
    """True if events can be read before they are committed."""
    feeds_tail: bool = False
    """True if a worker feeds the tail for that."""

    @classmethod
    def of(cls, spec: JobSpec, *, until_caught_up: bool = False) -> StreamSettings:
        """Return the settings of a job that is a stream; raise JobFileError for what cannot be.

        ``until_caught_up``: end at the ends of now, whatever ``stream.mode`` says.
        """
        section = spec.stream or StreamSection()
        name = section.name or spec.job.name
        if not _NAME.fullmatch(name):
            raise JobFileError(
                f"stream.name: {name!r} must be 1 to 100 letters, digits, '.', '_' and '-'; it is "
                "the identity of the stream's offsets in the table"
            )
        _check_job(spec)
        _check_bad_rows(section)
        commit_s = _parsed("commit", section.commit, parse_seconds)
        if commit_s < _MIN_COMMIT_S:
            raise JobFileError(f"stream.commit must be 10 ms or more, not {section.commit!r}")
        if section.max_rows < 1:
            raise JobFileError(f"stream.max_rows must be 1 or more, not {section.max_rows}")
        return cls(
            name,
            stream_input(spec),
            commit_s,
            section.max_rows,
            max(1, int(_parsed("max_bytes", section.max_bytes, parse_bytes))),
            until_caught_up or section.mode == "available",
            section.on_bad_row,
            section.dead_letter,
            _share(section.max_bad),
            section.on_lost_offsets == "earliest",
            _parsed("stop_within", section.stop_within, parse_seconds),
            section.upkeep == "auto",
            _is_live(spec, section),
            spec.feeds_tail,
        )


def stream_input(spec: JobSpec) -> str:
    """Return the name of the job's input that is a stream; raise JobFileError if there is not one.

    Other inputs may be tables that it is joined with.
    """
    found = [name for name, section in spec.inputs.items() if is_stream(section)]
    if len(found) == 1:
        return found[0]
    if not found:
        raise JobFileError(
            "inputs: a stream needs an input from Kafka, or an event log; write kafka = "
            '"broker:9092" and topic = "...", or log = "...", in one of them'
        )
    raise JobFileError(
        f"inputs.{found[1]}: a stream has one input from Kafka, or one event log, and "
        f"inputs.{found[0]} is one; read several topics with topics = [...], or run two streams"
    )


def is_stream(section: InputSpec) -> bool:
    """Return whether events are added to an input as time goes by."""
    return section.kafka is not None or section.log is not None


def _check_job(spec: JobSpec) -> None:
    """Raise JobFileError for settings of jobs that a stream cannot have."""
    for name, stage in spec.stages.items():
        if any(is_stream(section) for section in stage.inputs.values()):
            raise JobFileError(f"stages.{name}: the stream must be one of [inputs], not of a stage")
    if not spec.has_output:
        raise JobFileError("output.table must not be empty; write a path or a URL")
    if spec.output.mode not in ("append", "merge"):
        raise JobFileError(
            f"output.mode: {spec.output.mode!r} would undo the batches before; a stream needs "
            "append, or merge with output.keys"
        )
    if spec.output.format not in ("delta", "iceberg", "ducklake"):
        raise JobFileError(
            f"output.format: {spec.output.format} files cannot record the offsets of a stream with "
            "its rows; use delta, iceberg or ducklake"
        )
    if spec.job.run_id is not None:
        raise JobFileError("job.run_id is not for streams, whose batches are told by their offsets")


def _is_live(spec: JobSpec, section: StreamSection) -> bool:
    """Return whether the stream is live; raise JobFileError for one that cannot be."""
    if not section.live:
        return False
    is_shaped = spec.reduce is not None or spec.job.sql is not None
    is_fed, cluster = spec.feeds_tail, spec.cluster
    for is_wrong, reason in (
        (not all(map(is_stream, spec.inputs.values())), "reads only a stream"),
        (spec.output.format != "delta", "writes a Delta table (output.format)"),
        (
            spec.output.mode == "merge" and spec.output.order_by is None,
            "says in which order it merges (output.order_by)",
        ),
        (is_shaped or spec.stages or len(spec.inputs) > 1, "only maps its events"),
        (
            is_fed and cluster.executor != "local",
            'has its workers on this machine (cluster.executor = "local"), or reads an event log '
            "and maps nothing",
        ),
        (
            cluster.metadata is None and cluster.data_servers == 0,
            "has a data server (cluster.data_servers)",
        ),
    ):
        if is_wrong:
            raise JobFileError(f"stream.live is only for a stream that {reason}; leave it out")
    return True


def _check_bad_rows(section: StreamSection) -> None:
    if section.on_bad_row == "dead_letter" and section.dead_letter is None:
        raise JobFileError(
            'stream.dead_letter is missing; write the table for bad events, or on_bad_row = "skip"'
        )
    if section.on_bad_row != "dead_letter" and section.dead_letter is not None:
        raise JobFileError(
            f"stream.dead_letter is for on_bad_row = 'dead_letter', and it is "
            f"{section.on_bad_row!r}; set that, or remove this"
        )


def _parsed(key: str, text: str, parse: Callable[[str], float]) -> float:
    try:
        return parse(text)
    except ValueError as error:
        raise JobFileError(f"stream.{key}: {error}") from error


def _share(text: str) -> float:
    match = _PERCENT.fullmatch(text)
    if match is None or float(match[1]) > 100:
        raise JobFileError(f"stream.max_bad: {text[:40]!r} is not a share such as '1 %'")
    return float(match[1]) / 100
