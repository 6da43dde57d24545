"""What is shown of the URI of a catalog, however it is written, and what of it is a secret."""

from __future__ import annotations

import pytest

from mrflight.config.input_spec import InputSpec
from mrflight.config.overrides import parse_override
from mrflight.config.service_uri import ServiceUri, check_argument, hide_secrets, shown_uri
from mrflight.errors import JobFileError
from tests.support.suite.cases import cases
from tests.support.suite.messages import refused

NEEDLE = "s3cr3tword"

# The URI, what is shown of it, and its secrets.
URIS: list[tuple[str, str, tuple[str, ...]]] = [
    ("postgresql://db/lake", "postgresql://db/lake", ()),
    ("postgresql://ann@db:5432/lake", "postgresql://db:5432/lake", ()),
    (f"postgresql://ann:{NEEDLE}@db/lake", "postgresql://db/lake", (NEEDLE,)),
    (f"postgresql://ann:a/{NEEDLE}@db/lake", "postgresql://db/lake", (f"a/{NEEDLE}",)),
    (f"postgresql://ann:a%2F{NEEDLE}@db/lake", "postgresql://db/lake", (f"a/{NEEDLE}",)),
    (f"postgresql://ann:a@{NEEDLE}@db/lake", "postgresql://db/lake", (f"a@{NEEDLE}",)),
    (f"postgresql://ann:a/b@c:{NEEDLE}@db/x", "postgresql://db/x", (f"a/b@c:{NEEDLE}",)),
    (f"postgresql://ann:#{NEEDLE}@db/lake", "postgresql://db/lake", (f"#{NEEDLE}",)),
    (f"postgresql://db/lake?user=ann&password={NEEDLE}", "postgresql://db/lake", (NEEDLE,)),
    (f"postgresql:///lake?host=/run&sslpassword={NEEDLE}", "postgresql:///lake", (NEEDLE,)),
    (f"postgresql://[::1]:1/x?password=%27{NEEDLE}", "postgresql://[::1]:1/x", (f"'{NEEDLE}",)),
    ("postgresql://ann:env:PASSWORD@db/lake", "postgresql://db/lake", ()),
    # It is not certain where the host of these begins.
    (f"postgresql://ann:a?{NEEDLE}@db/lake", "postgresql://...", ()),
    (f"postgresql://ann:1?a={NEEDLE}@db/lake", "postgresql://...", ()),
    (f"postgresql://ann:{NEEDLE}/lake", "postgresql://...", ()),
    (f"postgresql://db/lake?user=a@b&password={NEEDLE}", "postgresql://...", (NEEDLE,)),
    (f"http://{NEEDLE} /x", "http://...", ()),
    (f"host=db password={NEEDLE}", "...", ()),
    (f"postgresql:ann:{NEEDLE}@db", "...", ()),
    (f"{NEEDLE}@x y://db", "...", ()),
    ("sqlite:///a@b/cat.db?timeout=1", "sqlite:///a@b/cat.db", ()),
    ("duckdb:////data/lake.db", "duckdb:////data/lake.db", ()),
    (f"https://:{NEEDLE}@host/iceberg", "https://host/iceberg", (NEEDLE,)),
    (f"https://host/iceberg?token={NEEDLE}", "https://host/iceberg", (NEEDLE,)),
]


def test_a_uri_is_shown_as_its_scheme_host_and_path() -> None:
    with cases() as case:
        for text, shown, secrets in URIS:
            with case(text):
                uri = ServiceUri.parse(text)
                assert (uri.shown, uri.secrets) == (shown, secrets)
                assert shown_uri(text) == shown
                assert NEEDLE not in repr(uri)
                section = repr(InputSpec(path="t", catalog=text, registry=text))
                assert NEEDLE not in section
                assert section.count(shown) >= 2
    assert shown_uri("env:CATALOG") == "env:CATALOG"


def test_a_password_is_hidden_however_it_is_quoted() -> None:
    password = f"it's a/\\{NEEDLE}"
    for quoted in (
        password,
        password.replace("'", "''"),
        password.replace("\\", "\\\\").replace("'", "\\'"),
        password.replace("\\", "\\\\").replace("'", "\\''"),
        "it%27s%20a%2F%5Cs3cr3tword",
        "it%27s+a%2F%5Cs3cr3tword",
    ):
        assert hide_secrets(f"at 'password={quoted}': refused", [password, NEEDLE[1:]]) == (
            "at 'password=...': refused"
        )


def test_a_password_is_no_argument() -> None:
    with cases() as case:
        for text, _, secrets in URIS:
            with case(text):
                is_clear = ServiceUri.parse(text).is_clear
                if secrets or (not is_clear and "://" in text and " " not in text):
                    for given in (f"output.catalog={text}", f'output={{catalog = "{text}"}}'):
                        with pytest.raises(JobFileError) as caught:
                            parse_override(given)
                        assert NEEDLE not in str(caught.value)
                elif is_clear:
                    check_argument(text, "--catalog")
                    assert parse_override(f"output.catalog={text}")[1] == text
    with refused(JobFileError):
        check_argument(f"postgresql://ann:{NEEDLE}@db/lake", "--catalog")
