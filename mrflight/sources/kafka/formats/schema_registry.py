"""Fetches the schemas of avro messages from a schema registry, as Confluent's protocol says."""

from __future__ import annotations

import base64
import json
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote
from urllib.request import Request, urlopen

from mrflight.config.secret_reference import is_reference, resolve
from mrflight.config.service_uri import ServiceUri
from mrflight.errors import AccessDeniedError, BrokerUnavailableError

_TIMEOUT_S = 10.0
_MAX_BYTES = 16 << 20
_ACCEPTED = "application/vnd.schemaregistry.v1+json, application/json"

_known: dict[tuple[str, int], str] = {}
"""The schemas by the URL of their registry and their number, which never change."""


def fetch_schema(registry: str, number: int, key: str) -> str:
    """Return the text of a schema; each is fetched once in a process.

    ``registry`` is a URL, perhaps with a user and a password, or a reference to one. Raises
    ValueError if the registry has no Avro schema of this number, and BrokerUnavailableError if it
    does not answer.
    """
    found = _known.get((registry, number))
    if found is None:
        found = _known[registry, number] = _fetched(registry, number, key)
    return found


def _fetched(registry: str, number: int, key: str) -> str:
    url = resolve(registry, f"{key}.registry") if is_reference(registry) else registry
    uri = ServiceUri.parse(url)
    shown = uri.shown
    request = Request(f"{shown.rstrip('/')}/schemas/ids/{quote(str(number))}")
    request.add_header("Accept", _ACCEPTED)
    if uri.user or uri.password:
        login = base64.b64encode(f"{uri.user}:{uri.password}".encode()).decode()
        request.add_header("Authorization", f"Basic {login}")
    try:
        with urlopen(request, timeout=_TIMEOUT_S) as answer:
            body = answer.read(_MAX_BYTES)
    except HTTPError as error:
        if error.code == 404:
            raise ValueError(f"the registry {shown} has no schema {number}") from error
        if error.code in (401, 403):
            raise AccessDeniedError(
                f"{key}.registry: {shown} refuses to give schema {number}: {error}; write the user "
                "and the password into the URL, behind env:NAME or file:PATH"
            ) from error
        raise _unavailable(key, shown, error) from error
    except (URLError, OSError) as error:
        raise _unavailable(key, shown, error) from error
    return _schema_in(body, shown, number)


def _schema_in(body: bytes, shown: str, number: int) -> str:
    try:
        answer: Any = json.loads(body)
        text, kind = answer["schema"], answer.get("schemaType", "AVRO")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"the registry {shown} has no schema in its answer: {error}") from error
    if kind != "AVRO" or not isinstance(text, str):
        raise ValueError(f"schema {number} of the registry {shown} is {kind}, and not AVRO")
    if answer.get("references"):
        raise ValueError(f"schema {number} of the registry {shown} refers to others")
    return text


def _unavailable(key: str, shown: str, error: Exception) -> BrokerUnavailableError:
    return BrokerUnavailableError(
        f"{key}.registry: {shown} does not answer: {error}; check that it runs, and the URL"
    )
