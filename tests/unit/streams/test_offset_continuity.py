"""Commits of a stream follow each other, or it is said where they do not."""

from __future__ import annotations

import pytest

from mrflight.sinks.commit.stream_offsets import RecordedBatch, StreamOffsets
from mrflight.streams.offset_continuity import Chain, check_chains
from mrflight.streams.recorded_stream import (
    RecordedPartition,
    RecordedStream,
    StreamCommit,
    parse_name,
    to_commit,
)

ZERO, ONE = "c/t/id/0", "c/t/id/1"


def commit(version: int, before: int | None, after: int, start: int | None = None) -> StreamCommit:
    starts = {} if start is None else {ZERO: start}
    return StreamCommit(version, 0, {ZERO: (before, after)}, starts, {})


def chain(*commits: StreamCommit, recorded: int = 9) -> Chain:
    return check_chains(commits, {ZERO: recorded})[ZERO]


def test_commits_that_follow_each_other_are_a_whole_chain() -> None:
    found = chain(commit(0, None, 5, start=2), commit(1, 5, 7), commit(4, 7, 9))
    assert found == Chain(2, 9, 3, True, (), ())


def test_a_chain_whose_first_commits_are_gone_is_not_whole() -> None:
    assert chain(commit(3, 5, 9)) == Chain(5, 9, 1, False, (), ())


def test_offsets_that_were_skipped_on_purpose_are_no_gap() -> None:
    found = chain(commit(0, None, 5, start=0), commit(1, 5, 9, start=7))
    assert (found.skipped, found.breaks) == (((5, 7),), ())


@pytest.mark.parametrize(
    ("second", "recorded", "said"),
    [
        (commit(1, 7, 9), 9, "version 0 ends with 5, and version 1 begins with 7: a gap of 2"),
        (commit(1, 3, 9), 9, "version 0 ends with 5, and version 1 begins with 3: an overlap of 2"),
        (commit(1, None, 9), 9, "version 1 begins as if the table knew nothing"),
        (commit(1, 5, 9), 8, "records 8 as the next offset, and its last commit, version 1, ends"),
    ],
)
def test_breaks_are_told(second: StreamCommit, recorded: int, said: str) -> None:
    (found,) = chain(commit(0, None, 5), second, recorded=recorded).breaks
    assert said in found


def test_partitions_have_chains_of_their_own() -> None:
    both = StreamCommit(0, 0, {ZERO: (None, 5), ONE: (None, 3)}, {ZERO: 0, ONE: 0}, {})
    found = check_chains([both, commit(1, 5, 9)], {ZERO: 9, ONE: 3})
    assert {name: each.commits for name, each in found.items()} == {ZERO: 2, ONE: 1}
    assert not any(each.breaks for each in found.values())


def test_what_a_commit_notes_is_read_again() -> None:
    offsets = StreamOffsets(
        "s", {ZERO: 3}, {ZERO: 9, ONE: 2}, {"starts": {ONE: 1}, "replayed": {"t/0": [[3, 4]]}}
    )
    found = to_commit(RecordedBatch(7, 1234, offsets.note()))
    assert found == StreamCommit(
        7, 1234, {ZERO: (3, 9), ONE: (None, 2)}, {ONE: 1}, {"t/0": [(3, 4)]}
    )


def test_names_of_partitions_are_parsed_and_made() -> None:
    found = parse_name("cluster/topic-a/id_-/12", 7)
    assert found == RecordedPartition("topic-a", 12, 7, "cluster", "id_-")
    assert found.name == "cluster/topic-a/id_-/12"
    assert RecordedStream("out", 3, (found,)).by_name == {found.name: 7}
