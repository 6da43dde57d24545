"""Pure functions over Arrow columns: hashing, placing, sorting, types, and SQL by DataFusion.

Nothing here opens a file or a socket.
"""
