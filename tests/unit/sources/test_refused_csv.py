"""Headers and options of csv that are refused before a row is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from mrflight.config.text_options import CsvOptions
from mrflight.errors import JobFileError
from tests.support.jobs.refused_inputs import failure


def test_invalid_headers_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("n,s,n\n1,2,3\n")
    assert str(failure(tmp_path, "a.csv")) == (
        f"{tmp_path}/a.csv: the header names column 'n' twice; rename one"
    )
    (tmp_path / "a.csv").write_text('n,"s\nt"\n1,2\n')
    assert "a quoted name in the header does not end on its line" in str(failure(tmp_path, "a.csv"))
    (tmp_path / "a.csv").write_text("n,s\n1,2\n", encoding="utf-16")
    assert "a.csv: the first line cannot be read as a csv header in UTF-8" in str(
        failure(tmp_path, "a.csv")
    )


@pytest.mark.parametrize("delimiter", ["", "ab", "é", '"', "\n"])
def test_invalid_delimiters_are_refused(tmp_path: Path, delimiter: str) -> None:
    (tmp_path / "a.csv").write_text("n,s\n1,2\n")
    error = failure(tmp_path, "a.csv", csv=CsvOptions(delimiter=delimiter))
    assert str(error) == (
        "inputs.visits.csv.delimiter must be one ASCII character, and no quote or line end, not "
        f"{delimiter!r}"
    )


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (CsvOptions(quote="ab"), "quote must be one ASCII character, and no line end, not 'ab'"),
        (CsvOptions(escape=""), "escape must be one ASCII character, and no line end, not ''"),
        (CsvOptions(quote="'", escape="'"), 'escape and inputs.visits.csv.quote are both "\'"'),
        (CsvOptions(decimal=","), "decimal and inputs.visits.csv.delimiter are both ','"),
        (CsvOptions(skip_rows=-1), "skip_rows must be 0 or more, not -1"),
        (CsvOptions(timestamp_formats=["%H.%f"]), "timestamp_formats: '%H.%f' has %f, which"),
        (CsvOptions(timestamp_formats=["%H %"]), "timestamp_formats: '%H %' has %, which"),
        (CsvOptions(timestamp_formats=["iso"]), "timestamp_formats must have formats like"),
    ],
    ids=str,
)
def test_invalid_dialects_are_refused(tmp_path: Path, options: CsvOptions, expected: str) -> None:
    (tmp_path / "a.csv").write_text("n,s\n1,2\n")
    error = failure(tmp_path, "a.csv", csv=options)
    assert isinstance(error, JobFileError)
    assert f"inputs.visits.csv.{expected}" in str(error)


def test_column_names_that_do_not_match_the_file_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("1,2\n")
    error = failure(tmp_path, "a.csv", csv=CsvOptions(header=False, column_names=["n"]))
    assert str(error) == (
        "inputs.visits.csv.column_names has 1 entries, but the first row of "
        f"{tmp_path}/a.csv has 2 fields"
    )
    error = failure(tmp_path, "a.csv", csv=CsvOptions(column_names=["n", "m"]))
    assert "inputs.visits.csv.column_names is only for files without a header" in str(error)
