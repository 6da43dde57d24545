"""Jobs written in Python: a `Dataset` describes rows of files and the steps that transform them.

Nothing is read until the rows are written. The result is the same `JobSpec` that a job file
describes.
"""

from __future__ import annotations

import reprlib
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal, NoReturn

import msgspec
from msgspec import structs

from mrflight.config.job_file import decode_job
from mrflight.config.keyword_options import Names
from mrflight.config.pickled_functions import function_text
from mrflight.config.spec import JobSpec
from mrflight.errors import JobFileError
from mrflight.frontend.clear_errors import with_clear_errors
from mrflight.frontend.dataset_builder import (
    InputBuilder,
    StageBuilder,
    document_of,
    named_aggregates,
    with_distinct_names,
    without_none,
    words_of,
)
from mrflight.frontend.dataset_mapper import DatasetMapper, Function
from mrflight.frontend.dataset_reader import DatasetReader
from mrflight.frontend.dataset_writer import DatasetWriter, all_names_of, names_of
from mrflight.frontend.other_names import why_no_attribute
from mrflight.frontend.python_words import PythonWords

JoinType = Literal["inner", "left", "right", "full", "semi", "anti"]


@with_clear_errors
@dataclass(frozen=True, eq=False)
class Dataset(DatasetMapper, DatasetReader, DatasetWriter):
    """Rows that a job will produce. Every step returns a new dataset and leaves this one as is.

    Nothing runs before the rows are asked for, with `collect` and its like, or written. Mistakes
    are reported then, and by `job` and `explain`, with the methods and arguments that were wrong. A
    callable that cannot be pickled is reported at once.
    """

    _inputs: tuple[InputBuilder, ...] = ()
    """Inputs that are not shuffled yet. Otherwise there is a stage."""
    _stage: StageBuilder | None = None
    _settings: Mapping[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"<mrflight.Dataset {self._name}>"

    def _repr_html_(self) -> str:
        """Return the steps as a table for a notebook."""
        from mrflight.frontend.dataset_html import html_of

        return html_of(self._name, self._inputs, self._stage)

    @property
    def _name(self) -> str:
        names = [self._stage.name] if self._stage else [each.name for each in self._inputs]
        return ", ".join(names)

    def alias(self, name: str) -> Dataset:
        """Name the rows ``name`` in sql, in messages and in the plan."""
        if self._stage is not None:
            return replace(self, _stage=structs.replace(self._stage, name=name))
        if len(self._inputs) > 1:
            raise JobFileError(f"alias: {self!r} has several inputs; name each before the union")
        return replace(self, _inputs=(structs.replace(self._inputs[0], name=name),))

    def named(self, name: str) -> Dataset:
        """Deprecated: use `alias`."""
        warnings.warn("Dataset.named is now Dataset.alias", DeprecationWarning, stacklevel=3)
        return self.alias(name)

    def key_by(self, *columns: Names) -> Dataset:
        """Partition the rows by these columns in the next step, unless that sets a key itself."""
        return self._keyed(all_names_of(columns), "key_by")

    def keyed(self, *columns: Names) -> Dataset:
        """Deprecated: use `key_by`."""
        warnings.warn("Dataset.keyed is now Dataset.key_by", DeprecationWarning, stacklevel=3)
        return self.key_by(*columns)

    def broadcast(self, *, wanted: bool = True) -> Dataset:
        """Send all rows to every task of the next join or sql, or never do so."""
        return self._with_options(broadcast=wanted)

    def union(self, *others: Dataset) -> Dataset:
        """Append the rows of other datasets, which must have the same columns."""
        _check_datasets("union", *others)
        inputs = [each for one in (self, *others) for each in one._as_inputs()]
        return replace(
            self,
            _inputs=with_distinct_names(inputs),
            _stage=None,
            _settings=_merged_settings(self, *others),
        )

    def sql(
        self, query: str, *, key: Names | None = None, others: Dataset | Sequence[Dataset] = ()
    ) -> Dataset:
        """Query the rows with SQL, as a table with the dataset's name (see `alias`).

        Without a key the query runs over one row at a time, like a map. The rows of a union then
        have the name of its first dataset. With a key, or with others, it sees all rows of a key
        together, and those of the others with the same key, which `key_by` sets for each. Needs
        ``mrflight[sql]``.
        """
        if key is None and not others:
            return self._query_rows(query)
        others = [others] if isinstance(others, Dataset | str) else list(others)
        _check_datasets("sql", *others)
        mine = self._as_one_input()
        if key is not None:
            mine = mine.with_key(names_of(key), "sql(key=...)")
        cogrouped = [mine, *(other._as_one_input() for other in others)]
        return self._cogroup(cogrouped, others, "queried", sql=query)

    def group_by(self, *columns: Names) -> GroupedDataset:
        """Group the rows by these columns; `GroupedDataset.agg` aggregates each group."""
        names = all_names_of(columns)
        if not names:
            raise JobFileError(
                'group_by needs a column; to aggregate all rows write read(...).agg(n="count(*)")'
            )
        return GroupedDataset(self, tuple(names))

    def agg(self, aggregates: Mapping[str, str] | None = None, /, **named: str) -> Dataset:
        """Aggregate all rows into one, even if there are none: ``clicks="sum(weight)"``.

        The argument may be an SQL expression: ``total="sum(price * n)"``.
        A mapping takes names that Python does not allow as keywords.
        """
        requested = named_aggregates(aggregates, named)
        if not requested:
            raise JobFileError('agg needs an aggregate; write .agg(n="count(*)")')
        return self._reduce("totals", aggregate=requested)

    def reduce(self, function: Function, *, key: Names | None = None) -> Dataset:
        """Call ``function(pyarrow.Table)`` with all rows of one or more keys; it returns a table.

        It may also take and return Polars or pandas frames, as `map` describes.
        Raises UserFunctionError if the callable cannot be pickled.
        """
        rows = self if key is None else self._keyed(key, "reduce(key=...)")
        return rows._reduce("reduced", function=function_text(function, "reduce"))

    def join(
        self,
        other: Dataset,
        on: Names | None = None,
        *,
        left_on: Names | None = None,
        right_on: Names | None = None,
        how: JoinType = "inner",
    ) -> Dataset:
        """Join these rows, the left ones, with the rows of another dataset with the same key.

        Null keys match nothing. ``semi`` and ``anti`` keep the left rows that match some, or none.
        """
        _check_datasets("join", other)
        if on is not None and (left_on is not None or right_on is not None):
            raise JobFileError("join: on sets both keys; give either on, or left_on and right_on")
        sides = []
        for one, argument, own in ((self, "left_on", left_on), (other, "right_on", right_on)):
            side, columns = one._as_one_input(), own if on is None else on
            if columns is not None:
                argument = argument if on is None else "on"
                side = side.with_key(names_of(columns), f"join({argument}=...)")
            sides.append(side)
        left, right = with_distinct_names(sides)
        return self._cogroup(
            [left, right], [other], "joined", join=how, left=left.name, right=right.name
        )

    def distinct(self) -> Dataset:
        """Keep one of the rows that are equal in all columns."""
        return self._reduce("distinct_rows", distinct=True)

    def keep(
        self,
        which: Literal["first", "last"],
        *,
        key: Names | None = None,
        order_by: Names | None = None,
    ) -> Dataset:
        """Keep the first or the last row of each key, by an order like that of `sort_by`."""
        order = {} if order_by is None else {"order_by": names_of(order_by)}
        rows = self if key is None else self._keyed(key, "keep(key=...)")
        return rows._reduce("kept", keep=which, **order)

    def sort_by(self, *order: Names) -> Dataset:
        """Sort the rows over all part files: ``"revenue desc nulls first", "day"``."""
        return self._order("ordered", sort_by=all_names_of(order))

    def limit(self, rows: int) -> Dataset:
        """Keep only so many rows: the first ones by the order of `sort_by`, or any."""
        return self._order("limited", limit=rows)

    def repartition(
        self,
        *key: Names,
        partitions: int | Literal["auto"] | None = None,
        partitioner: Function | None = None,
    ) -> Dataset:
        """Repartition the rows by the hash of a key, or evenly without one.

        ``partitioner`` is that of a job file: ``range``, ``round_robin``, or a function
        ``(batch, key, partitions)``.
        """
        kind = None if partitioner is None else function_text(partitioner, "partitioner")
        options = without_none({"partitions": partitions, "partitioner": kind})
        columns = all_names_of(key)
        rows = self._keyed(columns, "repartition") if columns else self
        stage = StageBuilder("repartitioned", rows._as_inputs(), {}, options, frozenset(options))
        return replace(rows, _inputs=(), _stage=stage)

    def with_shuffle(self, **settings: Any) -> Dataset:
        """Set keys of ``[shuffle]`` for the shuffle of the last step."""
        if self._stage is None:
            raise JobFileError(f"with_shuffle: {self!r} is not shuffled yet")
        stage = structs.replace(self._stage, shuffle={**self._stage.shuffle, **settings})
        return replace(self, _stage=stage)

    def with_settings(self, settings: Mapping[str, Any]) -> Dataset:
        """Set settings of the whole job by dotted key: ``{"cluster.workers": 2}``.

        The sections are job, shuffle (that of the last stage), cluster and storage. A key may be a
        whole section: ``{"storage": {"region": "eu-north-1"}}``. The environment adds only what
        the stores' clients find there themselves: see `read_table`.
        """
        return replace(self, _settings={**self._settings, **settings})

    if not TYPE_CHECKING:  # type checkers would accept any name

        def __getattr__(self, name: str) -> NoReturn:
            """Say what a method of another library is called here."""
            raise AttributeError(why_no_attribute(name))

    def _as_inputs(self) -> tuple[InputBuilder, ...]:
        if self._stage is None:
            return self._inputs
        return (InputBuilder(self._stage.name, {}, self._stage),)

    def _as_one_input(self) -> InputBuilder:
        """Return the rows as one input; several inputs are first combined by a stage."""
        inputs = self._as_inputs()
        return inputs[0] if len(inputs) == 1 else self._reduce("rows")._as_inputs()[0]

    def _with_inputs(self, inputs: tuple[InputBuilder, ...]) -> Dataset:
        return replace(self, _inputs=inputs, _stage=None)

    def _with_options(self, **options: Any) -> Dataset:
        """Set options of the inputs of the next step."""
        return self._with_inputs(tuple(each.with_options(**options) for each in self._as_inputs()))

    def _keyed(self, columns: Names, method: str) -> Dataset:
        """Set the key of the next step, which messages say that ``method`` has set."""
        key = names_of(columns)
        return self._with_inputs(tuple(each.with_key(key, method) for each in self._as_inputs()))

    def _reduce(self, name: str, **reduce: Any) -> Dataset:
        """Return what a stage makes of the rows, by their key."""
        return self._add_stage(name, self._as_inputs(), reduce)

    def _cogroup(
        self, inputs: Sequence[InputBuilder], others: Sequence[Dataset], name: str, **reduce: Any
    ) -> Dataset:
        """Return the result of a stage that joins or queries several inputs."""
        rows = self._add_stage(name, with_distinct_names(inputs), reduce)
        return replace(rows, _settings=_merged_settings(self, *others))

    def _add_stage(
        self, name: str, inputs: tuple[InputBuilder, ...], reduce: Mapping[str, Any]
    ) -> Dataset:
        """Return the result of a stage."""
        return replace(self, _inputs=(), _stage=StageBuilder(name, inputs, reduce))

    def _order(self, name: str, **order: Any) -> Dataset:
        """Sort or limit the rows, as part of the last stage if that is possible."""
        stage = self._stage
        if stage is None or stage.query is not None or "limit" in stage.reduce:
            return self._reduce(name, **order)
        if order.keys() & stage.reduce.keys():
            return self._reduce(name, **order)
        return replace(self, _stage=structs.replace(stage, reduce={**stage.reduce, **order}))

    @property
    def _is_shuffled(self) -> bool:
        return self._stage is not None or any(each.stage is not None for each in self._inputs)

    def _without_keys(self) -> Dataset:
        inputs = tuple(each.without_options("key", "broadcast") for each in self._as_inputs())
        shuffle = [key for key in self._settings if key.split(".")[0] == "shuffle"]
        settings = {key: value for key, value in self._settings.items() if key not in shuffle}
        return replace(self, _inputs=inputs, _stage=None, _settings=settings)

    def _words(self) -> PythonWords:
        last = self._stage or self._reduce("rows")._stage
        assert last is not None
        return words_of(last, self._settings)

    def _spec(self, output: Mapping[str, Any]) -> JobSpec:
        last = self._stage or self._reduce("rows")._stage
        assert last is not None
        return decode_job(document_of(last, output, self._settings))


@with_clear_errors
class GroupedDataset(msgspec.Struct, frozen=True):
    """The rows of a dataset, grouped by columns."""

    _rows: Dataset
    _columns: tuple[str, ...]

    def __repr__(self) -> str:
        return f"<mrflight.GroupedDataset {self._rows._name} by {', '.join(self._columns)}>"

    def agg(self, aggregates: Mapping[str, str] | None = None, /, **named: str) -> Dataset:
        """Return one row per group: its columns, and aggregates, ``clicks="sum(weight)"``.

        The argument may be an SQL expression: ``total="sum(price * n)"``.
        A mapping takes names that Python does not allow as keywords.
        """
        requested = named_aggregates(aggregates, named)
        aggregate = {"aggregate": requested} if requested else {}
        reduce = {"group_by": list(self._columns), **aggregate}
        return self._rows._reduce("grouped", **reduce)

    if not TYPE_CHECKING:  # type checkers would accept any name

        def __iter__(self) -> NoReturn:
            """Explain what `__getattr__` does."""
            self.batches()

        def __getattr__(self, name: str) -> NoReturn:
            """Explain that groups must be aggregated before they are a dataset again."""
            if not name.startswith("_") and hasattr(Dataset, name):
                raise JobFileError(
                    f"{name} needs rows, and group_by returns groups; aggregate them first: "
                    '.agg(n="count(*)")'
                )
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


def _check_datasets(step: str, *given: object) -> None:
    """Raise JobFileError for an argument that is not a Dataset, for example a path."""
    for each in given:
        if not isinstance(each, Dataset):
            path = f'"{each}"' if isinstance(each, str | PathLike) else "..."
            raise JobFileError(
                f"{step}: {reprlib.repr(each)} is not a Dataset; write mrflight.read({path})"
            )


def _merged_settings(*datasets: Dataset) -> dict[str, Any]:
    """Return the settings of all datasets; those of the first take precedence."""
    return {key: value for each in reversed(datasets) for key, value in each._settings.items()}
