"""Commits to a Delta table: append, overwrite, merge, schema evolution and maintenance."""
