"""Pure functions over Arrow columns: hashing, partitioning, sorting, types, and SQL by DataFusion.

The modules of this room open no files and no sockets.
"""
