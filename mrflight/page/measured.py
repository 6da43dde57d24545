"""A metric of a process. Names have base units, and those that only grow end in ``_total``.

No label names a job, a user, a query or a shuffle, of which there are ever more.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec


class Measured(msgspec.Struct, frozen=True):
    """A metric as it is now."""

    name: str
    """Without the prefix, and for a counter without ``_total``."""
    help: str
    values: float | Mapping[str, float]
    """One value, or one for each value of the label."""
    label: str = ""
    kind: Literal["gauge", "counter"] = "gauge"
