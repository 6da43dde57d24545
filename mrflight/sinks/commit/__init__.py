"""What all sinks share: their interface, the guard and lease of a commit, and the files of a job.

How a folder or a Delta table is committed is in `sinks.folder` and `sinks.delta`.
"""
