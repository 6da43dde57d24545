"""The marker of objects that many tasks share."""

from __future__ import annotations


class SharedPayload:
    """The base of objects that are the same in many tasks, and may be sent once for all of them.

    They can be pickled. Each task gets its own copy, so that no task sees what another one changes.
    """

    __slots__ = ()
