"""The figures that the thesis published (chapter 5).

Its machine had 8 cores, 16 GB and an NVMe SSD (table 4.1), and each run took five minutes. The
medians and interquartile ranges are of the first hot run. The thesis gives its throughput only as
figures 5.1 and 5.7. Section 6.2.2 reads about 2,400 and 413,000 events of Iceberg (DuckDB) off
them, section 6.2.1 says that DuckLake took 12 times as many single events, and section 6.3 that
inlining made it about 30,000.
"""

from __future__ import annotations

SINGLE, BATCH = 1, 1_000
RUN_S = 300.0

EVENTS = {
    (SINGLE, "Iceberg (DuckDB)"): 2_400,
    (BATCH, "Iceberg (DuckDB)"): 413_000,
    (SINGLE, "DuckLake"): 28_800,
    (SINGLE, "DuckLake + Inlining"): 30_000,
}
"""Events in five minutes, where the text names them."""

WRITTEN_MB = {
    SINGLE: {
        "DuckLake": (2.154, 0.502),
        "Iceberg (PyIceberg)": (0.291, 0.594),
        "DuckLake + Inlining": (1.204, 0.193),
        "Iceberg (DuckDB)": (0.459, 0.380),
    },
    BATCH: {
        "DuckLake": (0.154, 0.341),
        "Iceberg (PyIceberg)": (0.258, 0.502),
        "Iceberg (DuckDB)": (0.242, 0.727),
        "DuckLake + Inlining": (0.573, 0.372),
    },
}
"""Tables 5.1 and 5.4: megabytes written to the disk in a second, median and IQR."""

WRITE_MS = {
    SINGLE: {
        "DuckLake": (9.889, 0.667),
        "Iceberg (PyIceberg)": (346.208, 341.194),
        "DuckLake + Inlining": (9.169, 0.711),
        "Iceberg (DuckDB)": (124.303, 22.650),
    },
    BATCH: {
        "DuckLake": (77.439, 6.942),
        "Iceberg (PyIceberg)": (644.842, 84.695),
        "DuckLake + Inlining": (189.746, 10.625),
        "Iceberg (DuckDB)": (160.086, 8.189),
    },
}
"""Tables 5.2 and 5.5: milliseconds of a write, median and IQR."""

FLUSH_S = {SINGLE: (0.219874, 0.205867, 0.193615), BATCH: (2.287, 1.992, 1.974)}
"""Tables 5.3 and 5.6: seconds of a flush of what is inlined, by run."""

MERGE_S = 13.0
"""Section 6.3: merging the 30,000 files of DuckLake without inlining."""

FILES = {
    SINGLE: (7_249, 21.4, 21_785, 5400.0),
    BATCH: (1_242, 46.4, 3_732, 183.5),
}
"""Table 6.1, after three runs: data files, MB, metadata files, MB."""

FILES_OF = "Iceberg (DuckDB)"
"""The system of table 6.1."""
