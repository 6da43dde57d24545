"""A process that has loaded Arrow once and forks the workers and servers of a job."""
