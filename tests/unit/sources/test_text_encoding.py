"""Tests of text files in other encodings than UTF-8, and of comments."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest

from mrflight.config.input_spec import InputSpec
from mrflight.config.text_options import CsvOptions, JsonOptions
from mrflight.errors import BadRowError, InputError, JobFileError
from mrflight.sources import open_source, text_encoding
from mrflight.sources.base import Source
from mrflight.sources.packing import pack
from mrflight.sources.text_encoding import UTF_8
from tests.support.suite.messages import refused


def open_at(
    folder: Path,
    data: bytes,
    types: dict[str, str] | None = None,
    name: str = "a.csv",
    **options: Any,
) -> Source:
    (folder / name).write_bytes(data)
    spec = InputSpec(path=name, types=types or {}, csv=CsvOptions(**options))
    return open_source("visits", spec, folder, {}, split_bytes=7)


def rows(source: Source) -> list[dict[str, Any]]:
    batches = [batch for split in source.splits for batch in source.reader.read(split)]
    return [row for batch in batches for row in batch.to_pylist()]


@pytest.mark.parametrize(
    ("name", "is_streamed"),
    [
        ("latin-1", False),
        ("Windows-1252", False),
        ("koi8-r", False),
        ("ascii", False),
        ("shift_jis", False),
        ("GB18030", False),
        ("utf-16", True),
        ("utf-32-le", True),
        ("utf-7", True),
        ("iso2022_jp", True),
        ("hz", True),
        ("cp037", True),
    ],
)
def test_lines_of_some_encodings_are_found_in_their_bytes(name: str, is_streamed: bool) -> None:
    encoding = text_encoding.text_encoding(name, is_streamed=False)
    assert encoding.is_streamed == is_streamed
    assert encoding.of_lines == ("utf-8" if is_streamed else encoding.codec)


@pytest.mark.parametrize("name", ["utf-8", "UTF8", "utf_8", "utf-8-sig", "u8"])
def test_utf_8_by_any_name_is_read_as_it_is(name: str) -> None:
    assert text_encoding.text_encoding(name, is_streamed=False) == UTF_8


def test_no_character_of_several_bytes_has_a_line_end() -> None:
    for codec in text_encoding._MULTIBYTE:
        encoded = "".join(map(chr, range(14, 0x10000))).encode(codec, "ignore")
        assert b"\n" not in encoded
        assert b"\r" not in encoded


TEXT = "größe,word\n1,é\n2,ÿû\n\n3,\u00a3\n"
ROWS = [{"größe": 1, "word": "é"}, {"größe": 2, "word": "ÿû"}, {"größe": 3, "word": "£"}]


@pytest.mark.parametrize("quoted", [False, True])
@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz"])
@pytest.mark.parametrize("encoding", ["latin-1", "utf-16", "utf-16-le", "utf-8-sig"])
def test_a_file_in_another_encoding(tmp_path: Path, encoding: str, name: str, quoted: bool) -> None:
    data = TEXT.encode(encoding)
    packed = gzip.compress(data) if name.endswith("gz") else data
    source = open_at(tmp_path, packed, name=name, encoding=encoding, newlines_in_values=quoted)
    assert rows(source) == ROWS
    has_ranges = name == "a.csv" and not quoted and not encoding.startswith("utf-16")
    assert (len(source.splits) > 1) == has_ranges


def test_small_files_in_another_encoding_share_batches(tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"{number}.csv").write_bytes(f"n,s\n{number},é".encode("utf-16"))
    spec = InputSpec(path=str(tmp_path), csv=CsvOptions(encoding="utf-16"))
    source = open_source("visits", spec, tmp_path, {}, 1 << 20)
    (split,) = pack(source.splits, 1 << 30)
    (batch,) = source.reader.read(split)
    assert batch.to_pydict() == {"n": [0, 1, 2], "s": ["é"] * 3}


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16", "shift_jis"])
def test_json_in_another_encoding(tmp_path: Path, encoding: str) -> None:
    word = "日本" if encoding == "shift_jis" else "çé"
    lines = [f'{{"{word}":{n},"s":"{word}"}}\n' for n in range(5)]
    (tmp_path / "a.jsonl").write_text("".join(lines), encoding=encoding)
    spec = InputSpec(path="a.jsonl", json=JsonOptions(encoding=encoding))
    source = open_source("visits", spec, tmp_path, {}, 30)
    assert rows(source) == [{word: n, "s": word} for n in range(5)]
    assert (len(source.splits) > 1) == (encoding != "utf-16")


@pytest.mark.parametrize(
    ("data", "encoding", "error", "expected"),
    [
        (
            b"n,s\n1,x\n2,a\x81b\n",
            "windows-1252",
            BadRowError,
            "a.csv, line 3: b'\\x81b' is not cp1252; correct it, or set inputs.visits.csv.encoding",
        ),
        (
            b"n,s\n1,\x93\xfa\n\n2,\x81\n",
            "shift_jis",
            BadRowError,
            "a.csv, line 4: b'\\x81' is not shift_jis; correct it, or set "
            "inputs.visits.csv.encoding",
        ),
        (
            "n,s\n1,x\n2,y\n".encode("utf-16-le")[:-1],
            "utf-16-le",
            BadRowError,
            "a.csv, line 3: b'\\n' is not utf-16-le; correct it, or set inputs.visits.csv.encoding",
        ),
        (
            "n,s\n1,x\n".encode("utf-16-le") + b"\x00\xdc\x41\x00",
            "utf-16-le",
            BadRowError,
            "a.csv, line 3: b'\\x00\\xdc' is not utf-16-le; correct it, or set "
            "inputs.visits.csv.encoding",
        ),
        (
            b"n,s\n1,\x1b$B\x30\n",
            "iso2022_jp",
            InputError,
            "a.csv is not iso2022_jp: illegal multibyte sequence at byte 9; set another encoding, "
            "or correct the file; bad_rows cannot skip them, as they change what the bytes after "
            "them mean",
        ),
        (
            b"n\0\x00\xd8,\0s\0\n\0",
            "utf-16-le",
            InputError,
            "a.csv: the first line cannot be read as a csv header in UTF-16-LE: 'utf-16-le' codec "
            "can't decode bytes in position 0-1: wrong bytes; if the file has another encoding, "
            "set inputs.visits.csv.encoding",
        ),
        (
            b"n,\x81\n",
            "windows-1252",
            InputError,
            "a.csv: the first line cannot be read as a csv header in CP1252: 'charmap' codec can't "
            "decode byte 0x81 in position 2: character maps to <undefined>; if the file has "
            "another encoding, set inputs.visits.csv.encoding",
        ),
    ],
)
def test_bytes_that_are_not_in_the_encoding(
    tmp_path: Path, data: bytes, encoding: str, error: type[Exception], expected: str
) -> None:
    with pytest.raises(error) as raised:
        rows(open_at(tmp_path, data, encoding=encoding))
    skip = '; or leave out such rows with inputs.visits.bad_rows = "skip"'
    has_rows = error is BadRowError
    assert str(raised.value).replace(f"{tmp_path}/", "") == expected + (skip if has_rows else "")


@pytest.mark.parametrize("encoding", ["windows-1252", "shift_jis"])
def test_wrong_bytes_among_rows_with_line_ends_are_told_by_line(
    tmp_path: Path, encoding: str
) -> None:
    source = open_at(
        tmp_path, b'n,s\n1,"a\nb"\n', {"n": "int8"}, encoding=encoding, newlines_in_values=True
    )
    assert rows(source) == [{"n": 1, "s": "a\nb"}]
    data = b'n,s\n1,"a\nb"\n2,\x81\n'
    with refused(BadRowError):
        rows(
            open_at(
                tmp_path,
                data,
                {"n": "int8", "s": "binary"},
                encoding=encoding,
                newlines_in_values=True,
            )
        )


def test_a_bad_value_in_another_encoding_is_shown_as_text(tmp_path: Path) -> None:
    data = b"n,s\n1,x\n\xe9,y\n"
    with refused(BadRowError):
        rows(open_at(tmp_path, data, {"n": "int64"}, encoding="latin-1"))
    with refused(BadRowError):
        rows(open_at(tmp_path, b"n,s\n\xe9\n", encoding="latin-1"))


@pytest.mark.parametrize("name", ["utf-99", "", "hex", "x\0"])
def test_unknown_encodings_are_refused(tmp_path: Path, name: str) -> None:
    with refused(JobFileError, "inputs.visits.csv.encoding"):
        open_at(tmp_path, b"n\n1\n", encoding=name)


def test_comments_are_lines_that_begin_with_the_character(tmp_path: Path) -> None:
    data = b'# by hand\n\n#\nn,#s\n# "one\n1,"# x"\n#,#\r\n"#2",y # z\n #3,#\n#'
    source = open_at(tmp_path, data, comment="#")
    assert rows(source) == [
        {"n": "1", "#s": "# x"},
        {"n": "#2", "#s": "y # z"},
        {"n": " #3", "#s": "#"},
    ]


@pytest.mark.parametrize("bad_rows", ["fail", "skip"])
def test_comments_between_rows_with_line_ends(tmp_path: Path, bad_rows: str) -> None:
    data = b'# "\n#\n"n\n#",s\n# a,"b\n1,"x\n# y\n"\n\n#,"\r\n2,z # z\n#"'
    (tmp_path / "a.csv").write_bytes(data)
    options = CsvOptions(comment="#", newlines_in_values=True)
    spec = InputSpec(path="a.csv", csv=options, bad_rows=bad_rows)
    assert rows(open_source("visits", spec, tmp_path, {}, 7)) == [
        {"n\n#": 1, "s": "x\n# y\n"},
        {"n\n#": 2, "s": "z # z"},
    ]
    (tmp_path / "a.csv").write_bytes(data + b"\n3\n")
    spec = InputSpec(path="a.csv", csv=options)
    with refused(BadRowError):
        rows(open_source("visits", spec, tmp_path, {}, 7))


@pytest.mark.parametrize("quoted", [False, True])
def test_a_split_may_be_a_comment_without_a_line_end(tmp_path: Path, quoted: bool) -> None:
    (tmp_path / "a.csv").write_bytes(b"n\n1\n#")
    options = CsvOptions(comment="#", newlines_in_values=quoted)
    spec = InputSpec(path="a.csv", csv=options)
    assert rows(open_source("visits", spec, tmp_path, {}, split_bytes=1)) == [{"n": 1}]


def test_comments_keep_the_numbers_of_lines(tmp_path: Path) -> None:
    data = b"# a\nn,s\n# b\n# c\n1,x\n# d\n2\n"
    with refused(BadRowError):
        rows(open_at(tmp_path, data, comment="#"))


def test_a_comment_ends_at_a_carriage_return(tmp_path: Path) -> None:
    assert rows(open_at(tmp_path, b"# a\rn,s\r1,x\r", comment="#")) == [{"n": 1, "s": "x"}]


def test_settings_of_comments_that_cannot_be_met_are_refused(tmp_path: Path) -> None:
    with refused(JobFileError, "inputs.visits.csv.comment"):
        open_at(tmp_path, b"n\n1\n", comment="#", delimiter="#")
    with refused(JobFileError, "inputs.visits.csv.comment"):
        open_at(tmp_path, b"n\n1\n", comment="//")


def test_settings_of_another_format_are_refused(tmp_path: Path) -> None:
    with refused(JobFileError, "inputs.visits.csv"):
        open_at(tmp_path, b'{"n":1}\n', name="a.json", encoding="latin-1")
