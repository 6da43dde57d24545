"""Plain csv is read by the kernel as pyarrow reads it, and all other csv is left to pyarrow."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.csv as pc
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mrflight.config.text_options import CsvOptions
from mrflight.sources.chunk import Chunk
from mrflight.sources.csv_decoder import CsvDecoder
from mrflight.sources.plain_csv_decoder import PlainCsvDecoder, plain_csv_decoder

pytestmark = pytest.mark.usefixtures("needs_kernel")

NAMES = ["s", "n", "x"]
TYPES = {"s": pa.string(), "n": pa.int64(), "x": pa.float64()}


def decoder(*include: str, columns: list[str] = NAMES, **options: object) -> PlainCsvDecoder:
    found = plain_csv_decoder(columns, include or columns, TYPES, CsvOptions(**options))  # type: ignore[arg-type]
    assert found is not None
    return found


def read_by_pyarrow(text: bytes, columns: list[str], include: list[str]) -> pa.Table | None:
    types = {name: TYPES[name] for name in include}
    try:
        return pc.read_csv(
            pa.BufferReader(text),
            pc.ReadOptions(use_threads=False, column_names=columns),
            convert_options=pc.ConvertOptions(column_types=types, include_columns=include),
        )
    except pa.ArrowInvalid:
        return None


def test_plain_csv_is_read_by_the_kernel() -> None:
    batch = decoder().decode(Chunk.of(b"a,1,0.5\n\xc3\xa9 b,-20,-1e-7\n,,"))
    assert batch is not None
    batch.validate(full=True)
    rows = {"s": ["a", "é b", ""], "n": [1, -20, None], "x": [0.5, -1e-7, None]}
    assert batch.equals(pa.RecordBatch.from_pydict(rows, pa.schema(TYPES)))


def test_columns_are_read_in_the_order_that_is_asked_for() -> None:
    batch = decoder("x", "s", columns=["s", "other", "x"]).decode(Chunk.of(b"a,?,1\nb,!,2\n"))
    assert batch is not None
    assert batch.to_pydict() == {"x": [1.0, 2.0], "s": ["a", "b"]}


@pytest.mark.parametrize(
    "text",
    [
        b'"a",1,2\n',
        b"a,1,2\r\nb,1,2\r\n",
        b"a,1,2\n\nb,1,2\n",
        b"\n",
        b"a,1\n",
        b"a,1,2,3\n",
        b"a,1,2\nb,1",
        b"\xff,1,2\n",
        b"a,1 ,2\n",
        b"a,0x10,2\n",
        b"a,NA,2\n",
        b"a,1234567890123456789,2\n",
        b"a,1,nan\n",
        b"a,1,+2\n",
        b"a,1,2e\n",
    ],
)
def test_all_other_csv_is_left_to_pyarrow(text: bytes) -> None:
    filler = b"abcdefg,1,2.5\n" * 20  # so that it is not in the first block of 64 bytes
    assert decoder().decode(Chunk.of(text)) is None
    assert decoder().decode(Chunk.of(filler + text)) is None


def test_a_byte_order_mark_is_left_to_pyarrow() -> None:
    assert decoder().decode(Chunk.of(b"\xef\xbb\xbfa,1,2\n")) is None


@pytest.mark.parametrize("text", [b"\na\n", b"a\n\n", b"a\n\nb\n", b"\n"])
def test_a_line_without_the_only_value_is_left_to_pyarrow(text: bytes) -> None:
    assert decoder(columns=["s"]).decode(Chunk.of(text)) is None


@pytest.mark.parametrize(
    "options",
    [
        {"null_values": ["x"]},
        {"strings_can_be_null": True},
        {"decimal": ","},
        {"thousands": "'"},
        {"newlines_in_values": True},
    ],
)
def test_some_dialects_are_left_to_pyarrow(options: dict[str, object]) -> None:
    assert plain_csv_decoder(NAMES, NAMES, TYPES, CsvOptions(**options)) is None  # type: ignore[arg-type]


def test_other_types_and_unknown_columns_are_left_to_pyarrow() -> None:
    for types in ({**TYPES, "x": pa.date32()}, {"s": pa.string()}):
        assert plain_csv_decoder(NAMES, NAMES, types, CsvOptions()) is None
    assert plain_csv_decoder(["s"], NAMES, TYPES, CsvOptions()) is None


def test_a_quote_is_plain_if_it_has_no_meaning() -> None:
    batch = decoder(quote="").decode(Chunk.of(b'"a,1,2\n'))
    assert batch is not None
    assert batch["s"].to_pylist() == ['"a']


def test_no_more_chunks_are_tried_after_two_that_are_not_plain() -> None:
    plain, quoted = Chunk.of(b"a,1,2\n"), Chunk.of(b'"a",1,2\n')
    tried = decoder()
    found = [tried.decode(chunk) for chunk in (quoted, plain, quoted, quoted, plain)]
    assert [batch is not None for batch in found] == [False, True, False, False, False]


values = st.one_of(
    st.integers(-(10**19), 10**19).map(str),
    st.floats().map(repr),
    st.from_regex(r"[-+]?[0-9]{0,3}\.?[0-9]{0,3}([eE][-+]?[0-9]{0,3})?", fullmatch=True),
    st.text(st.characters(codec="utf-8", exclude_characters="\n"), max_size=40),
)
lines = st.lists(values, min_size=1, max_size=4).map(",".join)
texts = st.lists(lines, max_size=40).map("\n".join)


@given(text=texts, columns=st.integers(1, 3), ends=st.booleans())
@example(text="0" * 64, columns=1, ends=True)
@example(text="a" * 63, columns=1, ends=True)
@example(text="a" * 63, columns=1, ends=False)
@example(text="a" * 200 + "," + "1" * 18, columns=2, ends=False)
def test_whatever_is_read_is_what_pyarrow_reads(text: str, columns: int, ends: bool) -> None:
    names = NAMES[:columns]
    encoded = (text + "\n" * ends).encode()
    batch = decoder(columns=names).decode(Chunk.of(encoded))
    if batch is not None:
        batch.validate(full=True)
        table = read_by_pyarrow(encoded, names, names)
        assert table is not None
        assert pa.Table.from_batches([batch]).equals(table)


numbers = st.tuples(
    st.text(st.characters(codec="utf-8", exclude_characters='\n\r,"'), max_size=40),
    st.integers(-(10**18) + 1, 10**18 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
)


@given(st.lists(numbers, min_size=1, max_size=200))
def test_rows_of_any_length_are_plain(rows: list[tuple[str, int, float]]) -> None:
    text = "".join(f"{s},{n},{x!r}\n" for s, n, x in rows).encode()
    plain = decoder().decode(Chunk.of(text))
    assert plain is not None or text.startswith(b"\xef\xbb\xbf")
    batch = CsvDecoder(NAMES, NAMES, TYPES, CsvOptions()).decode(Chunk.of(text))
    assert batch.to_pydict()["n"] == [n for _, n, _ in rows]
    assert batch.to_pydict()["x"] == [x for _, _, x in rows]
    if plain is not None:
        assert batch.to_pydict()["s"] == [s for s, _, _ in rows]
