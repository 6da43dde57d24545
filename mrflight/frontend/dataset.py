"""Jobs written in Python: rows of files, and what is to be made of them, until they are written.

Nothing is read before that. What comes of it is the `JobSpec` that a job file of the same job has.
"""

from __future__ import annotations

import os
import reprlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal, NoReturn

import msgspec
from msgspec import structs

from mrflight.config.job_file import decode_job
from mrflight.config.pickled_functions import pickle_function
from mrflight.config.spec import InputFormat, JobSpec
from mrflight.errors import JobFileError, UserFunctionError
from mrflight.frontend.dataset_builder import (
    InputDraft,
    StageDraft,
    document_of,
    name_of_files,
    with_distinct_names,
)
from mrflight.frontend.dataset_writer import Names, Writes, all_names_of, names_of

Function = Callable[..., Any] | str
"""A callable, which is pickled as it is now, or ``module:function`` in the current folder."""

How = Literal["inner", "left", "right", "full", "semi", "anti"]


def read(
    path: str | PathLike[str],
    *,
    name: str | None = None,
    format: InputFormat | None = None,
    columns: Sequence[str] | None = None,
    types: Mapping[str, str] | None = None,
    key: Names | None = None,
    csv: Mapping[str, Any] | None = None,
    version: int | None = None,
    timestamp: datetime | None = None,
) -> Dataset:
    """The rows of files: what ``[inputs.NAME]`` of a job file says, by the same names.

    A relative path is in the folder that is the current one when the job runs. ``name`` is what
    sql and messages call the rows; the last part of the path that can be a name unless told.
    Raises JobFileError for several paths.
    """
    path = _one_path(path)
    told: dict[str, Any] = {"path": path, "format": format, "version": version}
    told |= {"timestamp": timestamp, "key": None if key is None else names_of(key)}
    told |= {"columns": None if columns is None else names_of(columns)}
    told |= {"types": None if types is None else dict(types)}
    told |= {"csv": None if csv is None else dict(csv)}
    return Dataset((InputDraft(name or name_of_files(path), _without_none(told)),))


