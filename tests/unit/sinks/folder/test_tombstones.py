"""Another program may write a manifest, which must not make mrflight delete other files."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from mrflight.config.output_section import OutputSection
from mrflight.errors import OutputError
from mrflight.sinks import open_sink
from mrflight.storage import locate
from mrflight.storage.manifest import Manifest, Run, encode_schema
from mrflight.storage.manifest_log import ManifestLog


@pytest.mark.parametrize(
    "path",
    [
        "../victim.txt",
        "victim.txt",
        "../part-00000-0-20260101T000000-aaaaaaaaaaaa.csv",
        "/part-00000-0-20260101T000000-aaaaaaaaaaaa.csv",
        "x/../../part-00000-0-20260101T000000-aaaaaaaaaaaa.csv",
        "k=1/../../part-00000-0-20260101T000000-aaaaaaaaaaaa.csv",
        "archive/part-00000-0-20260101T000000-aaaaaaaaaaaa.csv",
        "k=1/part-00000-0-20260101T000000-aaaaaaaaaaaa.csv",
        "k=2/part-00000-0-20260101T000000-aaaaaaaaaaaa.csv",
    ],
)
def test_only_part_files_of_the_folder_are_removed(tmp_path: Path, path: str) -> None:
    """Those of partitions are behind a link, and in another table."""
    folder, name = tmp_path / "out", path.rpartition("/")[2]
    for below in ("out/archive", "out/k=2/_delta_log", "other"):
        (tmp_path / below).mkdir(parents=True)
    (folder / "k=1").symlink_to(tmp_path / "other")
    victims = [tmp_path / "victim.txt", folder / "victim.txt", tmp_path / name]
    victims += [below / name for below in (folder / "archive", folder / "k=1", folder / "k=2")]
    for victim in victims:
        victim.write_text("mine")
    manifest = Manifest(
        format="csv",
        partition_by=[],
        schema_ipc=encode_schema(pa.schema([("a", pa.int64())])),
        runs=[Run(job="j", app=None, files=[])],
        tombstones=[path],
    )
    ManifestLog(locate("out", tmp_path)).put(0, manifest)
    for mode in ("error", "append", "overwrite"):
        spec = OutputSection(table="out", format="csv", mode=mode)  # type: ignore[arg-type]
        with pytest.raises(OutputError):
            open_sink(spec, tmp_path, {}, "20260102T000000-bbbbbbbbbbbb", None)
    assert [victim.read_text() for victim in victims] == ["mine"] * 6
