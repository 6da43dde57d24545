"""``mrflight certificates``: a small authority, certificates and tokens, to try a cluster with."""

from __future__ import annotations

import argparse
from pathlib import Path

from mrflight import driver
from mrflight.errors import JobFileError, MrflightError
from mrflight.security.principal import Role
from mrflight.system.command_line import Command, CommandParser, quantity
from mrflight.system.standard_streams import print_answer, say

_FOLDER = Path("certificates")
_AUTHORITY = "mrflight-trial"
_CA, _CA_KEY = "ca.pem", "ca.key"
_MAX_DAYS = 36_500


def _parse_days(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or not 0 < int(text[:9]) <= _MAX_DAYS:
        raise ValueError(f"{text[:40]!r} is not a number of days from 1 to {_MAX_DAYS:,}")
    return int(text)


def _add_days(parser: argparse.ArgumentParser, default: int) -> None:
    parser.add_argument(
        "--days",
        type=quantity(_parse_days),
        default=default,
        metavar="N",
        help=f"how long it is valid; default {default}",
    )


def _add_folder(parser: argparse.ArgumentParser, what: str) -> None:
    parser.add_argument(
        "--folder",
        type=Path,
        default=_FOLDER,
        metavar="DIR",
        help=f"{what}; default {_FOLDER}, in the current folder",
    )


def _add_init(parser: argparse.ArgumentParser) -> None:
    _add_folder(parser, "folder for ca.pem and ca.key, created if it is missing")
    _add_days(parser, 365)


def _add_issue(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "name", metavar="NAME", help="who it is for: a server, a job, a person; and its file's name"
    )
    parser.add_argument(
        "--host",
        action="append",
        default=[],
        metavar="HOST",
        help="for a server: a host name or IP address at which clients reach it; may be repeated",
    )
    _add_folder(parser, "folder with ca.pem and ca.key, to which NAME.pem and NAME.key are added")
    _add_days(parser, 90)


def _add_token(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="who it is for: a job, a person, a server")
    parser.add_argument(
        "--role",
        action="append",
        required=True,
        choices=[role.value for role in Role],
        help="what its owner may do; may be repeated",
    )
    parser.add_argument(
        "--access",
        type=Path,
        required=True,
        metavar="FILE",
        help="access file of the servers, to which it is added; created if it is missing",
    )


_INIT = Command(
    "init",
    "make an authority, which signs the certificates of a cluster",
    "Make a certificate authority for a trial: DIR/ca.pem, which all servers and clients are "
    "given, and DIR/ca.key, which signs certificates and must stay secret. Nothing is "
    "overwritten.",
    ("%(prog)s --folder certificates --days 30",),
    _add_init,
)
_ISSUE = Command(
    "issue",
    "issue a certificate for a server or a client",
    "Issue a certificate by the authority of DIR: DIR/NAME.pem and DIR/NAME.key, which only its "
    "owner may read. It serves a server, which is reached at its hosts, and a client, whom servers "
    "then know as NAME. Nothing is overwritten.",
    (
        "%(prog)s data-1 --host data-1.example.com --host 10.0.0.11",
        "%(prog)s clicks-job",
    ),
    _add_issue,
)
_TOKEN = Command(
    "token",
    "make a token for a caller of the servers",
    "Make a random token, add its owner to the access file of the servers, which holds only the "
    "token's hash, and print the token. It is shown this once.",
    (
        "%(prog)s anna --role reader --role admin --access access.toml",
        "(umask 077; %(prog)s clicks-job --role job --access access.toml > clicks-job.token)",
    ),
    _add_token,
)


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    steps = parser.add_subparsers(
        dest="step", required=True, title="commands", metavar="COMMAND", parser_class=CommandParser
    )
    for command, do in ((_INIT, _init), (_ISSUE, _issue), (_TOKEN, _token)):
        command.add_to(steps).set_defaults(do_step=do)


COMMAND = Command(
    "certificates",
    "make certificates and tokens, to try a cluster with TLS",
    "Make a small certificate authority, certificates for the servers and clients of a cluster, "
    "and tokens for callers: enough for a trial. See the page on security for what to use instead.",
    (
        "%(prog)s init",
        "%(prog)s issue data-1 --host 10.0.0.11",
        "%(prog)s token clicks-job --role job --access access.toml",
    ),
    _add_arguments,
)


def run(options: argparse.Namespace) -> int:
    """Do one of the steps; return the exit code."""
    try:
        code: int = options.do_step(options)
    except MrflightError as error:
        return driver.report_error(error)
    return code


def _init(options: argparse.Namespace) -> int:
    from mrflight.security.authority import expires, new_authority

    made = new_authority(_AUTHORITY, options.days)
    folder: Path = options.folder
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise JobFileError(f"--folder {folder}: it cannot be made: {error.strerror}") from error
    _write(folder / _CA_KEY, made.key_pem, folder / _CA, made.certificate_pem)
    say(
        f"{folder / _CA}: give it to all servers and clients\n"
        f"{folder / _CA_KEY}: keep it secret, it signs certificates\n"
        f"valid until {expires(made.certificate_pem):%Y-%m-%d}\n"
    )
    return 0


def _issue(options: argparse.Namespace) -> int:
    from mrflight.security.authority import Authority, expires, issue

    folder: Path = options.folder
    authority = Authority(_read(folder / _CA), _read(folder / _CA_KEY))
    made = issue(authority, options.name, options.host, days=options.days)
    certificate, key = folder / f"{options.name}.pem", folder / f"{options.name}.key"
    _write(key, made.key_pem, certificate, made.certificate_pem)
    hosts = f"a server at {', '.join(options.host)}, and " if options.host else ""
    say(
        f"{certificate} and {key}: for {hosts}a client that servers know as {options.name}\n"
        f"valid until {expires(made.certificate_pem):%Y-%m-%d}\n"
    )
    return 0


def _token(options: argparse.Namespace) -> int:
    from mrflight.security.new_token import add_token

    token = add_token(options.access, options.name, [Role(role) for role in options.role])
    roles = ", ".join(dict.fromkeys(options.role))
    code = print_answer(token)
    say(f"{options.access}: {options.name} is added ({roles}); the token is not kept anywhere\n")
    return code


def _write(key: Path, key_pem: bytes, certificate: Path, certificate_pem: bytes) -> None:
    from mrflight.system.private_file import PRIVATE, PUBLIC, write_new_files

    try:
        write_new_files({key: (key_pem, PRIVATE), certificate: (certificate_pem, PUBLIC)})
    except FileExistsError as error:
        raise JobFileError(
            f"{error.filename} exists, and is not overwritten; remove it, or choose another name "
            "or --folder"
        ) from error
    except OSError as error:
        raise JobFileError(f"{key} cannot be written: {error.strerror}") from error


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise JobFileError(
            f"{path} cannot be read ({error.strerror}); make an authority first: mrflight "
            "certificates init"
        ) from error
