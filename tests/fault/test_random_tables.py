"""Nothing that is done to a table changes another in its folder; see `RandomTables`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.suite.soak import seed
from tests.support.tables.random_tables import RandomTables

SAMPLE, SOAKED, STEPS = 5, 400, 30


@pytest.mark.parametrize(
    "number",
    [
        *range(SAMPLE),
        *(pytest.param(number, marks=pytest.mark.soak) for number in range(SAMPLE, SOAKED)),
    ],
)
def test_steps_on_nested_tables(tmp_path: Path, number: int) -> None:
    of = SOAKED * seed() + number
    tables = RandomTables(tmp_path, of)
    print(f"seed {of}: RandomTables(folder, {of})")  # noqa: T201
    try:
        for _ in range(STEPS):
            tables.step()
    except BaseException as error:
        error.add_note("\n".join([f"seed {of}", *tables.steps]))
        raise
