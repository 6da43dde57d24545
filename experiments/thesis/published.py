"""The figures that the thesis published, for 15,000,000 rows (30,000,000 in table 4.1).

Its machine had 6 cores at 4.1 GHz and 16 GB (chapter 4).
"""

from __future__ import annotations

ROWS = 15_000_000

# partitions: execution time (mean, standard deviation), reducer time; seconds
TABLE_4_1 = {
    5: (24.571, 0.327, 5.631),
    10: (20.720, 0.460, 3.554),
    20: (22.398, 0.680, 4.280),
    40: (24.490, 0.728, 5.742),
}
TABLE_4_2 = {
    5: (20.481, 0.500, 6.373),
    10: (20.838, 0.281, 6.073),
    20: (22.323, 0.240, 6.606),
    40: (25.608, 1.109, 8.455),
}

# partitions: map, shuffle, reduce, total; seconds over tasks
TABLE_4_3 = {
    5: (1.133, 3.026, 2.444, 6.604),
    10: (1.162, 3.329, 1.249, 5.741),
    20: (1.171, 3.962, 0.652, 5.785),
    40: (1.153, 4.962, 0.324, 6.438),
}
TABLE_4_4 = {
    5: (1.549, 3.321, 6.615, 11.485),
    10: (1.581, 3.806, 3.347, 8.734),
    20: (1.548, 4.450, 1.687, 7.685),
    40: (1.530, 5.791, 0.896, 8.216),
}
TABLE_4_5 = {
    5: (1.185, 3.141, 2.827, 7.154),
    10: (1.158, 3.326, 1.494, 5.979),
    20: (1.192, 3.929, 0.692, 5.814),
    40: (1.175, 4.964, 0.340, 6.480),
}
TABLE_4_6 = {
    5: (1.513, 3.371, 6.931, 11.816),
    10: (1.536, 3.686, 3.540, 8.762),
    20: (1.519, 4.418, 1.786, 7.723),
    40: (1.534, 6.002, 0.954, 8.490),
}

BY_STEP = {
    ("arrow", "10"): TABLE_4_3,
    ("arrow", "unique"): TABLE_4_4,
    ("flight", "10"): TABLE_4_5,
    ("flight", "unique"): TABLE_4_6,
}
"""The tables by version and keys. Tables 4.7 and 4.8 are the totals of these."""
