"""``mrflight doctor``: what a machine, a job file and a cluster lack, and what to do about it."""
