"""Pages do what they say: their files are written, their commands run, their output compared."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.support.jobs.pages import follow

ROOT = Path(__file__).parents[2]
PROGRAMS = Path(sys.executable).parent
COMMANDS = {
    "tutorial/first-job.md": 8,
    "how-to/recipes.md": 6,
    "how-to/messy-csv.md": 1,
    "how-to/sql.md": 14,
}
"""The pages that are complete, with the number of their commands."""
FOLDER = "/home/ann/first-job"
"""The folder in which the reader of a page works."""


def pattern_of(line: str, folder: Path) -> str:
    """A line of a page's output, with any times and sizes."""
    text = re.escape(line.replace(FOLDER, str(folder)))
    return re.sub(r"\d+\\?\.\d+(?=\\ (?:s|KiB|MiB)|,|;)", r"[\\d.,]+", text)


@pytest.mark.slow
def test_the_readme_does_what_it_says(tmp_path: Path) -> None:
    printed = [each.printed for each in follow(ROOT / "README.md", tmp_path, PROGRAMS)]
    assert "5 rows in, 3 rows out" in "".join(printed)
    clicks = sorted(pq.read_table(tmp_path / "out/clicks").to_pylist(), key=lambda row: row["url"])
    assert [list(row.values()) for row in clicks] == [["/blog", 1], ["/docs", 2], ["/home", 5]]


@pytest.mark.slow
@pytest.mark.parametrize("page", COMMANDS)
def test_a_page_does_what_it_says(page: str, tmp_path: Path) -> None:
    printed, commands = "", 0
    for block, shown in follow(ROOT / "docs" / page, tmp_path, PROGRAMS):
        if block.language == "bash":
            printed = shown
            commands += 1
        elif block.title == "Output":
            for line in block.text.splitlines():
                assert re.search(rf"^{pattern_of(line, tmp_path)}$", printed, re.MULTILINE), (
                    f"{line!r} is not in:\n{printed}"
                )
    assert commands == COMMANDS[page]
