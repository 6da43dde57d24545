"""What a visit counts: a person's two, a robot's one."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc


def weigh(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The map of this job: ``url`` as it is, ``weight`` (int32) 2 for a User and 1 for a Robot.

    Raises ValueError, with the first value that is neither.
    """
    visitor = batch.column("visitor")
    is_user = pc.equal(visitor, "User")
    known = pc.or_(is_user, pc.equal(visitor, "Robot"))
    if not pc.all(known, skip_nulls=False, min_count=0).as_py():
        stranger = pc.filter(visitor, pc.invert(pc.fill_null(known, False)))[0].as_py()
        raise ValueError(f"visitor {stranger!r} is neither 'User' nor 'Robot'")
    weight = pc.add(pc.cast(is_user, pa.int32()), pa.scalar(1, pa.int32()))
    return pa.RecordBatch.from_arrays([batch.column("url"), weight], names=["url", "weight"])
