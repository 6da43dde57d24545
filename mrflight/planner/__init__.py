"""Plans a job: from its spec and its inputs to stages, tasks and numbers of partitions.

Plans are pure, and can be explained: nothing here runs a task or starts a process.
"""
