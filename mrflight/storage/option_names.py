"""The names of the options in ``[storage]``, and the schemes of the stores that take them."""

from __future__ import annotations

from urllib.parse import urlsplit

BUCKETS = frozenset({"s3", "s3a"})
NAME_NODES = frozenset({"hdfs", "hopsfs"})

ENDPOINT, ALLOW_HTTP = "aws_endpoint_url", "aws_allow_http"
CONDITIONAL_PUT = "aws_conditional_put"

_ALIASES = {
    **dict.fromkeys(("aws_endpoint_url_s3", "aws_endpoint", "endpoint_url", "endpoint"), ENDPOINT),
    **dict.fromkeys(("aws_default_region", "default_region", "region"), "aws_region"),
    "allow_http": ALLOW_HTTP,
    "conditional_put": CONDITIONAL_PUT,
}
"""Other names that object_store and AWS's own tools have for the same option."""

DELTALAKE_ONLY = (
    *("max_retries", "retry_timeout", "max_concurrency", "concurrency_limit"),
    *("backoff_config.init_backoff", "backoff_config.max_backoff", "backoff_config.base"),
    *("aws_s3_locking_provider", "aws_s3_allow_unsafe_rename"),
    *("AWS_S3_LOCKING_PROVIDER", "AWS_S3_ALLOW_UNSAFE_RENAME"),
)
"""Options that deltalake (1.6) takes for reading a log and for commits, and obstore refuses.

They are known in these letters only. Options for credentials and trust (``aws_iam_role_arn``,
``certificate_path``) are not listed: obstore would read the table's files without them.
"""

_OF_BUCKETS = (
    *("access_key_id", "secret_access_key", "session_token", "token", "skip_signature"),
    *("region", "default_region", "endpoint", "endpoint_url", "virtual_hosted_style_request"),
    *("web_identity_token_file", "role_arn", "role_session_name", "endpoint_url_sts"),
    *("container_credentials_relative_uri", "container_credentials_full_uri"),
    *("container_authorization_token_file", "metadata_endpoint", "imdsv1_fallback"),
    *("server_side_encryption", "sse_kms_key_id", "sse_bucket_key_enabled"),
    *("sse_customer_key_base64", "checksum_algorithm", "unsigned_payload", "conditional_put"),
    *("copy_if_not_exists", "disable_tagging", "disable_bulk_delete", "s3_express"),
    "request_payer",
)
_OF_CONNECTIONS = (
    *("allow_http", "allow_invalid_certificates", "timeout", "connect_timeout", "read_timeout"),
    *("proxy_url", "proxy_ca_certificate", "proxy_excludes", "user_agent", "default_content_type"),
    *("pool_idle_timeout", "pool_max_idle_per_host", "randomize_addresses", "http1_only"),
    *("http2_only", "http2_keep_alive_interval", "http2_keep_alive_timeout"),
    *("http2_keep_alive_while_idle", "http2_max_frame_size"),
)
_WITH_OR_WITHOUT_AWS = (*_OF_BUCKETS, *_OF_CONNECTIONS)

OBJECT_STORE = (
    "aws_endpoint_url_s3",
    *(f"aws_{name}" for name in _WITH_OR_WITHOUT_AWS),
    *_WITH_OR_WITHOUT_AWS,
)
"""The options of object_store (0.13), in upper or lower case: obstore and deltalake have them."""


def scheme_of(path: str) -> str:
    """Return the scheme of a path in lower case, as `locate` takes it; empty if it has none."""
    return urlsplit(path[: path.find(":") + 1]).scheme


def canonical(name: str) -> str:
    """Return the one name of a bucket's option that has several, or of its variable."""
    return _ALIASES.get(name.lower(), name.lower())
