"""Tests of changes to a job file: only the keys change, and the file means what it should."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path

import pytest

from mrflight.errors import JobFileError
from mrflight.frontend.tune.job_file_edit import edited, set_keys
from tests.support.suite.messages import refused

CLICKS = """\
# How many clicks?

[job]
name = "clicks"          # the name

[inputs.visits]
path  =  "visits/*.csv"  # two spaces
key = ["url"]

[shuffle]
# twenty, as in the thesis
partitions = 20          # tuned by hand

[output]
table = 'out/clicks'
"""


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({}, CLICKS),
        ({"shuffle.partitions": 40}, CLICKS.replace("= 20  ", "= 40  ")),
        (
            {"shuffle.compression": "lz4"},
            CLICKS.replace("by hand\n", 'by hand\ncompression = "lz4"\n'),
        ),
        ({"cluster.workers": 4}, CLICKS + "\n[cluster]\nworkers = 4\n"),
    ],
)
def test_comments_and_layout_are_kept(values: dict[str, object], expected: str) -> None:
    assert edited(CLICKS, values) == expected
    assert edited(CLICKS.replace("\n", "\r\n"), values) == expected.replace("\n", "\r\n")


@pytest.mark.parametrize(
    "text",
    [
        "shuffle.partitions = 20\n[job]\nname = 'a'\n",
        "shuffle = { partitions = 20 }\n[job]\nname = 'a'\n",
        "[job]\nname = 'a'\n[shuffle]\npartitions = 20\n[inputs.a]\npath = 'b'",
        "[job]\nname = 'a'\n[stages.b.shuffle]\npartitions = 2\n[stages.b.inputs.c]\npath = 'd'\n",
        "[stages.b.inputs.c]\npath = 'd'\n[job]\nname = 'a'\n[stages.b.reduce]\ngroup_by = ['k']\n",
        "",
    ],
)
def test_any_way_to_write_a_key_is_understood(text: str) -> None:
    values = {"shuffle.partitions": 8, "stages.b.shuffle.partitions": 9, "cluster.memory": "1 GiB"}
    after = tomllib.loads(edited(text, values))
    before = tomllib.loads(text)
    assert after["shuffle"]["partitions"] == 8
    assert after["stages"]["b"]["shuffle"]["partitions"] == 9
    assert after["cluster"] == {"memory": "1 GiB"}
    assert after.get("job") == before.get("job")
    assert after.get("inputs") == before.get("inputs")


@pytest.mark.parametrize("text", ["shuffle = 3\n", "[[shuffle]]\npartitions = 1\n", "= broken"])
def test_a_file_that_cannot_be_changed_is_left(text: str, tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    path.write_text(text)
    with pytest.raises(JobFileError, match="cannot be changed"):
        set_keys(path, {"shuffle.partitions": 8})
    assert path.read_text() == text
    assert os.listdir(tmp_path) == ["job.toml"]


def test_a_link_stays_a_link_and_a_mode_its_mode(tmp_path: Path) -> None:
    (tmp_path / "real.toml").write_bytes(CLICKS.replace("\n", "\r\n").encode())
    (tmp_path / "real.toml").chmod(0o640)
    (tmp_path / "job.toml").symlink_to("real.toml")
    set_keys(tmp_path / "job.toml", {"shuffle.partitions": 40})
    assert (tmp_path / "job.toml").is_symlink()
    written = (tmp_path / "real.toml").read_bytes()
    assert written == CLICKS.replace("= 20  ", "= 40  ").replace("\n", "\r\n").encode()
    assert (tmp_path / "real.toml").stat().st_mode & 0o777 == 0o640
    assert sorted(os.listdir(tmp_path)) == ["job.toml", "real.toml"]


def test_a_file_that_is_gone_is_an_error(tmp_path: Path) -> None:
    with refused(JobFileError):
        set_keys(tmp_path / "job.toml", {"shuffle.partitions": 8})
