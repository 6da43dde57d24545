"""What every sink shares: its interface, the guard and the lease of a commit, a job's own files."""
