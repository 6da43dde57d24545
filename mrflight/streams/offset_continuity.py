"""Checks that the commits of a stream follow each other without gap or overlap: pure functions."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping

import msgspec

from mrflight.streams.recorded_stream import StreamCommit


class Chain(msgspec.Struct, frozen=True):
    """The commits of one partition, as far as the log has them."""

    first: int | None
    """The first offset that they cover; None if it is not known."""
    last: int
    """The next offset after the last of them."""
    commits: int
    is_whole: bool
    """True if the first commit is that with which the stream began."""
    skipped: tuple[tuple[int, int], ...]
    """The offsets that were skipped on purpose, as Kafka had deleted them before they were read."""
    breaks: tuple[str, ...]
    """What is wrong: gaps and overlaps."""


def check_chains(commits: Iterable[StreamCommit], recorded: Mapping[str, int]) -> dict[str, Chain]:
    """Return the chain of each partition, given the commits from the oldest on.

    ``recorded`` are the next offsets that the table has.
    """
    links: dict[str, list[_Link]] = {}
    for commit in commits:
        for name, (before, after) in commit.offsets.items():
            start = commit.starts.get(name, before)
            links.setdefault(name, []).append(_Link(commit.version, before, start, after))
    return {name: _chain(links[name], recorded.get(name)) for name in sorted(links)}


class _Link(msgspec.Struct, frozen=True):
    version: int
    before: int | None
    start: int | None
    after: int


def _chain(links: list[_Link], recorded: int | None) -> Chain:
    breaks = []
    for earlier, later in itertools.pairwise(links):
        if later.before != earlier.after:
            breaks.append(_break(earlier, later))
    last = links[-1]
    if recorded != last.after:
        breaks.append(
            f"the table records {recorded} as the next offset, and its last commit, version "
            f"{last.version}, ends with {last.after}"
        )
    skipped = [
        (each.before, each.start)
        for each in links
        if each.before is not None and each.start is not None and each.start > each.before
    ]
    return Chain(
        links[0].start,
        last.after,
        len(links),
        links[0].before is None,
        tuple(skipped),
        tuple(breaks),
    )


def _break(earlier: _Link, later: _Link) -> str:
    where = f"version {earlier.version} ends with {earlier.after}, and version {later.version}"
    if later.before is None:
        return f"{where} begins as if the table knew nothing"
    if later.before > earlier.after:
        return f"{where} begins with {later.before}: a gap of {later.before - earlier.after:,}"
    return f"{where} begins with {later.before}: an overlap of {earlier.after - later.before:,}"
