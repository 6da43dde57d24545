"""The one door to every file system."""

from mrflight.storage.location import Location, disk_of, locate

__all__ = ["Location", "disk_of", "locate"]
