"""Jobs that skip bad rows: how many there were is said wherever the rows go."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

import mrflight

FILES = 3
ROWS = 2_000
SMALL = {"cluster.workers": 2, "cluster.memory": "1 GiB"}


@pytest.fixture
def visits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> mrflight.Dataset:
    """Return visits in the current folder, of which every 100th cannot be read."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "visits").mkdir()
    for file in range(FILES):
        with open(f"visits/{file}.csv", "w", newline="") as stream:
            write = csv.writer(stream).writerow
            write(["n", "user"])
            for n in range(file * ROWS, (file + 1) * ROWS):
                write([n if n % 200 else "none", n % 7, *["more"] * (n % 200 == 100)])
    types = {"n": "int64", "user": "int64"}
    return mrflight.read("visits", types=types, bad_rows="skip").with_settings(SMALL)


GOOD = [n for n in range(FILES * ROWS) if n % 100]
BAD = FILES * ROWS // 100


def test_rows_are_skipped_and_counted(
    visits: mrflight.Dataset,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert visits.collect()["n"].to_pylist() == GOOD
    assert capsys.readouterr().err.count(f"\n{BAD} bad rows of visits skipped\n") == 1
    assert visits.head(3)["n"].to_pylist() == GOOD[:3]
    assert caplog.messages == [
        f"{BAD // FILES} bad rows of visits skipped, up to the last row that was asked for"
    ]
    users = mrflight.read("visits/0.csv", name="some", bad_rows="skip").distinct().alias("users")
    result = visits.join(users, "user", how="semi").write_parquet("out")
    assert result.bad_rows == {"visits": BAD, "users.some": 10}
    assert result.rows_in == len(GOOD) + ROWS - 10
