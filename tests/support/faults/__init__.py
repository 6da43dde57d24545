"""What is done to a job, a process, a disk or a connection."""
