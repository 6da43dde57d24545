"""Of the events of tables those without which a metadata server would know something else."""

from __future__ import annotations

from collections.abc import Iterator

from mrflight.shuffle.wire.lease_protocol import MAX_VERSIONS


class TablesKept:
    """Of each table its lease, as long as it lasts, and the versions that are remembered.

    The last lease of all is kept even where it has ended: the next number comes after its own.
    """

    def __init__(self) -> None:
        self._leases: dict[str, int] = {}
        self._versions: dict[str, dict[int, int]] = {}
        self._last: list[int] = []
        self._last_table = ""

    def add(self, position: int, event: str, table: str, version: int) -> None:
        """Take in the event at a position, in their order; ``version`` is that of the table."""
        match event:
            case "CommitLeaseGiven":
                self._leases[table] = position
                self._last, self._last_table = [position], table
            case "CommitLeaseEnded":
                self._leases.pop(table, None)
                if table == self._last_table:
                    self._last.append(position)
            case "VersionRecorded":
                versions = self._versions.setdefault(table, {})
                versions.pop(version, None)
                versions[version] = position
                for oldest in list(versions)[:-MAX_VERSIONS]:
                    del versions[oldest]
            case "VersionForgotten":
                self._versions.get(table, {}).pop(version, None)

    def positions(self) -> Iterator[int]:
        """In no order, each once."""
        yield from {
            *self._last,
            *self._leases.values(),
            *(position for versions in self._versions.values() for position in versions.values()),
        }
