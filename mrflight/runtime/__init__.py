"""Where a job runs: its workers and its own servers, on this machine or on Ray.

Nothing here decides what runs, or runs it again.
"""
