"""From web logs to sessions: runs of one user's page views without a long pause."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

PAUSE = np.timedelta64(30, "m")
"""A user who is away this long starts a new session."""
_MOMENT = pa.timestamp("us", "UTC")  # the only timestamp that a Delta table knows
_REQUEST = r"^[A-Z]+ (?P<page>[^ ?]+)"


def page_views(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The map: pages that were served to a known user, as ``user``, ``time``, ``page``.

    Lines of visitors who have not logged in, of errors, of requests that are
    none and of what a page pulls in (``/static/...``) are left out, and so is
    a query after the ``?``.
    """
    page = pc.struct_field(pc.extract_regex(batch.column("request"), _REQUEST), "page")
    served = pc.less(batch.column("status"), 400)
    wanted = pc.and_(served, pc.invert(pc.starts_with(page, "/static/")))
    wanted = pc.and_(wanted, pc.is_valid(batch.column("user")))
    views = pa.RecordBatch.from_arrays(
        [batch.column("user"), pc.cast(batch.column("time"), _MOMENT), page],
        names=["user", "time", "page"],
    )
    return views.filter(wanted)


def sessions(views: pa.Table) -> pa.Table:
    """The reduce: one row per session of the users in this partition.

    Every view of a user is in one partition, so a partition can be cut into
    sessions on its own. Sessions of a user are numbered from 1 as they begin.
    """
    views = views.sort_by([("user", "ascending"), ("time", "ascending"), ("page", "ascending")])
    starts, number = _cut(views)
    ends = np.append(starts[1:], views.num_rows)[: len(starts)] - 1
    first, last = views.take(pa.array(starts)), views.take(pa.array(ends))
    return pa.table(
        {
            "user": first["user"],
            "session": pa.array(number, pa.int32()),
            "start": first["time"],
            "end": last["time"],
            "views": pa.array(ends - starts + 1, pa.int32()),
            "first_page": first["page"],
            "last_page": last["page"],
        }
    )


def _cut(views: pa.Table) -> tuple[np.ndarray, np.ndarray]:
    """Where sessions start in sorted views, and the number of each within its user."""
    if views.num_rows == 0:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    user = views["user"].combine_chunks()
    time = views["time"].to_numpy()
    new_user = np.append(True, pc.not_equal(user[1:], user[:-1]).to_numpy(zero_copy_only=False))
    new_session = new_user | np.append(True, np.diff(time) >= PAUSE)
    starts = np.flatnonzero(new_session)
    nth = np.arange(len(starts))
    nth_of_first = np.maximum.accumulate(np.where(new_user[starts], nth, 0))
    return starts, nth - nth_of_first + 1
