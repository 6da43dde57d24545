"""Check the clicks of each site against pyarrow's group-by in one process."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv


class WrongResultError(Exception):
    """A run ended with a wrong result."""


def clicks_of(files: list[Path]) -> pa.Table:
    """Return ``url`` and ``clicks`` of the visits in ``files``."""
    visits = pa.concat_tables([pacsv.read_csv(str(path)) for path in files])
    weight = pc.if_else(pc.equal(visits["visitor"], "User"), 2, 1)
    weighed = pa.table({"url": visits["url"], "weight": weight})
    summed = weighed.group_by("url").aggregate([("weight", "sum")])
    return pa.table({"url": summed["url"], "clicks": summed["weight_sum"]}).combine_chunks()


def check(result: pa.Table, expected: pa.Table, what: str) -> None:
    """Raise WrongResultError unless ``result`` has the rows of ``expected``, in any order."""
    if result.num_rows != expected.num_rows:
        raise WrongResultError(f"{what}: {result.num_rows} sites, not {expected.num_rows}")
    place = pc.index_in(result["url"], value_set=expected["url"])
    if place.null_count:
        raise WrongResultError(f"{what}: {place.null_count} sites that no visit names")
    if np.bincount(place.to_numpy(), minlength=1).max(initial=0) > 1:
        raise WrongResultError(f"{what}: a site comes more than once")
    right = pc.equal(expected["clicks"].take(place), result["clicks"])
    if not pc.all(right, min_count=0).as_py():
        wrong = pc.sum(pc.invert(right)).as_py()
        raise WrongResultError(f"{what}: {wrong} sites with a wrong number of clicks")
