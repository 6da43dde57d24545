"""Chooses the place where a job runs."""

from __future__ import annotations

from contextlib import ExitStack

from mrflight.runtime.job_runtime import JobPlace, Surroundings


def open_place(stack: ExitStack, around: Surroundings) -> JobPlace:
    """Start what the job is to run on; its servers may be ready only later."""
    if around.spec.cluster.executor == "ray":
        from mrflight.runtime.ray.start import open_ray

        return open_ray(stack, around)
    from mrflight.runtime.local.start import open_local

    return open_local(stack, around)
