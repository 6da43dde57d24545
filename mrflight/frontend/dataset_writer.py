"""Turns a dataset into a job: its spec, its plan, or a run that writes a table."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from mrflight.config.spec import JobSpec
from mrflight.frontend.clear_errors import with_clear_errors
from mrflight.result import JobResult

Names = str | Sequence[str]
"""One column, or several."""

Mode = Literal["error", "append", "overwrite"]


TO_CALLER: Mapping[str, Any] = MappingProxyType({"table": ""})
"""The section ``[output]`` of a job whose rows are not written: see `NO_OUTPUT`."""


@with_clear_errors
class DatasetWriter(ABC):
    """The methods of a `Dataset` that describe or run its job."""

    def job(self, table: str | PathLike[str], **output: Any) -> JobSpec:
        """Return the job that writes the rows, without running it.

        ``output`` are further keys of ``[output]``. Raises JobFileError like a job file.
        """
        keys = {key: value for key, value in output.items() if value is not None}
        keys |= {key: names_of(keys[key]) for key in ("keys", "partition_by") if key in keys}
        return self._spec({"table": os.fspath(table), **keys})

    def explain(self, table: str | PathLike[str] | None = None, **output: Any) -> str:
        """Return the plan as text, without starting anything; an output is checked if given."""
        from mrflight.frontend.dataset_html import PlanText
        from mrflight.planner.explain import explain  # loads Arrow

        spec = self._spec(TO_CALLER) if table is None else self.job(table, **output)
        return PlanText("\n".join(explain(spec, Path.cwd())))

    def write_delta(
        self,
        table: str | PathLike[str],
        *,
        mode: Mode | Literal["merge"] = "error",
        keys: Names | None = None,
        order_by: str | None = None,
        delete_when: str | None = None,
        schema: Literal["fixed", "evolve"] | None = None,
        partition_by: Names | None = None,
        compression: str | None = None,
        progress: bool = True,
    ) -> JobResult:
        """Run the job, and commit its rows to a Delta table before this returns.

        ``progress``: show the stages as they run, as bars in a terminal and in a notebook, else as
        lines on stderr. Raises JobError if the job or its input is wrong, and another MrflightError
        if the job could not finish. The table is then unchanged.
        """
        output = {"keys": keys, "order_by": order_by, "delete_when": delete_when}
        output |= {"schema": schema, "partition_by": partition_by, "compression": compression}
        return _run(self.job(table, mode=mode, **output), progress=progress)

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
        output = {"mode": mode, "partition_by": partition_by, "compression": compression}
        return _run(self.job(table, format="parquet", **output), progress=progress)

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
