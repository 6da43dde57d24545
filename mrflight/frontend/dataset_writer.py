"""Turns a dataset into a job: its spec, its plan, or a run that writes a table."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from os import PathLike
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, Unpack

from mrflight.config.keyword_options import DeltaOptions, Mode, Names, OutputOptions
from mrflight.config.output_section import OutputSection
from mrflight.config.spec import JobSpec
from mrflight.frontend.clear_errors import with_clear_errors
from mrflight.frontend.dataset_builder import without_none
from mrflight.frontend.named_options import with_named_options
from mrflight.result import JobResult

TO_CALLER: Mapping[str, Any] = MappingProxyType({"table": ""})
"""The section ``[output]`` of a job whose rows are not written: see `NO_OUTPUT`."""


@with_clear_errors
class DatasetWriter(ABC):
    """The methods of a `Dataset` that describe or run its job."""

    def job(self, table: str | PathLike[str], **output: Unpack[OutputOptions]) -> JobSpec:
        """Return the job that writes the rows, without running it.

        ``output`` are further keys of ``[output]``. Raises JobFileError like a job file.
        """
        section: dict[str, Any] = without_none(output)
        for key in section.keys() & {"keys", "partition_by"}:
            section[key] = names_of(section[key])
        return self._spec({"table": os.fspath(table), **section})

    def explain(
        self, table: str | PathLike[str] | None = None, **output: Unpack[OutputOptions]
    ) -> str:
        """Return the plan as text, without starting anything; an output is checked if given."""
        from mrflight.frontend.dataset_html import PlanText
        from mrflight.planner.explain import explain  # loads Arrow

        spec = self._spec(TO_CALLER) if table is None else self.job(table, **output)
        return PlanText("\n".join(explain(spec, Path.cwd())))

    @with_named_options(OutputSection)
    def write_delta(
        self,
        table: str | PathLike[str],
        *,
        mode: Mode | Literal["merge"] = "error",
        progress: bool = True,
        **options: Unpack[DeltaOptions],
    ) -> JobResult:
        """Run the job, and commit its rows to a Delta table before this returns.

        The options, `DeltaOptions`, are those of ``[output]`` of a job file.
        ``progress``: show the stages as they run, as bars in a terminal and in a notebook, else as
        lines on stderr. Raises JobError if the job or its input is wrong, and another MrflightError
        if the job could not finish. The table is then unchanged.
        """
        return _run(self.job(table, mode=mode, **options), progress=progress)

    def write_parquet(
        self,
        table: str | PathLike[str],
        *,
        mode: Mode = "error",
        partition_by: Names | None = None,
        compression: str | None = None,
        progress: bool = True,
    ) -> JobResult:
        """Run the job as `write_delta` does, but into a folder of parquet files."""
        output: DeltaOptions = {"partition_by": partition_by, "compression": compression}
        return _run(self.job(table, format="parquet", mode=mode, **output), progress=progress)

    def write_csv(
        self,
        table: str | PathLike[str],
        *,
        mode: Mode = "error",
        partition_by: Names | None = None,
        progress: bool = True,
    ) -> JobResult:
        """Run the job as `write_delta` does, but into a folder of csv files."""
        return _run(
            self.job(table, format="csv", mode=mode, partition_by=partition_by), progress=progress
        )

    def write_arrow(
        self,
        table: str | PathLike[str],
        *,
        mode: Mode = "error",
        partition_by: Names | None = None,
        progress: bool = True,
    ) -> JobResult:
        """Run the job as `write_delta` does, but into a folder of Arrow files."""
        return _run(
            self.job(table, format="arrow", mode=mode, partition_by=partition_by), progress=progress
        )

    @abstractmethod
    def _spec(self, output: Mapping[str, Any]) -> JobSpec:
        """Return the job with this section ``[output]``, or `TO_CALLER`."""


def names_of(given: Names) -> list[str]:
    """Return one name or several as a list."""
    return [given] if isinstance(given, str) else list(given)


def all_names_of(given: Iterable[Names]) -> list[str]:
    """Return the names of several arguments as one list."""
    return [name for each in given for name in names_of(each)]


def _run(spec: JobSpec, *, progress: bool) -> JobResult:
    from mrflight.frontend.api import run_here  # loads Arrow

    return run_here(spec, progress=progress)
