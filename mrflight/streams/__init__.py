"""Streams: micro-batches of a topic that are committed to a table exactly once.

A batch is a job: its input are ranges of offsets, its stages are those of the job file, and its
commit moves the offsets on that the table has recorded. This room decides what a batch is, and
runs one after the other with the same processes.
"""
