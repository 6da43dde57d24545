"""How the tables of a stage become one before they are reduced: a pure function of its spec."""

from __future__ import annotations

from mrflight.spec import JobSpec
from mrflight.workers.stage_rows import Meeting


def plan_meeting(spec: JobSpec) -> Meeting | None:
    """A join or sql of whole keys; None where the rows of all inputs are one table."""
    return None
