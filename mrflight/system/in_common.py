"""What the tasks of a stage, or those on one input, have in common."""

from __future__ import annotations


class InCommon:
    """The base of what is alike in many tasks: it may be sent to a worker once for all of them.

    Picklable. Each task has a copy of its own: what one does to it no other one sees.
    """

    __slots__ = ()
