"""Jobs over visits and their users, and the files of both."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

SEED = 3
VISITS_ROWS, USERS = 4_000, 300

HEAD = """
[job]
name = "visits"
[cluster]
workers = 2
[shuffle]
partitions = 3
[output]
table = "out"
format = "parquet"
"""
VISITS = "[inputs.visits]\npath = 'visits.parquet'\n"
VISITS_BY_USER = VISITS + "key = ['user']\n"
USERS_BY_ID = "[inputs.users]\npath = 'users.parquet'\nkey = ['id']\n"
BROADCAST = USERS_BY_ID + "broadcast = true\n"
JOIN = VISITS_BY_USER + USERS_BY_ID + "[reduce]\njoin = '{}'\n"


def write_visits(folder: Path) -> Path:
    """Visits of users, whose ids are of another width; some are null, and one is in every fifth."""
    random = np.random.default_rng(SEED)
    user = random.integers(0, 2 * USERS, VISITS_ROWS)
    user[random.random(VISITS_ROWS) < 0.2] = 7
    weight = random.integers(0, 50, VISITS_ROWS)
    visits = pa.table(
        {
            "user": pa.array(user, pa.int64(), mask=random.random(VISITS_ROWS) < 0.05),
            "weight": pa.array(weight, pa.int32(), mask=weight == 0),
            "row": np.arange(VISITS_ROWS),
        }
    )
    ids = [None, *range(0, 2 * USERS, 2)]
    countries = [f"country {number % 9}" for number in range(len(ids))]
    users = pa.table({"id": pa.array(ids, pa.int16()), "country": countries})
    pq.write_table(visits, folder / "visits.parquet", row_group_size=500)
    pq.write_table(users, folder / "users.parquet")
    return folder
