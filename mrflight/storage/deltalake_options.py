"""Options that deltalake takes, and obstore would refuse."""

from __future__ import annotations

DELTALAKE_ALONE = (
    *("max_retries", "retry_timeout", "max_concurrency", "concurrency_limit"),
    *("backoff_config.init_backoff", "backoff_config.max_backoff", "backoff_config.base"),
    *("aws_s3_locking_provider", "aws_s3_allow_unsafe_rename"),
    *("AWS_S3_LOCKING_PROVIDER", "AWS_S3_ALLOW_UNSAFE_RENAME"),
)
"""How it asks for a table's log, and commits (1.6); in no other letters.

Not those that say who asks, or whom it trusts (``aws_iam_role_arn``, ``certificate_path``): a
table's files would be asked for without.
"""
