"""The keys that ``[storage]`` may have: one that no client takes is told before anything runs.

deltalake passes over a key that it does not know, and what its user meant by it is then missing.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from mrflight.errors import JobFileError
from mrflight.storage import hopsfs, s3
from mrflight.storage.deltalake_options import DELTALAKE_ALONE
from mrflight.storage.scheme import BUCKETS, NAME_NODES, scheme_of

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
_EITHER_WAY = (*_OF_BUCKETS, *_OF_CONNECTIONS)

OBJECT_STORE = ("aws_endpoint_url_s3", *(f"aws_{name}" for name in _EITHER_WAY), *_EITHER_WAY)
"""Of object_store (0.13), which obstore and deltalake have, in capitals as well."""

_KNOWN = (*OBJECT_STORE, *DELTALAKE_ALONE, *hopsfs.VARIABLES)

_ALIKE = 0.75
"""Of `difflib`: below this ``secret`` would be ``user_agent``."""


_KEYS_PAGE = "docs/reference/storage-options.md"


def check_options(options: Iterable[str], paths: Iterable[str], at: str = "storage.") -> None:
    """JobFileError for the first key that the stores of these paths have no use for.

    ``at`` is what leads to it. Keys of one store may stand beside paths of another, and any where
    all paths are on disks. Hadoop's properties, which have dots, are its own to know. Asks no
    store.
    """
    schemes = {scheme_of(path) for path in paths}
    if schemes.isdisjoint(BUCKETS | NAME_NODES):
        return
    for key in options:
        is_property = "." in key and not schemes.isdisjoint(NAME_NODES)
        if is_property or _is_known(key):
            continue
        near = difflib.get_close_matches(key.lower(), _KNOWN, n=1, cutoff=_ALIKE)
        hint = f"did you mean {near[0]!r}? All" if near else "all"
        raise JobFileError(f"{at}{key}: unknown key; {hint} are in {_KEYS_PAGE}")


def _is_known(key: str) -> bool:
    if key.lower() in OBJECT_STORE or key in _KNOWN:
        return True
    return s3.knows_option(key)  # a newer client may have more than are listed here
