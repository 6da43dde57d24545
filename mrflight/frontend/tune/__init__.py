"""``mrflight tune``: runs a job on a sample with other settings, and recommends some of them.

What to try, the model of the time and the recommendation are pure functions of the runs; only
`command`, `trial_process` and `job_file_edit` have effects.
"""
