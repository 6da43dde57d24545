"""The one door to every file system: nothing else imports a storage library."""

from mrflight.storage.location import Location, locate

__all__ = ["Location", "locate"]
