"""Streams with dead letters that a corrected job can decode, and their replay."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support.commands.mrflight import mrflight
from tests.support.streams import dying_replay
from tests.support.streams.ingest_job import Stream, ended, ingest, numbered

REJECTS = 'on_bad_row = "dead_letter"\ndead_letter = "rejected"\nmax_bad = "100 %"'
FIXED = """sql = '''select producer, cast(number as bigint) as number, text,
_topic, _partition, _offset, _timestamp, _key, _headers from events'''"""
ROOT = Path(__file__).parents[3]


def ingest_with_rejects(stream: Stream, write: Callable[..., Path] | None = None) -> Path:
    """Ingest 20 events of which 8 have numbers as texts, and 2 that are no json.

    ``write`` writes the job, by default as the stream does. Returns the corrected job.
    """
    write = write or stream.write_job
    stream.produce(numbered(1, range(6)), partition=0)
    stream.produce([{**each, "number": str(each["number"])} for each in numbered(1, range(6, 14))])
    stream.produce([b"{bad", b"worse"], partition=1)
    stream.produce(numbered(1, range(14, 20)), partition=1)
    run = ingest(write(stream=REJECTS))
    assert (run.code, run.result["rejected"]) == (0, 10), run.stderr
    job = write(stream=REJECTS, input=FIXED)
    job.write_text(job.read_text().replace('number = "int64"', 'number = "string"'))
    return job


def replay(job: Path) -> dict[str, Any]:
    run = ended("ingest", "replay-rejected", job, "--json")
    assert run.code == 0, run.stderr
    found: dict[str, Any] = json.loads(run.stdout.splitlines()[-1])
    return found


def die_in_replay(job: Path, step: str) -> None:
    """Run a replay that is killed as it calls a function of its module."""
    died = mrflight("ingest", job, step, module=dying_replay.__name__, cwd=ROOT)
    assert died.returncode == 9, died.stderr
