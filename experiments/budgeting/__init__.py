"""The budget of a job: its core-seconds by stage, and what each stage takes alone."""
