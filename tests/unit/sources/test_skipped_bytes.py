"""Lines whose bytes are not in the encoding of their file are bad rows."""

from __future__ import annotations

import gzip
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mrflight.config.input_spec import InputSpec
from mrflight.config.text_options import CsvOptions, JsonOptions
from mrflight.errors import BadRowError
from mrflight.sources import open_source
from tests.support.jobs.skipping import Bad, BadRows, Row, open_skipping, read
from tests.support.suite.messages import refused

WRONG = {
    "utf-8": [b"\xff", b"\xe2\x82"],
    "ascii": [b"\xff"],
    "windows-1252": [b"\x81"],
    "shift_jis": [b"\x81", b"\xff"],
    "utf-16-le": [b"\x00\xd8", b"\x00\xdc\x01\xdd"],
    "utf-16-be": [b"\xd8\x0a"],
    "utf-32-le": [b"\xff\xff\xff\xff", b"\x00\xd8\x00\x00"],
}
"""Bytes that are not of an encoding if a line ends after them."""


@given(
    encoding=st.sampled_from(sorted(WRONG)),
    lines=st.lists(st.tuples(st.sampled_from(["1,a", "2", "#", ""]), st.integers(0, 5))),
    cut=st.booleans(),
    options=st.fixed_dictionaries(
        {"comment": st.sampled_from([None, "#"]), "newlines_in_values": st.booleans()}
    ),
    is_packed=st.booleans(),
    split_bytes=st.sampled_from([1, 7, 1000]),
)
def test_lines_with_wrong_bytes_are_bad(
    encoding: str,
    lines: list[tuple[str, int]],
    cut: bool,
    options: dict[str, Any],
    is_packed: bool,
    split_bytes: int,
) -> None:
    """Python decodes each line by itself. ``cut``: the file ends within a character."""
    data, rows, bad = "n,s\n".encode(encoding), list[Row](), list[Bad]()
    for number, (text, which) in enumerate([*lines, *[("1,a", 0)] * cut], 2):
        wrong = WRONG[encoding][which] if which < len(WRONG[encoding]) else b""
        data += text.encode(encoding) + wrong + "\n".encode(encoding)
        if (text == "#" and options["comment"]) or not text + wrong.hex():
            continue
        if text == "1,a" and not wrong:
            rows.append((1, "a"))
        else:
            bad.append(("a.csv", number, text + "".join(f"\\x{byte:02x}" for byte in wrong)))
    if cut:
        width = len("\n".encode(encoding))
        data = data[:-width] + data[-width:-1]
        tail = "" if width == 1 else "".join(f"\\x{byte:02x}" for byte in data[1 - width :])
        bad[-1] = (*bad[-1][:2], bad[-1][2] + tail)
    with tempfile.TemporaryDirectory() as folder:
        name = "a.csv.gz" if is_packed else "a.csv"
        (Path(folder) / name).write_bytes(gzip.compress(data) if is_packed else data)
        given = CsvOptions(encoding=encoding, **options)
        found = read(open_skipping(Path(folder), name, split_bytes, csv=given))
    assert found == (rows, [(name, *each[1:]) for each in bad])


@pytest.mark.parametrize("encoding", ["utf-16-le", "windows-1252", "shift_jis"])
def test_lines_of_json_with_wrong_bytes_are_bad(tmp_path: Path, encoding: str) -> None:
    wrong, end = WRONG[encoding][0], '"}\n'.encode(encoding)
    lines = [f'{{"n":{n},"s":"x"}}\n'.encode(encoding) for n in range(3)]
    lines[1] = lines[1].removesuffix(end) + wrong + end
    (tmp_path / "a.json").write_bytes(b"".join(lines))
    source = open_skipping(tmp_path, "a.json", json=JsonOptions(encoding=encoding))
    shown = "".join(f"\\x{byte:02x}" for byte in wrong)
    assert read(source) == (
        [(0, "x"), (2, "x")],
        [("a.json", 2, f'{{"n":1,"s":"x{shown}"}}')],
    )
    with refused(BadRowError):
        read(
            open_source(
                "visits",
                InputSpec(path="a.json", json=JsonOptions(encoding=encoding)),
                tmp_path,
                {},
                100,
            )
        )


@pytest.mark.parametrize(
    "text", [b"2,\xff", b"2,x" + b"y" * (1 << 20)], ids=["no UTF-8", "a long line"]
)
def test_text_is_written_as_far_as_it_can_be(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "a.csv").write_bytes(b"n,s\n1,x\n" + text + b",\n")
    source = open_skipping(tmp_path, "a.csv")
    log = BadRows()
    assert sum(b.num_rows for b in source.reader.with_bad_rows(log).read(source.splits[0])) == 1
    (bad,) = log.found
    is_long = len(text) > 1 << 20
    assert bad.reason.endswith(" (text is cut after 1 MiB)") == is_long
    assert bad.text == (text[: 1 << 20].decode() if is_long else "2,\\xff,")