@dataclass(frozen=True, eq=False)
class Dataset(Writes):
    """Rows that a job will make. Every method leaves this one as it is and returns another.

    What is wrong with a job is told when it is asked for (`job`, `explain`, ``write_...``), by the
    keys that a job file would have, but for callables that cannot be pickled: at once.
    """

    _inputs: tuple[InputDraft, ...] = ()
    """That no stage has shuffled yet; or else the stage:"""
    _stage: StageDraft | None = None
    _settings: Mapping[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        names = [self._stage.name] if self._stage else [each.name for each in self._inputs]
        return f"<mrflight.Dataset {', '.join(names)}>"

    def named(self, name: str) -> Dataset:
        """Called ``name`` in sql, in messages and in the plan."""
        if self._stage is not None:
            return replace(self, _stage=structs.replace(self._stage, name=name))
        if len(self._inputs) > 1:
            raise JobFileError(f"named: {self!r} is several inputs; name each before the union")
        return replace(self, _inputs=(structs.replace(self._inputs[0], name=name),))

    def keyed(self, *columns: Names) -> Dataset:
        """Partitioned by these columns by whatever comes next, unless that says otherwise."""
        return self._read(key=all_names_of(columns))

    def broadcast(self, *, wanted: bool = True) -> Dataset:
        """Sent to everyone by the join or sql that comes next, as its rows are few; or not."""
        return self._read(broadcast=wanted)

    def map(self, function: Function) -> Dataset:
        """Each batch as ``function(pyarrow.RecordBatch)`` returns it; one function after another.

        Raises UserFunctionError where the callable cannot be pickled.
        """
        text = _text(function, "map")
        return replace(
            self, _inputs=tuple(each.mapped(text) for each in self._begun()), _stage=None
        )

    def union(self, *others: Dataset) -> Dataset:
        """These rows and those of others, in one table; the columns are to be the same."""
        _check_datasets("union", *others)
        inputs = [each for one in (self, *others) for each in one._begun()]
        return replace(
            self,
            _inputs=with_distinct_names(inputs),
            _stage=None,
            _settings=_merged_settings(self, *others),
        )

    def sql(
        self, query: str, *, key: Names | None = None, others: Dataset | Sequence[Dataset] = ()
    ) -> Dataset:
        """What a statement makes of the rows, which it knows by their name (see `named`).

        Without a key of one row at a time, in place of a map; it knows those of a union by the
        name of the first, and they may be called otherwise later. With a key, or with others, of
        whole keys: it sees all rows of one together, and those of the others with the same key,
        which `keyed` tells of each. Needs ``mrflight[sql]``.
        """
        if key is None and not others:
            begun = self._begun()
            inputs = tuple(each.queried(query, begun[0].name) for each in begun)
            return replace(self, _inputs=inputs, _stage=None)
        others = [others] if isinstance(others, Dataset | str) else list(others)
        _check_datasets("sql", *others)
        told = {} if key is None else {"key": names_of(key)}
        mine = self._as_one().with_told(**told)
        return self._met(
            [mine, *(other._as_one() for other in others)], others, "queried", sql=query
        )

    def group_by(self, *columns: Names) -> Grouped:
        """Groups of rows that are equal in these columns; `Grouped.agg` makes a row of each."""
        names = all_names_of(columns)
        if not names:
            raise JobFileError(
                'group_by: names no column; one row of all rows is read(...).agg(n="count(*)")'
            )
        return Grouped(self, tuple(names))

    def agg(self, aggregates: Mapping[str, str] | None = None, /, **named: str) -> Dataset:
        """One row of all rows, also of none: aggregates by name, ``clicks="sum(weight)"``.

        A mapping is for names that Python does not take.
        """
        told = {**(aggregates or {}), **named}
        if not told:
            raise JobFileError('agg: tells nothing to make of the rows; write .agg(n="count(*)")')
        return self._made("totals", None, aggregate=told)

    def reduce(self, function: Function, *, key: Names | None = None) -> Dataset:
        """What ``function(pyarrow.Table)`` returns for the rows of whole keys, as a table.

        Raises UserFunctionError where the callable cannot be pickled.
        """
        return self._made("reduced", key, function=_text(function, "reduce"))

    def join(
        self,
        other: Dataset,
        on: Names | None = None,
        *,
        left_on: Names | None = None,
        right_on: Names | None = None,
        how: How = "inner",
    ) -> Dataset:
        """These rows, the left ones, with those of another that have the same key.

        Null keys meet nothing. ``semi`` and ``anti`` are the left rows that meet some, or none.
        """
        _check_datasets("join", other)
        if on is not None and (left_on is not None or right_on is not None):
            raise JobFileError("join: on is for both sides; give it, or left_on and right_on")
        keys = [left_on if on is None else on, right_on if on is None else on]
        sides = [
            one._as_one().with_told(**({} if key is None else {"key": names_of(key)}))
            for one, key in zip((self, other), keys, strict=True)
        ]
        left, right = with_distinct_names(sides)
        return self._met(
            [left, right], [other], "joined", join=how, left=left.name, right=right.name
        )

    def distinct(self) -> Dataset:
        """Of rows that are equal in all columns one."""
        return self._made("distinct_rows", None, distinct=True)

    def keep(
        self,
        which: Literal["first", "last"],
        *,
        key: Names | None = None,
        order_by: Names | None = None,
    ) -> Dataset:
        """Of the rows of each key the first or the last by an order, as `sort_by` writes it."""
        order = {} if order_by is None else {"order_by": names_of(order_by)}
        return self._made("kept", key, keep=which, **order)

    def sort_by(self, *order: Names) -> Dataset:
        """In this order over all part files: ``"revenue desc nulls first", "day"``."""
        return self._ordered("ordered", sort_by=all_names_of(order))

    def limit(self, rows: int) -> Dataset:
        """The first so many rows by the order of `sort_by`; any without one."""
        return self._ordered("limited", limit=rows)

    def repartition(
        self,
        *key: Names,
        partitions: int | Literal["auto"] | None = None,
        partitioner: Function | None = None,
    ) -> Dataset:
        """The same rows in other partitions: by ``hash`` of the key, or dealt out without one.

        ``partitioner`` is as in a job file: ``range``, ``round_robin``, or a function
        ``(batch, key, partitions)``.
        """
        kind = None if partitioner is None else _text(partitioner, "partitioner")
        told = _without_none({"partitions": partitions, "partitioner": kind})
        made = self._made("repartitioned", all_names_of(key) or None)
        assert made._stage is not None
        stage = structs.replace(made._stage, shuffle={**made._stage.shuffle, **told})
        return replace(made, _stage=stage)

    def with_shuffle(self, **settings: Any) -> Dataset:
        """With these keys of ``[shuffle]`` for the shuffle behind the last step."""
        if self._stage is None:
            raise JobFileError(f"with_shuffle: nothing has shuffled {self!r} yet")
        stage = structs.replace(self._stage, shuffle={**self._stage.shuffle, **settings})
        return replace(self, _stage=stage)

    def with_settings(self, settings: Mapping[str, Any]) -> Dataset:
        """With settings of the whole job by dotted key: ``{"cluster.workers": 2}``.

        Of the sections job, shuffle (that of the last stage), cluster and storage, or a whole
        section: ``{"storage": {"region": "eu-north-1"}}``. From the environment nothing is
        added but what the stores' clients find there themselves: see `read_table`.
        """
        return replace(self, _settings={**self._settings, **settings})

    def _begun(self) -> tuple[InputDraft, ...]:
        """The inputs of a stage that goes on from here."""
        if self._stage is None:
            return self._inputs
        return (InputDraft(self._stage.name, {}, self._stage),)

    def _as_one(self) -> InputDraft:
        """The rows as one input: several are brought together first."""
        begun = self._begun()
        return begun[0] if len(begun) == 1 else self._made("rows", None)._begun()[0]

    def _read(self, **told: Any) -> Dataset:
        """With keys of the inputs of what comes next."""
        inputs = tuple(each.with_told(**told) for each in self._begun())
        return replace(self, _inputs=inputs, _stage=None)

    def _made(self, name: str, key: Names | None, **reduce: Any) -> Dataset:
        """What a stage makes of the rows, by their key."""
        inputs = self._begun()
        if key is not None:
            inputs = tuple(each.with_told(key=names_of(key)) for each in inputs)
        return self._staged(name, inputs, reduce)

    def _met(
        self, inputs: Sequence[InputDraft], others: Sequence[Dataset], name: str, **reduce: Any
    ) -> Dataset:
        """What a stage makes of several tables."""
        made = self._staged(name, with_distinct_names(inputs), reduce)
        return replace(made, _settings=_merged_settings(self, *others))

    def _staged(
        self, name: str, inputs: tuple[InputDraft, ...], reduce: Mapping[str, Any]
    ) -> Dataset:
        """Rows that nothing is made of and that have no key are dealt out."""
        is_dealt = not reduce and not any("key" in each.told for each in inputs)
        shuffle = {"partitioner": "round_robin"} if is_dealt else {}
        return replace(self, _inputs=(), _stage=StageDraft(name, inputs, reduce, shuffle))

    def _ordered(self, name: str, **order: Any) -> Dataset:
        """In the order that the last step asks for, of which it makes a part of its own stage."""
        stage = self._stage
        if stage is None or "limit" in stage.reduce or order.keys() & stage.reduce.keys():
            return self._made(name, None, **order)
        return replace(self, _stage=structs.replace(stage, reduce={**stage.reduce, **order}))

    def _spec(self, output: Mapping[str, Any]) -> JobSpec:
        last = self._stage or self._made("rows", None)._stage
        assert last is not None
        if self._stage is None and output.get("mode") == "merge":  # by the output's keys
            last = structs.replace(last, shuffle={})
        return decode_job(document_of(last, output, self._settings))


class Grouped(msgspec.Struct, frozen=True):
    """Groups of a dataset's rows."""

    _rows: Dataset
    _columns: tuple[str, ...]

    def agg(self, aggregates: Mapping[str, str] | None = None, /, **named: str) -> Dataset:
        """A row of each group: its columns, and aggregates by name, ``clicks="sum(weight)"``.

        A mapping is for names that Python does not take.
        """
        told = {**(aggregates or {}), **named}
        reduce = {"group_by": list(self._columns), **({"aggregate": told} if told else {})}
        return self._rows._made("grouped", None, **reduce)

    if not TYPE_CHECKING:  # which would take any name for one that is there

        def __getattr__(self, name: str) -> NoReturn:
            """A step, or an end, of a dataset, that groups are not one yet."""
            if not name.startswith("_") and hasattr(Dataset, name):
                raise JobFileError(
                    f"{name}: is for rows, and group_by gives groups; .agg(...) comes between, "
                    'which makes a row of each: .agg(n="count(*)")'
                )
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


def _one_path(path: object) -> str:
    if isinstance(path, str | PathLike) and isinstance(text := os.fspath(path), str):
        return text
    raise JobFileError(
        f"read: {reprlib.repr(path)} is not one path; give a folder or a glob such as "
        '"visits/*.csv", or bring several together: read(...).union(read(...))'
    )


def _check_datasets(step: str, *given: object) -> None:
    """Raise JobFileError for what is none: a path, perhaps."""
    for each in given:
        if not isinstance(each, Dataset):
            path = f'"{each}"' if isinstance(each, str | PathLike) else "..."
            raise JobFileError(
                f"{step}: {reprlib.repr(each)} is no Dataset; give one: mrflight.read({path})"
            )


def _text(function: Function, what: str) -> str:
    if isinstance(function, str):
        return function
    if not callable(function):
        raise UserFunctionError(
            f"{what}: {function!r} is no callable, and no text such as 'module:function'"
        )
    return pickle_function(function, what)


def _merged_settings(*datasets: Dataset) -> dict[str, Any]:
    """Those of all; where they differ that of the first counts."""
    return {key: value for each in reversed(datasets) for key, value in each._settings.items()}


def _without_none(told: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in told.items() if value is not None}
