"""Commits of a sink, step by step as the driver does them."""

from __future__ import annotations

from mrflight.sinks.commit.base import Commit, Sink


def commit_and_cleanup(sink: Sink, commit: Commit) -> int | None:
    """Prepare and make a commit, remove what it does not need, and return the version."""
    sink.setup(commit)
    version = sink.commit(commit)
    sink.cleanup()
    return version
