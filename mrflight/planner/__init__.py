"""From a job and its inputs to stages, tasks and partition counts, and how they are explained.

Plans are pure: nothing here runs a task or starts a process.
"""
