"""The tasks that a worker runs (map, sample, reduce), and the operators that they consist of.

A task knows nothing about retries, about other tasks, or about the machine that it runs on.
"""
