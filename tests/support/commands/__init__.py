"""Commands, processes and programs that tests start."""
