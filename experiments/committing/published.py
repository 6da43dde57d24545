"""Figures published in IOStack D4.3 (2018), tables 3.3b and 3.6c."""

from __future__ import annotations

KINDS = ("HEAD", "PUT", "COPY", "DELETE", "GET", "LIST")

ONE_OBJECT = {
    "Hadoop-Swift": (25, 7, 3, 8, 0, 5),
    "S3a": (71, 5, 2, 4, 0, 35),
    "Stocator": (4, 3, 0, 0, 0, 1),
}
"""Table 3.3b: the requests of an output of one object, by the kinds above. Its GET of a container
is a listing."""

RATIOS = {
    "Hadoop-Swift": (11.51, 9.18),
    "S3a": (33.74, 24.93),
    "Hadoop-Swift, v2": (7.72, 6.55),
    "S3a, v2": (21.15, 16.18),
    "S3a, v2, fast upload": (21.15, 16.18),
    "Stocator": (1.0, 1.0),
}
"""Table 3.6c: requests relative to Stocator's, for Teragen and Copy, which write 46.5 GB."""
