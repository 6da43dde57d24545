"""The one door to every file system."""

from mrflight.storage.location import Location, locate

__all__ = ["Location", "locate"]
