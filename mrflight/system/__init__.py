"""The operating system: processes, signals, memory, temporary folders, deadlines and retries.

Nothing here knows Arrow, jobs or shuffles.
"""
