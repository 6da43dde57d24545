"""The URI of a catalog or a registry: its parts, and what messages show of it.

A URI of a service often has a user and a password. They may have characters that a URI should
encode, as ``/`` and ``@``, because the libraries that open it allow that.
"""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import parse_qsl, quote, quote_plus, unquote, urlsplit

import msgspec

from mrflight.config.secret_options import HIDDEN, USERINFO, holds_secret
from mrflight.config.secret_reference import is_reference
from mrflight.errors import JobFileError

__all__ = ["ServiceUri", "check_argument", "hide_secrets", "shown_section", "shown_uri"]

_FILES = ("sqlite", "duckdb")
"""The schemes of URIs that have no host, so that what follows is the path of a file."""
_OF_HOSTS = ".-_:[]%"
"""What the address of a host has besides letters and digits."""


class ServiceUri(msgspec.Struct, frozen=True):
    """A URI by its parts."""

    scheme: str
    """In lower case; empty for a text that is no URI."""
    user: str = ""
    password: str = ""
    host: str = ""
    """With its port."""
    path: str = ""
    """With the slash before it."""
    query: str = ""

    @classmethod
    def parse(cls, text: str) -> ServiceUri:
        """Return the parts of a text, which may be wrong: see `is_clear`.

        The user and the password end with the last ``@`` before a ``?``.
        """
        scheme, separator, rest = text.partition("://")
        if not separator or not scheme.replace("+", "").isalnum():
            return cls("")
        scheme = scheme.lower()
        place, _, query = rest.partition("?")
        if scheme in _FILES:
            return cls(scheme, path=place, query=query)
        login, _, place = place.rpartition("@")
        user, _, password = login.partition(":")
        host, slash, path = place.partition("/")
        return cls(scheme, unquote(user), unquote(password), host, slash + path, query)

    @property
    def is_clear(self) -> bool:
        """Whether the parts are unambiguous, so that what is shown as a host is no password."""
        if self.scheme in _FILES:
            return True
        return bool(self.scheme) and "@" not in self.query and _is_host(self.host)

    @property
    def shown(self) -> str:
        """The scheme, the host and the path, as far as they are known."""
        if not self.is_clear:
            return f"{self.scheme}://{HIDDEN}" if self.scheme else HIDDEN
        return f"{self.scheme}://{self.host}{self.path}"

    @property
    def secrets(self) -> tuple[str, ...]:
        """The password, and the values of the query that are secrets by their names.

        References to secrets are none.
        """
        found = [value for name, value in parse_qsl(self.query) if holds_secret(name, value)]
        return tuple(each for each in (self.password, *found) if each and not is_reference(each))

    def __repr__(self) -> str:
        return f"ServiceUri({self.shown!r})"


def shown_uri(text: str | None) -> str:
    """Return what messages show of a URI, or of a reference to one."""
    if not text or is_reference(text):
        return text or ""
    return ServiceUri.parse(text).shown


def check_argument(text: str, option: str) -> None:
    """Raise JobFileError for a URI with a password, because a list of processes shows arguments."""
    uri = ServiceUri.parse(text)
    if uri.secrets or (uri.scheme and not uri.is_clear):
        raise JobFileError(
            f"{option}: a password must not be an argument, because every user of this machine can "
            "read the arguments of a process; write env:NAME, a variable of the environment that "
            "has the URI"
        )


def shown_section(section: msgspec.Struct) -> str:
    """Return the text of a section, in which no URL has a user or a password."""
    values = {name: getattr(section, name) for name in section.__struct_fields__}
    values |= {
        name: shown_uri(values[name]) for name in ("catalog", "registry") if values.get(name)
    }
    fields = ", ".join(f"{name}={value!r}" for name, value in values.items())
    return USERINFO.sub(f"{HIDDEN}@", f"{type(section).__name__}({fields})")


def hide_secrets(text: str, secrets: Iterable[str]) -> str:
    """Return a message without secrets, also as URIs, connection strings and SQL quote them."""
    forms: set[str] = set()
    for secret in secrets:
        escaped = secret.replace("\\", "\\\\").replace("'", "\\'")
        plain = {secret, escaped, quote(secret), quote(secret, safe=""), quote_plus(secret)}
        forms |= plain | {form.replace("'", "''") for form in plain}
    for form in sorted(forms, key=len, reverse=True):
        text = text.replace(form, HIDDEN)
    return text


def _is_host(text: str) -> bool:
    """Return whether this may be a host with its port, or nothing."""
    try:
        urlsplit(f"//{text}").port  # noqa: B018  (it raises)
    except ValueError:
        return False
    return all(letter.isalnum() or letter in _OF_HOSTS for letter in text)
