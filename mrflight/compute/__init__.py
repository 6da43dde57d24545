"""Pure functions over Arrow columns: hashing, partitioning, sorting, types, and SQL by DataFusion.

Nothing here opens a file or a socket.
"""
