"""Reads plain csv by the kernel in Rust (``kernel/src/plain_csv.rs``).

Csv is plain if each line has the same number of values and no character is special, so that a value
is what is between two separators. Two strings of 24 bytes together take 28 ns, and 54 in Arrow,
whose reader knows every dialect.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyarrow import types

from mrflight.compute.kernel_choice import kernel_language


class PlainCsv:
    """Reads texts with columns of these types; a column whose type is None is left out."""

    def __init__(
        self, delimiter: str, special: Sequence[str], columns: Sequence[pa.DataType | None]
    ) -> None:
        from mrflight._kernel import PlainCsv as Kernel

        self._kernel = Kernel(ord(delimiter), "".join(special).encode(), len(columns))
        read = [(number, kind) for number, kind in enumerate(columns) if kind is not None]
        # Numbers come first, because only they can turn out not to be plain.
        self._columns = sorted(read, key=lambda column: types.is_string(column[1]))

    def read(self, text: pa.Buffer) -> dict[int, pa.Array] | None:
        """Return the columns by their numbers, as Arrow reads them; None if not all is plain.

        The text has special characters, carriage returns, empty lines, a byte order mark, bytes
        that are not UTF-8, lines with more or fewer values, or numbers with more than digits then.
        A number that is missing is null. A string never is.
        """
        rows = self._kernel.divide(text)
        if rows is None:
            return None
        found = {}
        for number, kind in self._columns:
            if types.is_string(kind):
                found[number] = self._strings(text, number, rows)
            elif (column := self._numbers(text, number, kind, rows)) is not None:
                found[number] = column
            else:
                return None
        return found

    def _strings(self, text: pa.Buffer, number: int, rows: int) -> pa.Array:
        offsets = pa.allocate_buffer(4 * (rows + 1))
        data = pa.allocate_buffer(self._kernel.offsets(number, offsets))
        self._kernel.bytes(text, number, data)
        return pa.Array.from_buffers(pa.string(), rows, [None, offsets, data], null_count=0)

    def _numbers(
        self, text: pa.Buffer, number: int, kind: pa.DataType, rows: int
    ) -> pa.Array | None:
        values, valid = pa.allocate_buffer(8 * rows), pa.allocate_buffer(-(-rows // 8))
        fill = self._kernel.integers if types.is_int64(kind) else self._kernel.floats
        nulls = fill(text, number, values, valid)
        if nulls is None:
            return None
        return pa.Array.from_buffers(kind, rows, [valid if nulls else None, values], nulls)


def plain_csv(
    delimiter: str, special: Sequence[str], columns: Sequence[pa.DataType | None]
) -> PlainCsv | None:
    """Return a reader; None for an unknown type, and without a kernel that has one.

    Otherwise no csv could be read in an editable install that has been updated but not built again.
    """
    known = all(
        kind is None or types.is_string(kind) or types.is_int64(kind) or types.is_float64(kind)
        for kind in columns
    )
    if not known or kernel_language() != "rust":
        return None
    from mrflight import _kernel

    return PlainCsv(delimiter, special, columns) if hasattr(_kernel, "PlainCsv") else None
