"""Which tests run on Ray with ``--all-on-ray``, and why the others do not."""

from __future__ import annotations

RUN = [
    "contract/test_credentials.py",
    "contract/test_iceberg_inputs.py",
    "contract/test_jobs_on_stores.py",
    "contract/test_merge_jobs.py",
    "fault/test_draining_data_server.py",
    "fault/test_iceberg_commits.py",
    "fault/test_unstable_result_types.py",
    "fault/test_damaged_skewed_partition.py",
    "fault/test_lost_skewed_partition.py",
    "fault/test_killed_rewrite.py",
    "fault/test_lost_stage_output.py",
    "fault/test_hanging_store.py",
    "fault/test_early_interrupt.py",
    "fault/test_changed_input.py",
    "fault/test_failing_hdfs.py",
    "fault/test_clean_bad_rows.py",
    "fault/test_clean_orphan_files.py",
    "fault/test_failing_s3.py",
    "fault/test_interrupted_commit.py",
    "fault/test_commit_of_killed_driver.py",
    "fault/test_commit_to_failing_store.py",
    "fault/test_concurrent_commits.py",
    "fault/test_hanging_commit.py",
    "fault/test_end_of_driver.py",
    "fault/test_job_timeout.py",
    "fault/test_matrix.py",
    "fault/test_matrix_damaged_blocks.py",
    "fault/test_matrix_drivers.py",
    "fault/test_matrix_failed_attempts.py",
    "fault/test_matrix_full_disks.py",
    "fault/test_matrix_journals.py",
    "fault/test_matrix_standing_clusters.py",
    "fault/test_rerun_of_all_stages.py",
    "integration/test_bad_input.py",
    "integration/test_column_types.py",
    "integration/test_dataset_jobs.py",
    "integration/test_examples_tpch.py",
    "integration/test_failed_jobs.py",
    "integration/test_job.py",
    "integration/test_job_commits.py",
    "integration/test_job_partitioners.py",
    "integration/test_job_streams.py",
    "integration/test_jobs_against_duckdb.py",
    "integration/test_memory.py",
    "integration/test_direct_jobs.py",
    "integration/test_encoded_columns.py",
    "integration/test_shuffles_of_a_job.py",
    "integration/test_skew.py",
    "integration/test_skewed_joins.py",
    "integration/test_sql_functions.py",
    "integration/test_standing_cluster.py",
    "integration/test_unwritable_outputs.py",
    "integration/test_whole_jobs_model.py",
    "integration/test_wrong_servers.py",
]
"""Files below tests/. A file that is not here runs there as well where pytest is given its name."""

ALWAYS = "is on Ray without the option as well"
FORKED = "Ray's processes are not forked"

PRINTS = "what functions print is in Ray's logs"
WEIGHS = "is about the memory of local processes; those of Ray weigh more"

STREAM = "is about brokers, tables and offsets, and the loop around batches, which are jobs"

LEFT_OUT = {
    "integration/test_fresh_changes.py": STREAM,
    "integration/test_fresh_logs.py": STREAM,
    "integration/test_fresh_reads.py": STREAM,
    "integration/test_fresh_reads_on_clusters.py": STREAM,
    "integration/test_kafka_jobs.py": STREAM,
    "integration/test_log_inputs.py": "is about the servers of a standing cluster",
    "integration/test_secured_cluster.py": "is about the servers of a standing cluster",
    "fault/test_ducklake_commits.py": "ends processes that are not on Ray",
    "contract/test_hopsfs_client.py": "has a Python of its own, without Ray",
    "contract/test_hopsfs_tls.py": "has a Python of its own, without Ray",
    "fault/test_killed_fork_server.py": FORKED,
    "fault/test_hanging_fork_server.py": FORKED,
    "integration/test_tune.py": "predicts and compares jobs whose processes are forked",
    "fault/test_open_ports.py": "looks at the sockets of local processes; Ray has ports of its own",
    "fault/test_suspended_worker.py": (
        "a worker that hangs on Ray is not ended: docs/explanation/faults.md"
    ),
    "fault/test_matrix_transports.py": (
        "takes the place of a unix socket; servers on Ray have ports"
    ),
    "integration/test_job_on_ray.py": ALWAYS,
    "integration/test_page_of_jobs.py": "kills a local server; the page is the same on Ray",
    "integration/test_events.py": "knows the names of local processes; test_job_on_ray.py has one",
    "integration/test_direct_jobs.py::test_it_needs_one_worker_and_no_server": FORKED,
    "integration/test_direct_jobs.py::test_a_worker_that_is_killed_is_replaced": FORKED,
    "integration/test_job_streams.py::test_what_a_map_prints_does_not_reach_the_result": PRINTS,
    "integration/test_job_streams.py::test_what_functions_print_is_for_people": PRINTS,
    "integration/test_memory.py::test_little_memory_changes_nothing_but_the_time": WEIGHS,
    (
        "integration/test_memory.py::test_a_window_in_sql_runs_in_the_least_memory_that_is_accepted"
    ): WEIGHS,
    (
        "integration/test_encoded_columns.py"
        "::test_a_later_stage_has_partitions_for_rows_as_wide_as_they_are_in_memory"
    ): WEIGHS,
    (
        "integration/test_unwritable_outputs.py"
        "::test_a_name_node_that_forbids_it_fails_the_job_at_its_first_attempt"
    ): "its workers have the name of Ray's user",
}
"""Files, or tests of files that run there, with what comes after ``::``."""
