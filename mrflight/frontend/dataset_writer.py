"""The ends of a dataset: the job that it comes to, its plan, and its run into a table."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Literal

from mrflight.config.spec import JobSpec
from mrflight.result import JobResult

Names = str | Sequence[str]
"""A column, or several."""

Mode = Literal["error", "append", "overwrite"]


class Writes(ABC):
    """What a `Dataset` can be asked for."""

    def job(self, table: str | PathLike[str], **output: Any) -> JobSpec:
        """The job that writes the rows, without running it.

        ``output`` is what ``[output]`` says beside the table. Raises JobFileError as a job file.
        """
        told = {key: value for key, value in output.items() if value is not None}
        told |= {key: names_of(told[key]) for key in ("keys", "partition_by") if key in told}
        return self._spec({"table": os.fspath(table), **told})

    def explain(self, table: str | PathLike[str] | None = None, **output: Any) -> str:
        """The plan in words; the output is looked at where one is told. Starts nothing."""
        from mrflight.planner.explain import explain  # which needs Arrow

        spec = self._spec({"table": ""}) if table is None else self.job(table, **output)
        return "\n".join(explain(spec, Path.cwd(), with_output=table is not None))

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
    ) -> JobResult:
        """Run the job; once this returns the rows are committed to a Delta table.

        Raises JobError where the job or its input is wrong, another MrflightError where it could
        not finish; the table is then as it was before.
        """
        output = {"keys": keys, "order_by": order_by, "delete_when": delete_when}
        output |= {"schema": schema, "partition_by": partition_by, "compression": compression}
        return _run(self.job(table, mode=mode, **output))

    def write_parquet(
        self,
        table: str | PathLike[str],
        *,
        mode: Mode = "error",
        partition_by: Names | None = None,
        compression: str | None = None,
    ) -> JobResult:
        """The same, to a folder of parquet files."""
        output = {"mode": mode, "partition_by": partition_by, "compression": compression}
        return _run(self.job(table, format="parquet", **output))

    def write_csv(
        self,
        table: str | PathLike[str],
        *,
        mode: Mode = "error",
        partition_by: Names | None = None,
    ) -> JobResult:
        """The same, to a folder of csv files."""
        return _run(self.job(table, format="csv", mode=mode, partition_by=partition_by))

    def write_arrow(
        self,
        table: str | PathLike[str],
        *,
        mode: Mode = "error",
        partition_by: Names | None = None,
    ) -> JobResult:
        """The same, to a folder of arrow files."""
        return _run(self.job(table, format="arrow", mode=mode, partition_by=partition_by))

    @abstractmethod
    def _spec(self, output: Mapping[str, Any]) -> JobSpec:
        """The job with this section ``[output]``."""


def names_of(given: Names) -> list[str]:
    """The columns."""
    return [given] if isinstance(given, str) else list(given)


def all_names_of(given: Iterable[Names]) -> list[str]:
    """The columns of several arguments."""
    return [name for each in given for name in names_of(each)]


def _run(spec: JobSpec) -> JobResult:
    from mrflight.frontend.api import run_here  # which needs Arrow

    return run_here(spec)
