"""A file that changes between being listed and being looked at for its columns."""

from __future__ import annotations

from pathlib import Path

import pytest

from mrflight.config.spec import InputSpec
from mrflight.errors import InputError
from mrflight.sources.csv_source import open_csv
from mrflight.sources.discovery import find_input


def test_one_that_is_emptied_is_not_taken_for_one_that_was_empty(tmp_path: Path) -> None:
    """Which is left out, so that no task would miss its rows."""
    (tmp_path / "a.csv").write_text("k\n1\n")
    (tmp_path / "b.csv").write_text("k\n2\n")
    found = find_input("rows", InputSpec(path="*.csv"), tmp_path, {})
    (tmp_path / "b.csv").write_text("")
    with pytest.raises(InputError, match=r"b\.csv changed while the job ran: it had 4 bytes"):
        open_csv(found, 1 << 20)
