"""Runs ``mrflight explain``."""

from __future__ import annotations

from pathlib import Path

import pytest

from mrflight.frontend import cli
from tests.support.commands.leftovers import tree

CLICKS = """
[job]
name = "clicks"
[inputs.visits]
path = "visits/*.csv"
map = "clicks:weigh"
columns = ["url", "visitor"]
[shuffle]
partitions = 7
[reduce]
group_by = ["url"]
aggregate = { clicks = "sum(weight)", visits = "count(*)" }
[output]
table = "out/clicks"
mode = "overwrite"
[cluster]
workers = 2
memory = "4 GiB"
spill_dir = "spilled"
"""


def explained(
    folder: Path, capsys: pytest.CaptureFixture[str], text: str, *options: str
) -> tuple[int, str, str]:
    """The exit code, and what is on stdout and stderr."""
    (folder / "job.toml").write_text(text)
    before = tree(folder)
    code = cli.main(["explain", str(folder / "job.toml"), *options])
    after, before = (
        {path for path in each if "__pycache__" not in path} for each in (tree(folder), before)
    )
    assert after == before
    out, errors = capsys.readouterr()
    return code, out.replace(str(folder), "FOLDER"), errors
