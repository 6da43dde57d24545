"""What the user said, parsed and checked: the job file, settings and references to functions.

Nothing here reads data or starts a process.
"""
