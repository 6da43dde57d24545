"""Key columns of every type and layout, made of any bytes at any address.

Buffers are filled with arbitrary bytes where every pattern is a value, so that
all floats, decimals and broken strings occur. Arrays begin anywhere in their
buffers, buffers at any address, and what lies under a null is garbage.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

FIXED_WIDTH_TYPES = [
    pa.int8(),
    pa.int16(),
    pa.int32(),
    pa.int64(),
    pa.uint8(),
    pa.uint16(),
    pa.uint32(),
    pa.uint64(),
    pa.float16(),
    pa.float32(),
    pa.float64(),
    pa.bool_(),
    pa.date32(),
    pa.date64(),
    pa.time32("s"),
    pa.time32("ms"),
    pa.time64("us"),
    pa.time64("ns"),
    pa.timestamp("s"),
    pa.timestamp("ms"),
    pa.timestamp("us", "UTC"),
    pa.timestamp("ns", "Europe/Stockholm"),
    pa.duration("s"),
    pa.duration("ns"),
    pa.decimal32(9, 2),
    pa.decimal64(18, 3),
    pa.decimal128(38, -2),
    pa.decimal256(76, 10),
    pa.binary(1),
    pa.binary(16),
    pa.binary(19),
]
BINARY_TYPES = [pa.binary(), pa.large_binary(), pa.string(), pa.large_string()]
VIEW_TYPES = [pa.binary_view(), pa.string_view()]
PLAIN_TYPES = [pa.null(), *FIXED_WIDTH_TYPES, *BINARY_TYPES, *VIEW_TYPES, pa.binary(0)]

INDEX_TYPES = [
    pa.int8(),
    pa.uint8(),
    pa.int16(),
    pa.uint16(),
    pa.int32(),
    pa.uint32(),
    pa.int64(),
    pa.uint64(),
]
RUN_END_TYPES = [pa.int16(), pa.int32(), pa.int64()]

# Half of them repeated or a boundary, so that nulls, zeros, NaNs and equal keys are common.
_words = st.one_of(
    st.binary(min_size=32, max_size=32),
    st.sampled_from(
        [
            bytes(32),
            b"\xff" * 32,
            np.float64(-0.0).tobytes() * 4,
            np.float64("nan").tobytes() * 4,
            np.float64("-inf").tobytes() * 4,
            np.array([-0.0, np.nan, 1.5, -0.0], np.float32).tobytes() * 2,
            np.array([-0.0, np.nan, np.inf, 6e-8], np.float16).tobytes() * 4,
            (1).to_bytes(8, "little") * 4,
            (-1 << 63).to_bytes(8, "little", signed=True) * 4,
        ]
    ),
)
# Every length class of XXH3: to 16, 128, 240, 1024 bytes, and above.
_values = st.one_of(
    st.binary(max_size=20),
    st.builds(
        lambda byte, size: byte * size, st.binary(min_size=1, max_size=3), st.integers(0, 700)
    ),
    st.sampled_from([b"", b"a", b"twelve bytes", b"thirteen byte", "å".encode()]),
)


def _buffer(draw: DrawFn, content: bytes) -> pa.Buffer:
    """``content`` at an address that may be odd."""
    shift = draw(st.integers(0, 8))
    return pa.py_buffer(bytes(shift) + content).slice(shift)


def _validity(draw: DrawFn, bits: int) -> pa.Buffer | None:
    size = (bits + 7) // 8
    return (
        _buffer(draw, draw(st.binary(min_size=size, max_size=size)))
        if draw(st.booleans())
        else None
    )


@st.composite
def _fixed_width(draw: DrawFn, type_: pa.DataType, rows: int) -> pa.Array:
    first = draw(st.integers(0, 9))
    size = ((rows + first) * type_.bit_width + 7) // 8
    words = draw(st.lists(_words, min_size=1, max_size=8))
    content = b"".join(words) * (size // (32 * len(words)) + 1)
    buffers = [_validity(draw, rows + first), _buffer(draw, content[:size])]
    return pa.Array.from_buffers(type_, rows, buffers, offset=first)


@st.composite
def _binary(draw: DrawFn, type_: pa.DataType, rows: int) -> pa.Array:
    first = draw(st.integers(0, 9))
    distinct = draw(st.lists(_values, min_size=1, max_size=8))
    values = [draw(st.sampled_from(distinct)) for _ in range(rows + first)]
    base = draw(st.integers(0, 3))  # the first offset need not be 0
    offsets = np.cumsum([base, *map(len, values)])
    wide = type_ in (pa.large_binary(), pa.large_string())
    buffers = [
        _validity(draw, rows + first),
        _buffer(draw, offsets.astype(np.int64 if wide else np.int32).tobytes()),
        _buffer(draw, bytes(base) + b"".join(values)),
    ]
    return pa.Array.from_buffers(type_, rows, buffers, offset=first)


@st.composite
def _view(draw: DrawFn, type_: pa.DataType, rows: int) -> pa.Array:
    first = draw(st.integers(0, 3))
    distinct = draw(st.lists(st.none() | _values, min_size=1, max_size=8))
    values = [draw(st.sampled_from(distinct)) for _ in range(rows + first)]
    validity, views, *data = pa.array(values, pa.binary_view()).buffers()
    if validity is not None:
        garbage = bytearray(views.to_pybytes())
        for row, value in enumerate(values):
            if value is None:
                garbage[16 * row : 16 * (row + 1)] = b"\xff" * 16
        views = _buffer(draw, bytes(garbage))
    return pa.Array.from_buffers(type_, rows, [validity, views, *data], offset=first)


def plain_arrays(type_: pa.DataType, rows: int) -> SearchStrategy[pa.Array]:
    """Arrays of one of `PLAIN_TYPES`."""
    if type_ == pa.null():
        return st.just(pa.nulls(rows))
    if type_ in VIEW_TYPES:
        return _view(type_, rows)
    if type_ in BINARY_TYPES:
        return _binary(type_, rows)
    return _fixed_width(type_, rows)


@st.composite
def dictionaries(
    draw: DrawFn, values: Callable[[int], SearchStrategy[pa.Array]], rows: int
) -> pa.DictionaryArray:
    """Arrays with a dictionary that holds nulls, repeats values and may be larger than needed."""
    dictionary = draw(values(draw(st.integers(1, 2 * rows + 2))))
    indices = st.none() | st.integers(0, min(len(dictionary), 128) - 1)
    first = draw(st.integers(0, 3))
    drawn = draw(st.lists(indices, min_size=rows + first, max_size=rows + first))
    encoded = pa.DictionaryArray.from_arrays(
        pa.array(drawn, draw(st.sampled_from(INDEX_TYPES))), dictionary
    )
    return encoded.slice(first)


@st.composite
def run_ends(
    draw: DrawFn, values: Callable[[int], SearchStrategy[pa.Array]], rows: int
) -> pa.RunEndEncodedArray:
    """Arrays encoded as runs, cut anywhere."""
    lengths = draw(st.lists(st.integers(1, 9), min_size=1, max_size=12))
    lengths.append(max(1, rows - sum(lengths)))
    ends = pa.array(np.cumsum(lengths), draw(st.sampled_from(RUN_END_TYPES)))
    first = draw(st.integers(0, sum(lengths) - rows))
    return as_runs(ends, draw(values(len(lengths))), rows, first)


def as_runs(ends: pa.Array, values: pa.Array, rows: int, first: int = 0) -> pa.RunEndEncodedArray:
    """Runs of any values and with any ends; `RunEndEncodedArray.from_arrays` refuses some."""
    type_ = pa.run_end_encoded(ends.type, values.type)
    return pa.Array.from_buffers(type_, rows, [None], offset=first, children=[ends, values])


@st.composite
def key_arrays(draw: DrawFn, rows: int) -> pa.Array:
    """Arrays of any type that can be a key, in any layout."""
    type_ = draw(st.sampled_from(PLAIN_TYPES))

    def plain(size: int) -> SearchStrategy[pa.Array]:
        return plain_arrays(type_, size)

    encodings = [plain, lambda size: dictionaries(plain, size), lambda size: run_ends(plain, size)]
    encodings.append(lambda size: run_ends(encodings[1], size))
    return draw(draw(st.sampled_from(encodings))(rows))
