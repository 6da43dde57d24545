"""The shuffle in programs on Ray: servers as actors, and conversion from and to Ray Data.

A `mrflight.Shuffle` can be passed to tasks like any other value. `from_dataset` and `to_dataset`
need ``mrflight[ray-data]``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

try:
    from mrflight.runtime.ray.serving import serving
except ModuleNotFoundError as error:
    if error.name != "ray":
        raise
    raise ImportError(
        "mrflight.on_ray needs Ray, which is not installed: pip install 'mrflight[ray]'"
    ) from None

if TYPE_CHECKING:
    from mrflight.runtime.ray.datasets import from_dataset, to_dataset

__all__ = ["from_dataset", "serving", "to_dataset"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'mrflight.on_ray' has no attribute {name!r}")
    from mrflight.runtime.ray import datasets  # Ray Data takes a second to load

    return getattr(datasets, name)
