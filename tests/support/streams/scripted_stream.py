"""A stream whose brokers, table and time are a script: `StreamRun` in milliseconds."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
from msgspec.structs import replace

from mrflight.config.job_file import decode_job
from mrflight.config.spec import JobSpec
from mrflight.errors import MrflightError
from mrflight.scheduler.job_run import JobRun
from mrflight.scheduler.metrics import JobMetrics, PhaseTimer
from mrflight.sinks.commit.base import Sink
from mrflight.sources.bad_rows import BadRow, BadRowLog
from mrflight.sources.kafka.decoding import MessageDecoder
from mrflight.sources.kafka.formats.opening import open_format
from mrflight.sources.kafka.messages import METADATA
from mrflight.sources.kafka.offset_range import OffsetRange
from mrflight.sources.kafka.topic_offsets import KafkaCluster, Partition
from mrflight.storage.part_name import PartId
from mrflight.streams.batch_job import WrittenBatch
from mrflight.streams.batches import Batches
from mrflight.streams.committer import Committer
from mrflight.streams.dead_letters import DeadLetters
from mrflight.streams.kept_start import KeptStart
from mrflight.streams.live import Live
from mrflight.streams.positions import Positions
from mrflight.streams.stream_parts import StreamParts
from mrflight.streams.stream_progress import StreamProgress
from mrflight.streams.stream_result import StreamResult
from mrflight.streams.stream_run import StreamRun
from mrflight.streams.stream_settings import StreamSettings
from mrflight.streams.topic_positions import TopicPositions
from mrflight.system.deadlines import NO_DEADLINE
from mrflight.system.signals import Interrupts
from mrflight.tasks.part_files import ReduceResult
from tests.support.streams.memory_table import MemorySink, MemoryTable
from tests.support.streams.scripted_broker import Script, ScriptedBroker
from tests.support.streams.scripted_clock import InlineThread, ScriptedClock


class RecordedLetters(DeadLetters):
    """The dead letters in a table in memory, which records offsets of its own."""

    def __init__(self, script: Script) -> None:
        self.table = MemoryTable(script)
        self.offsets: list[tuple[Partition, int]] = []
        self._script = script
        self._recorded: dict[str, int] = {}

    def commit(
        self,
        job_id: str,
        rows: Sequence[BadRow],
        ends: Mapping[str, int],
        names: Mapping[Partition, str],
    ) -> int:
        self._script.step("letters")
        new = [
            ((each.topic, each.partition), each.offset)
            for each in cast(Any, rows)
            if each.offset >= self._recorded.get(names[each.topic, each.partition], 0)
        ]
        self.offsets += new
        if new:
            self._recorded |= ends
        return len(new)


class _Rejected(BadRowLog):
    needs_rows = True

    def __init__(self) -> None:
        super().__init__()
        self.found: list[BadRow] = []

    def add(self, count: int, describe: Callable[[], Iterable[BadRow]]) -> None:
        super().add(count, describe)
        self.found += describe()


@dataclass
class ScriptedWriter:
    """Reads a batch from the scripted broker, and writes its rows in this process."""

    stream: ScriptedStream

    def write(
        self, ranges: tuple[OffsetRange, ...], schema: pa.Schema | None, sink: Sink, job_id: str
    ) -> WrittenBatch:
        try:
            return self._write(ranges, schema, sink, job_id)
        except BaseException:
            sink.abort()
            raise

    def _write(
        self, ranges: tuple[OffsetRange, ...], schema: pa.Schema | None, sink: Sink, job_id: str
    ) -> WrittenBatch:
        stream, name = self.stream, self.stream.settings.input
        stream.script.step("write")
        section = stream.spec.inputs[name]
        own = [each for each in section.columns or () if each not in METADATA.names]
        section = replace(section, columns=own or None)
        messages = [stream.broker.read(each) for each in ranges]
        sample = [each for each in messages if len(each)]
        format = open_format(name, section, stream.folder, schema, lambda: sample)
        columns = pa.schema([*format.schema, *(METADATA if section.metadata else ())])
        sink.check_rows(columns)
        decoder = MessageDecoder(name, format, columns, section.metadata)
        log = _Rejected()
        batches = [decoder.decode(each, log) for each in messages]
        stream.script.step("rows are written")
        parts = sink.part_writer.write(PartId(0, 0), columns, batches)
        rows = sum(each.num_rows for each in batches)
        metrics = JobMetrics(PhaseTimer(0.0), job_id=job_id, rows_in=rows)
        metrics.input_bytes = sum(each.size_bytes for each in messages)
        job = SimpleNamespace(
            metrics=metrics,
            interrupts=Interrupts(),
            deadline=NO_DEADLINE,
            runner=SimpleNamespace(started=Counter[str](), workers=1),
            settings=SimpleNamespace(memory=SimpleNamespace(rewriter=1 << 20, encoder=1 << 20)),
        )
        reduced = [ReduceResult(rows, columns, tuple(parts))]
        found, schema = log.found, format.schema
        return WrittenBatch(cast(JobRun, job), sink, ranges, reduced, found, len(found), schema)


class RecordedLive(Live):
    """Notes what a live stream is told, and cuts batches where it is told to."""

    def __init__(self) -> None:
        self.followed: list[dict[Partition, int]] = []
        self.commits = 0
        self.is_closed = False
        self.cuts: dict[Partition, int] = {}

    def follow(self, position: dict[Partition, int]) -> None:
        self.followed.append(dict(position))

    def cut(
        self, position: dict[Partition, int], ends: dict[Partition, int]
    ) -> dict[Partition, int]:
        return ends | {each: at for each, at in self.cuts.items() if position[each] < at}

    def committed(self) -> None:
        self.commits += 1

    def close(self) -> None:
        self.is_closed = True


Sections = Mapping[str, Mapping[str, Any]]

INPUT = {
    "kafka": "broker:1",
    "topic": "t",
    "format": "json",
    "metadata": True,
    "types": {"n": "int64"},
}


def document(job: Sections) -> dict[str, Any]:
    """Return the job file of a stream, with other keys of its sections.

    A key that is None is left out.
    """
    sections: dict[str, dict[str, Any]] = {
        "job": {"name": "events"},
        "stream": {"commit": "1 s"},
        "output": {"table": "out/events", "mode": "append"},
    }
    merged = {name: {**keys, **job.get(name, {})} for name, keys in sections.items()}
    merged["inputs"] = {"events": {**INPUT, **job.get("input", {})}}
    for section in (*merged.values(), merged["inputs"]["events"]):
        for key in [each for each, value in section.items() if value is None]:
            del section[key]
    return merged


@cache
def _decoded(job: str) -> JobSpec:
    """Decode a job file, which takes longer than to run it here."""
    return decode_job(json.loads(job))


@dataclass
class ScriptedStream:
    """A stream that can be run again and again, on the same brokers and the same table."""

    job: Sections = field(default_factory=dict)
    script: Script = field(default_factory=lambda: Script({}))
    folder: Path = Path("/nowhere")
    is_bounded: bool = True
    thread: Callable[[], Executor] = InlineThread
    live: RecordedLive | None = None
    open_sink: Callable[[str], Sink] | None = None
    """Opens the table; by default one in memory."""

    def __post_init__(self) -> None:
        self.broker = ScriptedBroker(self.script)
        self.spec = _decoded(json.dumps(document(self.job)))
        self.settings = StreamSettings.of(self.spec, until_caught_up=self.is_bounded)
        self.table = MemoryTable(self.script, self.spec.output.schema == "evolve")
        self.letters = RecordedLetters(self.script)
        self.clock = ScriptedClock()
        self.said: list[str] = []
        self.follows = True
        has_letters = self.settings.dead_letter is not None
        self.open_dead_letters: Callable[[], DeadLetters | None]
        self.open_dead_letters = lambda: self.letters if has_letters else None

    def run(self) -> StreamResult:
        """Run the stream to its end; its result has the state ``failed`` for an error of ours."""
        if self.clock.is_stopping:
            self.clock.go_on()
        self.progress = StreamProgress(self.settings.name, "out/events", self.said.append)
        self.error: MrflightError | None = None
        try:
            StreamRun(self.parts(), self.clock, self.progress).run()
        except MrflightError as error:
            self.error = error
            return self.progress.result("failed", str(error))
        return self.progress.result("stopped" if self.clock.is_stopping else "caught_up")

    def parts(self) -> StreamParts:
        """Return what the stream is made of."""

        def open_live(positions: Positions, committer: Committer, batches: Batches) -> Live | None:
            return self.live

        return StreamParts(
            self.spec,
            self.settings,
            ScriptedWriter(self),
            self.positions,
            self.open_sink or self._open_sink,
            self.open_dead_letters,
            open_live,
            self.thread,
        )

    def _open_sink(self, job_id: str) -> Sink:
        self.script.step("open sink")
        return MemorySink(self.table, job_id, follows=self.follows)

    def positions(self) -> Positions:
        """Return where the stream is in its topics."""
        section, cluster = self.spec.inputs["events"], cast(KafkaCluster, self.broker)
        kept = KeptStart(cluster, f"mrflight.{self.settings.name}", f"{section.start} out/events")
        return TopicPositions("events", section, cluster, kept)
