"""What a worker runs: map, sample and reduce tasks, and the operators that they are made of.

A task knows nothing of retries, of other tasks, or of where it runs.
"""
