"""Tests that the error for a missing client of a store says what to install."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.commands.pems import Authority


def error_without(module: str, call: str) -> str:
    """Return the error of a call in a process that cannot import a module."""
    script = f"""
import sys
sys.modules[{module!r}] = None
import mrflight
from datetime import UTC, datetime
from pathlib import Path
from mrflight.errors import JobError
from mrflight.storage import hopsfs, locate
from mrflight.storage.delta import import_deltalake
try:
    {call}
except JobError as error:
    print(f"{{type(error).__name__}}: {{error}}", end="")
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("module", "call", "message"),
    [
        (
            "datafusion",
            "mrflight.col('a') > 1",
            "JobFileError: col needs DataFusion, which is not installed: pip install "
            "'mrflight[sql]'",
        ),
        (
            "deltalake",
            "import_deltalake()",
            "OutputError: Delta tables need deltalake, which is not installed: pip install "
            "'mrflight[delta]'",
        ),
        (
            "deltalake",
            "locate('hdfs://node:8020/t', Path('/')).info()",
            "JobError: hdfs://node:8020/ is read through deltalake, which is not installed: pip "
            "install 'mrflight[delta]'",
        ),
        (
            "obstore",
            "locate('s3://bucket/t', Path('/')).read_bytes()",
            "JobError: s3://bucket needs obstore, which is not installed: pip install "
            "'mrflight[s3]'",
        ),
        (
            "deltalake",
            "hopsfs.prepare({}, ['hopsfs://node/t'], Path('/'))",
            "JobFileError: hopsfs://node/t needs hops-deltalake, which is not installed: pip "
            "install 'mrflight[hopsfs]'",
        ),
        (
            "polars",
            "mrflight.read('nothing').to_polars()",
            "JobError: to_polars needs polars, which is not installed: pip install polars; or take "
            "the pyarrow.Table of collect()",
        ),
    ],
)
def test_what_needs_a_package_says_what_to_install(module: str, call: str, message: str) -> None:
    assert error_without(module, call) == message


def test_a_check_of_certificates_needs_cryptography(tmp_path: Path) -> None:
    pems = Authority().write_pems(tmp_path / "pems", "demo__ann")
    call = f"hopsfs.client_environment({{'pem_dir': {str(pems)!r}}}, Path('/'), datetime.now(UTC))"
    assert error_without("cryptography", call) == (
        "JobFileError: storage.pem_dir: checking the certificates needs cryptography, which is not "
        "installed: pip install 'mrflight[hopsfs]'"
    )
