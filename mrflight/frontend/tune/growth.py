"""How what a job makes grows with its input, from a smaller and a larger sample."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from mrflight.frontend.tune.trial import Run, Setting


def whole_shuffle(runs: Sequence[Run], base: Setting, whole_bytes: int) -> int:
    """Return what the whole input shuffles, in proportion to the growth between the samples."""
    return round(_grow(runs, base, whole_bytes, lambda run: run.bytes_shuffled))


def result_growth(runs: Sequence[Run], base: Setting) -> float | None:
    """Return the power of the input that the rows of the result grow with, between two samples.

    1 if they grow in proportion, and 0 if they do not grow; None if there are no two sizes.
    """
    smaller, larger = _ends(runs, base)
    sizes = [run.trial.amount.sampled_bytes for run in (smaller, larger)]
    if sizes[0] == sizes[1] or not (smaller.rows_out and larger.rows_out):
        return None
    return math.log(larger.rows_out / smaller.rows_out) / math.log(sizes[1] / sizes[0])


def _grow(
    runs: Sequence[Run], base: Setting, whole_bytes: int, measure: Callable[[Run], int]
) -> float:
    """Return a measure of the whole input on the line through those of two samples."""
    smaller, larger = _ends(runs, base)
    sizes = [run.trial.amount.sampled_bytes for run in (smaller, larger)]
    if sizes[0] == sizes[1]:
        return measure(larger) * whole_bytes / max(1, sizes[1])
    slope = (measure(larger) - measure(smaller)) / (sizes[1] - sizes[0])
    return measure(larger) + max(0.0, slope) * (whole_bytes - sizes[1])


def _ends(runs: Sequence[Run], base: Setting) -> tuple[Run, Run]:
    """Return a run of the smallest sample, and one of the largest, with the job's settings."""
    plain = [run for run in runs if run.trial.setting == base and run.error is None]
    in_order = sorted(plain, key=lambda run: run.trial.amount.sampled_bytes)
    return in_order[0], in_order[-1]
