"""A request that S3 takes from its owner: none of the clients of the tests sets a policy."""

from __future__ import annotations

import hashlib
import hmac
from datetime import UTC, datetime
from http.client import HTTPConnection

from tests.services.reserved_port import LOOPBACK
from tests.support.suite.waiting import hang_s

_HEADERS = "host;x-amz-content-sha256;x-amz-date"


def put_signed(
    port: int, path: str, query: str, body: bytes, user: str, password: str
) -> tuple[int, bytes]:
    """PUT of ``body``: the status, and the answer. Signature version 4, of "AWS Signature Process".

    ``path`` and ``query`` are as the standard wants them: encoded, the query ``name=value``.
    """
    now = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    host, digest = f"{LOOPBACK}:{port}", hashlib.sha256(body).hexdigest()
    signed_headers = f"host:{host}\nx-amz-content-sha256:{digest}\nx-amz-date:{now}\n"
    request = "\n".join(["PUT", path, query, signed_headers, _HEADERS, digest])
    scope = f"{now[:8]}/us-east-1/s3/aws4_request"
    hashed = hashlib.sha256(request.encode()).hexdigest()
    key = f"AWS4{password}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    to_sign = f"AWS4-HMAC-SHA256\n{now}\n{scope}\n{hashed}"
    signature = hmac.digest(key, to_sign.encode(), "sha256").hex()
    headers = {
        "x-amz-content-sha256": digest,
        "x-amz-date": now,
        "Authorization": f"AWS4-HMAC-SHA256 Credential={user}/{scope}, "
        f"SignedHeaders={_HEADERS}, Signature={signature}",
    }
    connection = HTTPConnection(LOOPBACK, port, timeout=hang_s())
    try:
        connection.request("PUT", f"{path}?{query}", body, headers)
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()
