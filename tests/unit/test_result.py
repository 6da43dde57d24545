"""A result is one JSON object for programs and a few lines for people."""

from __future__ import annotations

import json

import msgspec
import pytest

from mrflight.result import Attempts, JobResult, MergeCounts, StageSeconds

RESULT = JobResult(
    job_id="20261120T101112-0123456789ab",
    state="committed",
    rows_in=1_234_567,
    rows_out=1_000,
    partitions=20,
    bytes_shuffled=3 * 2**20,
    seconds=StageSeconds(total=3.456, start=0.5, map=1.5, reduce=1.25, commit=0.125),
    table="out/clicks",
    version=4,
    attempts=Attempts(map=7, reduce=20, failed=1),
    peak_memory_bytes=5 * 2**29,
)


def test_json_has_the_documented_keys() -> None:
    document = json.loads(msgspec.json.encode(RESULT))
    assert set(document) == {
        *("job_id", "state", "rows_in", "rows_out", "partitions", "bytes_shuffled"),
        *("seconds", "table", "version", "attempts", "peak_memory_bytes", "error"),
        *("input_versions", "bad_rows", "profile"),
    }
    assert set(document["seconds"]) == {"total", "start", "map", "reduce", "commit"}
    assert document["attempts"] == {"map": 7, "reduce": 20, "failed": 1}
    assert document["error"] is None


def test_json_decodes_to_the_same_result() -> None:
    assert msgspec.json.decode(msgspec.json.encode(RESULT), type=JobResult) == RESULT


def test_json_is_one_line() -> None:
    failed = JobResult(job_id="", state="failed", error="line 1\nline 2")
    assert b"\n" not in msgspec.json.encode(failed)


def test_the_summary_of_a_committed_job() -> None:
    assert RESULT.summary() == (
        "1,234,567 rows in, 1,000 rows out, 20 partitions, 3.0 MiB shuffled\n"
        "3.46 s: start 0.50, map 1.50, reduce 1.25, commit 0.12; at most 2.5 GiB of memory\n"
        "out/clicks, version 4"
    )


def test_the_summary_has_the_rows_that_were_skipped() -> None:
    skipped = msgspec.structs.replace(RESULT, bad_rows={"visits": 2, "pages": 0, "joined.users": 1})
    assert skipped.summary().startswith(
        "1,234,567 rows in, 2 bad rows of visits skipped, 1 bad row of joined.users skipped, "
        "1,000 rows out"
    )


def test_a_result_is_printed_as_a_short_table() -> None:
    assert str(RESULT) == repr(RESULT)
    assert repr(RESULT).splitlines() == [
        "JobResult: committed",
        "  table     out/clicks, version 4",
        "  rows      1,234,567 in, 1,000 out",
        "  shuffled  3.0 MiB in 20 partitions",
        "  time      3.46 s: start 0.50, map 1.50, reduce 1.25, commit 0.12",
        "  memory    at most 2.5 GiB",
        "  attempts  7 maps, 20 reduces, 1 failed",
        "  job       20261120T101112-0123456789ab",
    ]


def test_a_merge_and_what_it_read_are_printed() -> None:
    merged = msgspec.structs.replace(
        RESULT, input_versions={"visits": 3}, merged=MergeCounts(rows_updated=2, files_rewritten=1)
    )
    lines = repr(merged).splitlines()
    assert "  read      visits, version 3" in lines
    assert "  merged    2 rows updated, 0 deleted; 1 file rewritten, 0 removed" in lines


def test_a_notebook_shows_a_result_as_a_table() -> None:
    failed = JobResult(job_id="x", state="failed", error="no column '<b>'\n  in map 3")
    html = failed._repr_html_()
    assert html.startswith("<table>\n<caption")
    assert ">Job failed</caption>" in html
    assert "no column &#x27;&lt;b&gt;&#x27;\n  in map 3</td>" in html
    assert html.count("<tr>") == html.count("</tr>") == 6


def test_folders_have_no_version() -> None:
    folder = JobResult(job_id="x", state="committed", table="out/clicks", version=None)
    assert folder.summary().endswith("\nout/clicks")


def test_the_first_version_is_shown() -> None:
    first = JobResult(job_id="x", state="committed", table="out/clicks", version=0)
    assert first.summary().endswith("\nout/clicks, version 0")


def test_a_result_does_not_change() -> None:
    with pytest.raises(AttributeError):
        RESULT.rows_in = 0  # type: ignore[misc]


def test_the_summary_names_the_versions_that_were_read() -> None:
    read = msgspec.structs.replace(RESULT, input_versions={"visits": 3, "pages": 0})
    before, _, last = RESULT.summary().rpartition("\n")
    expected = f"read visits, version 3, pages, version 0, wrote {last}"
    assert read.summary() == f"{before}\n{expected}"
