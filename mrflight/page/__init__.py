"""The live page of a job or a cluster, its report in one file, and metrics for Prometheus."""
