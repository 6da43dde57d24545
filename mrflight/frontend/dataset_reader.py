"""Gives the rows of a dataset to its caller: as a table, batch by batch, or the first of them."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mrflight.config.spec import JobSpec
from mrflight.errors import JobError, JobFileError
from mrflight.frontend.clear_errors import with_clear_errors
from mrflight.frontend.dataset_writer import TO_CALLER
from mrflight.frontend.python_words import PythonWords
from mrflight.system.progress import progress_here

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa

    from mrflight.frontend.batches import Batches


@with_clear_errors
class DatasetReader(ABC):
    """The methods of a `Dataset` that return its rows, or what is known of them.

    Those that run the job return the rows in the order of the partitions, which is that of the
    input if nothing was shuffled, and that of `sort_by`. They raise what `write_delta` raises.
    """

    def batches(self, *, progress: bool = True) -> Batches:
        """Return an iterator over the rows, which are not all held in memory; see `Batches`.

        If there are no rows, it gives one empty batch, which has the columns. ``progress``: show
        the stages until the first batch is there.
        """
        from mrflight.frontend.batches import Batches, ProgressBeforeRows

        report = ProgressBeforeRows(progress_here(shown=progress))
        return Batches(self._spec(TO_CALLER), report, self._words())

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Iterate over `batches`."""
        return iter(self.batches())

    def collect(self, *, progress: bool = True) -> pa.Table:
        """Run the job, and return all rows. They have to fit into the memory of this process.

        ``progress``: show the stages as they run, and the rows as they come.
        """
        import pyarrow as pa

        from mrflight.frontend.batches import Batches

        report = progress_here(shown=progress)
        with Batches(self._spec(TO_CALLER), report, self._words()) as batches:
            first, *others = batches
            return pa.Table.from_batches([first, *others], first.schema)

    def to_arrow(self, *, progress: bool = True) -> pa.Table:
        """Return what `collect` returns."""
        return self.collect(progress=progress)

    def to_pandas(self, *, progress: bool = True) -> Any:
        """Return what `collect` returns as a pandas frame. Needs pandas."""
        _import("pandas", "to_pandas")
        return self.collect(progress=progress).to_pandas()

    def to_polars(self, *, progress: bool = True) -> pl.DataFrame:
        """Return what `collect` returns as a Polars frame. Needs polars."""
        polars = _import("polars", "to_polars")
        frame: pl.DataFrame = polars.from_arrow(self.collect(progress=progress))
        return frame

    def head(self, n: int = 5, *, progress: bool = True) -> pa.Table:
        """Return at most ``n`` rows, the first ones if the rows have an order.

        If nothing is shuffled, this reads no more of the inputs than it needs, and in this process:
        users' functions run here. Otherwise it runs the job with `limit`.
        """
        if not isinstance(n, int) or n < 0:
            raise JobFileError(f"head: the number of rows must be 0 or more, not {n!r}")
        if self._is_shuffled:
            self._check_leaves_rows("head")
            return self.limit(n).collect(progress=progress)
        from mrflight.frontend.first_rows import first_rows

        return first_rows(self._spec(TO_CALLER), Path.cwd(), n)

    def show(self, n: int = 10, *, progress: bool = True) -> None:
        """Print what `head` returns as a table that fits the terminal, with shortened values."""
        from mrflight.frontend.printed_table import print_table

        rows = self.head(n, progress=progress)
        print_table(rows, sys.stdout, may_have_more=rows.num_rows == n)

    def count(self, *, progress: bool = True) -> int:
        """Return the number of rows.

        It is read from the files alone if they know it (parquet, Arrow, Delta) and nothing is done
        with their rows. Otherwise a job counts.
        """
        if not self._is_shuffled:
            from mrflight.frontend.first_rows import count_in_footers

            counted = count_in_footers(self._spec(TO_CALLER), Path.cwd())
            if counted is not None:
                return counted
        self._check_leaves_rows("count")
        counted_rows = self._without_keys().agg(n="count(*)").collect(progress=progress)
        total: int = counted_rows["n"][0].as_py()
        return total

    @property
    def schema(self) -> pa.Schema:
        """The columns and their types, without running the job.

        A function that maps the rows of files is called with the first of them, in this process.
        Raises JobFileError if only the job can tell, because a function makes the rows later.
        """
        schema = self._find_schema()
        if schema is None:
            raise JobFileError(
                "schema: a function makes these columns of rows that were shuffled, so only the "
                "job can tell them; run it with .head(0).schema"
            )
        return schema

    def describe(self, *, progress: bool = True) -> pa.Table:
        """Return a row for each column: its type, its numbers of values and nulls, and their range.

        ``min`` and ``max`` are texts, and null where values have no order. Numbers have a mean, a
        standard deviation, and the quartiles "25%", "50%" and "75%", which are those of
        ``approx_quantile``. One job aggregates all columns.
        """
        from mrflight.frontend.description import aggregates_of, describe_columns

        self._check_leaves_rows("describe")
        known = self._find_schema()
        schema = self.head(0, progress=progress).schema if known is None else known
        totals = self._without_keys().agg(aggregates_of(schema)).collect(progress=progress)
        return describe_columns(schema, totals)

    def _check_leaves_rows(self, method: str) -> None:
        """Raise JobFileError if a job for this method would take rows that are given only once."""
        for section in self._spec(TO_CALLER).all_inputs:
            if section.frame is not None and section.frame.reads_once:
                raise JobFileError(
                    f"{method} would run a job, which takes the rows of the {section.frame.kind} "
                    "that this reads, and they are given only once; collect() the result, or read "
                    "a table: mrflight.read(reader.read_all())"
                )

    def _find_schema(self) -> pa.Schema | None:
        """Return the schema; None if only the job can tell."""
        from mrflight.frontend.first_rows import find_schema

        return find_schema(self._spec(TO_CALLER), Path.cwd())

    @property
    @abstractmethod
    def _is_shuffled(self) -> bool:
        """Whether the rows are the result of a stage, and not those of files that were mapped."""

    @abstractmethod
    def _without_keys(self) -> DatasetReader:
        """Return the rows without what was set for how the next step partitions them."""

    @abstractmethod
    def _words(self) -> PythonWords: ...

    @abstractmethod
    def _spec(self, output: Mapping[str, Any]) -> JobSpec: ...

    @abstractmethod
    def limit(self, rows: int) -> DatasetReader: ...

    @abstractmethod
    def agg(
        self, aggregates: Mapping[str, str] | None = None, /, **named: str
    ) -> DatasetReader: ...


def _import(package: str, method: str) -> Any:
    try:
        return import_module(package)
    except ImportError as error:
        raise JobError(
            f"{method} needs {package}, which is not installed: pip install {package}; or take the "
            "pyarrow.Table of collect()"
        ) from error
