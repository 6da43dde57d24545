"""Writes the frames of a job to files, and plans the job again with these."""

from __future__ import annotations

from pathlib import Path

from mrflight.config.input_spec import InputSpec
from mrflight.planner.job_plan import JobPlan
from mrflight.planner.stage_plan import SPLIT_BYTES
from mrflight.planner.stages import with_key_prefix
from mrflight.sources import open_source
from mrflight.sources.base import Source
from mrflight.sources.frame_source import FrameReader, read_written, write_frame
from mrflight.system.deadlines import Deadline
from mrflight.system.progress import ProgressReport


def write_frames(plan: JobPlan, files: FrameFiles) -> JobPlan:
    """Return the plan that tasks can run, whose inputs are all files or results of stages.

    Raises what `write_frame` raises, with the stage of the input.
    """
    sources = {stage: dict(inputs) for stage, inputs in plan.sources.items()}
    for stage in plan.stages:
        inputs = sources[stage.name]
        with with_key_prefix(stage):
            for name, source in inputs.items():
                if isinstance(source.reader, FrameReader):
                    inputs[name] = files.write(source, SPLIT_BYTES)
    return plan.with_sources(sources)


class FrameFiles:
    """The Arrow files of a job's frames, in a folder of the job."""

    def __init__(self, folder: Path, progress: ProgressReport, deadline: Deadline) -> None:
        self._folder = folder
        self._progress = progress
        self._deadline = deadline
        self._written: dict[int, Path] = {}
        """By `InputFrame.identity`."""

    def write(self, source: Source, split_bytes: int) -> Source:
        """Write the frame of a source, unless that is done, and return the source of its file."""
        reader = source.reader
        assert isinstance(reader, FrameReader), reader
        identity = id(reader.frame.identity)
        path = self._written.get(identity)
        if path is None:
            path = self._folder / f"frame-{len(self._written)}.arrow"
            write_frame(reader, path, self._progress, self._deadline)
            self._written[identity] = path
        spec = InputSpec(path=str(path), format="arrow", columns=reader.schema.names, hive=False)
        file = open_source(source.name, spec, self._folder, {}, split_bytes)
        return read_written(file, source.name)
