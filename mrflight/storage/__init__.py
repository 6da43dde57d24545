"""Access to files on disks, in S3, HDFS and HopsFS, and to deltalake. No formats of rows."""

from mrflight.storage.location import Location, locate

__all__ = ["Location", "locate"]
