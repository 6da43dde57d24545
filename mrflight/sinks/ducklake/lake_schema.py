"""The requirements of a DuckLake table on the schema of rows that are written to it."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from mrflight.errors import OutputError
from mrflight.sinks.parts.stored_schema import TableSchema
from mrflight.storage.ducklake.types import UnknownLakeTypeError, stored_type


class LakeSchema(TableSchema, frozen=True):
    """The same as for a folder, with the types and the names that DuckLake has."""

    def _check_names(self, names: Sequence[str]) -> None:
        seen: set[str] = set()
        for name in names:
            if name.lower() in seen:
                raise OutputError(
                    f"{self.url}: two columns are called {name!r}, and DuckLake does not tell "
                    "upper from lower case; rename one"
                )
            seen.add(name.lower())
            if not name or "\0" in name:
                raise OutputError(
                    f"{self.url}: a DuckLake table cannot have a column called {name!r}; rename "
                    "it in the map or the aggregate"
                )

    def _stored_type(self, field: pa.Field) -> pa.DataType:
        try:
            return stored_type(field.type)
        except UnknownLakeTypeError as error:
            raise self._refused(field, str(error)) from None
