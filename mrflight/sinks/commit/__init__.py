"""The parts of every sink: its interface, the guard and lease of its commit, and its job's files.

How a folder or a Delta table is committed is in `sinks.folder` and `sinks.delta`.
"""
