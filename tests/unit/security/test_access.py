"""Who a server takes a caller for, by tokens, certificates' names and JSON web tokens."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

from mrflight.errors import AccessDeniedError, JobFileError
from mrflight.security.access import Access
from mrflight.security.hashed_tokens import access_entry, new_bearer_token
from mrflight.security.job_tokens import write_private
from mrflight.security.principal import Principal, Role
from tests.support.suite.messages import refused

KEYS: dict[str, Any] = {
    "RS256": rsa.generate_private_key(65537, 2048),
    "ES256": ec.generate_private_key(ec.SECP256R1()),
}
OTHER_KEY = ECAlgorithm.to_jwk(ec.generate_private_key(ec.SECP256R1()).public_key(), as_dict=True)
JWT = '[jwt]\njwks = "keys.json"\nissuer = "us"\naudience = "mrflight"\n'
ALICE = '[[principals]]\nname = "alice@*"\nroles = ["reader"]\ncredential = "jwt"\n'
DATA = '[[principals]]\nname = "data-*"\nroles = ["server"]\n'
ROOT = '[[principals]]\nname = "root"\nroles = ["admin"]\ncredential = "jwt"\n'


def access_of(folder: Path, text: str) -> Access:
    write_private(folder / "access.toml", text)
    return Access(folder / "access.toml")


def write_keys(folder: Path) -> None:
    public = {
        "RS256": RSAAlgorithm.to_jwk(KEYS["RS256"].public_key(), as_dict=True),
        "ES256": ECAlgorithm.to_jwk(KEYS["ES256"].public_key(), as_dict=True),
    }
    keys = [{**key, "kid": name, "alg": name} for name, key in public.items()]
    (folder / "keys.json").write_text(json.dumps({"keys": keys}))


def web_token(algorithm: str = "RS256", key: Any = None, **changed: Any) -> str:
    claims = {
        "sub": "alice@example.com",
        "iss": "us",
        "aud": "mrflight",
        "exp": time.time() + 60,
        **changed,
    }
    claims = {name: value for name, value in claims.items() if value is not None}
    header = {"kid": algorithm}
    return jwt.encode(claims, key or KEYS[algorithm], algorithm=algorithm, headers=header)


def test_a_token_is_known_by_its_hash_until_its_file_changes(tmp_path: Path) -> None:
    token = new_bearer_token()
    access = access_of(tmp_path, access_entry("etl", [Role.JOB], token))
    assert token not in (tmp_path / "access.toml").read_text()
    assert access.by_token(token) == Principal("etl", frozenset({Role.JOB}))
    for wrong in ("", token[:-1], token + "0", "ä" * 64, "x" * 100_000):
        with pytest.raises(AccessDeniedError):
            access.by_token(wrong)
    with pytest.raises(AccessDeniedError):
        access.by_certificate("etl")  # whose entry is for the token
    write_private(tmp_path / "new", access_entry("etl", [Role.READER], new_bearer_token()))
    (tmp_path / "new").rename(tmp_path / "access.toml")
    with pytest.raises(AccessDeniedError):
        access.by_token(token)


@pytest.mark.parametrize("damage", ["[[prin", "principals = 3", None])
def test_callers_stay_while_their_file_cannot_be_used(
    tmp_path: Path,
    damage: str | None,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("mrflight.security.access._AGAIN_S", 0.0)
    first, second = new_bearer_token(), new_bearer_token()
    access = access_of(tmp_path, access_entry("etl", [Role.JOB], first))
    path = tmp_path / "access.toml"
    path.unlink()
    if damage is not None:
        write_private(path, damage)
    assert access.by_token(first).name == "etl"
    assert f"the access file {path}" in caplog.text
    write_private(path, access_entry("new", [Role.JOB], second))
    assert access.by_token(second).name == "new"
    path.chmod(0o644)
    caplog.clear()
    assert access.by_token(second).name == "new"
    assert "chmod 600" in caplog.text
    path.chmod(0o600)
    write_private(path, access_entry("etl", [Role.JOB], first))
    with pytest.raises(AccessDeniedError):
        access.by_token(second)


def test_new_keys_of_web_tokens_are_read(tmp_path: Path) -> None:
    (tmp_path / "keys.json").write_text(json.dumps({"keys": [OTHER_KEY]}))
    access = access_of(tmp_path, JWT + ALICE)
    with pytest.raises(AccessDeniedError):
        access.by_token(web_token())
    write_keys(tmp_path)
    assert access.by_token(web_token()).name == "alice@example.com"


def test_the_first_entry_whose_name_fits_a_certificate_counts(tmp_path: Path) -> None:
    entries = [
        ("data-1", "admin"),
        ("data-*", "server"),
        ("clicks__*", "job"),
    ]
    text = "".join(f'[[principals]]\nname = "{n}"\nroles = ["{r}"]\n' for n, r in entries)
    access = access_of(tmp_path, text)
    found = {
        name: access.by_certificate(name).roles for name in ("data-1", "data-2", "clicks__ann")
    }
    assert found == {
        "data-1": {Role.ADMIN},
        "data-2": {Role.SERVER},
        "clicks__ann": {Role.JOB},
    }
    for name in ("", "data", "other__ann", "Data-2"):
        with pytest.raises(AccessDeniedError):
            access.by_certificate(name)


def test_without_a_file_each_certificate_may_do_everything() -> None:
    assert Access(None).by_certificate("any").roles == frozenset(Role)
    with pytest.raises(AccessDeniedError):
        Access(None).by_certificate("")  # which no certificate has
    with pytest.raises(AccessDeniedError):
        Access(None).by_token("any")


@pytest.mark.parametrize("algorithm", sorted(KEYS))
def test_a_web_token_is_its_subject_until_it_expires(
    tmp_path: Path, algorithm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_keys(tmp_path)
    access = access_of(tmp_path, JWT + ALICE)
    token = web_token(algorithm)
    for _ in range(2):
        assert access.by_token(token) == Principal("alice@example.com", frozenset({Role.READER}))
    later = time.time() + 61
    monkeypatch.setattr("mrflight.security.web_tokens.time.time", lambda: later)
    with pytest.raises(AccessDeniedError, match="expired"):
        access.by_token(token)


@pytest.mark.parametrize(
    "make",
    [
        lambda: web_token(exp=time.time() - 60),
        lambda: web_token(exp=None),
        lambda: web_token(sub=None),
        lambda: web_token(sub="mallory@example.org"),
        lambda: web_token(iss="others"),
        lambda: web_token(aud="another service"),
        lambda: web_token("RS256", rsa.generate_private_key(65537, 2048)),
        lambda: web_token(key="a secret that is no key of theirs at all", algorithm="HS256"),
        lambda: jwt.encode({"sub": "alice@example.com"}, None, algorithm="none"),
        lambda: web_token()[:-4] + "AAAA",
        lambda: "a.b.c",
    ],
    ids=[
        *("expired", "no expiry", "no subject", "unknown subject", "issuer", "audience"),
        *("another key", "symmetric", "unsigned", "changed", "garbage"),
    ],
)
def test_other_web_tokens_are_nobodys(tmp_path: Path, make: Callable[[], str]) -> None:
    write_keys(tmp_path)
    access = access_of(tmp_path, JWT + ALICE)
    with pytest.raises(AccessDeniedError):
        access.by_token(make())


def test_a_web_token_is_nobody_with_a_certificate(tmp_path: Path) -> None:
    """And the other way round: names come from different places."""
    write_keys(tmp_path)
    write_private(tmp_path / "token", new_bearer_token())
    of_token = access_entry("etl", [Role.ADMIN], (tmp_path / "token").read_text())
    access = access_of(tmp_path, JWT + DATA + ALICE + ROOT + of_token)
    for subject in ("data-1", "data-*", "etl", "alice", "root@example.com", ""):
        with pytest.raises(AccessDeniedError):
            access.by_token(web_token(sub=subject))
    for name in ("alice@example.com", "root", "etl"):
        with pytest.raises(AccessDeniedError):
            access.by_certificate(name)
    assert access.by_certificate("data-1").roles == {Role.SERVER}
    assert access.by_token(web_token()).roles == {Role.READER}
    assert access.by_token(web_token(sub="root")).roles == {Role.ADMIN}


@pytest.mark.parametrize(
    "entries",
    [
        DATA,
        ALICE.replace("reader", "server"),
        ALICE.replace("alice@*", "?oot").replace("reader", "admin"),
        ALICE.replace('["reader"]', '["reader", "admin"]'),
        ALICE + f'token = "sha256:{"0" * 64}"\n',
    ],
    ids=["none", "servers", "admins", "both", "token"],
)
def test_entries_of_web_tokens_that_say_too_much_or_nothing(tmp_path: Path, entries: str) -> None:
    write_keys(tmp_path)
    write_private(tmp_path / "access.toml", JWT + entries)
    with refused(JobFileError):
        Access(tmp_path / "access.toml")
    write_private(tmp_path / "access.toml", ALICE)
    with pytest.raises(JobFileError, match="need \\[jwt\\]"):
        Access(tmp_path / "access.toml")


def test_a_public_key_is_no_secret_of_a_symmetric_token(tmp_path: Path) -> None:
    """The classic confusion of algorithms."""
    write_keys(tmp_path)
    access = access_of(tmp_path, JWT + ALICE)
    public = json.loads((tmp_path / "keys.json").read_text())["keys"][0]["n"]
    with pytest.raises(AccessDeniedError):
        access.by_token(web_token(key=public, algorithm="HS256"))


@pytest.mark.parametrize(
    ("text", "mode", "words"),
    [
        (DATA, 0o644, "chmod"),
        (DATA, 0o606, "chmod"),
        ("[[principals]]\n", 0o600, "name"),
        (ALICE.replace("principals", "callers"), 0o600, "each of .*principals.* has a name, roles"),
        (ALICE.replace("reader", "king"), 0o600, "king"),
        (ALICE.replace("jwt", "kerberos"), 0o600, "kerberos"),
        (ALICE + 'token = "plain"\n', 0o600, "its hash, which `mrflight certificates token`"),
        (JWT + ALICE, 0o600, "keys.json"),
        ("principals = 3", 0o600, "principals"),
    ],
)
def test_an_access_file_that_cannot_be_used_says_why(
    tmp_path: Path, text: str, mode: int, words: str
) -> None:
    path = tmp_path / "access.toml"
    path.write_text(text)
    os.chmod(path, mode)
    with pytest.raises(JobFileError, match=words):
        Access(path)
