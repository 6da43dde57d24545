"""Finds what ``make services`` has put into the cache folder, and says what to do if it has not."""

from __future__ import annotations

from pathlib import Path
from shutil import which

CACHE = Path(__file__).parents[2] / ".services"
MINIO = CACHE / "bin" / "minio"
HDFS_CLASS_PATH = CACHE / "hdfs.classpath"
KAFKA_CLASS_PATH = CACHE / "kafka.classpath"
ICEBERG_CLASS_PATH = CACHE / "iceberg.classpath"
DUCKDB_PYTHON = CACHE / "duckdb" / "bin" / "python"
HOPSFS_PYTHON = CACHE / "hopsfs" / "bin" / "python"
SPARK_PYTHON = CACHE / "spark" / "bin" / "python"
DUCKLAKE_PYTHON = CACHE / "ducklake" / "bin" / "python"
VALIDATORS = CACHE / "validators"


class NotBuiltError(Exception):
    """The message says what to install or to run."""


def minio_program() -> Path:
    """The server's file."""
    if not MINIO.exists():
        _ask_for("MinIO", "Go" if which("go") is None else "")
    return MINIO


def hdfs_class_path() -> str:
    """Return all its jars, which lie in Maven's own cache."""
    return _class_path("HDFS", HDFS_CLASS_PATH)


def kafka_class_path() -> str:
    """Return all jars of Apache Kafka, which lie in Maven's own cache."""
    return _class_path("Kafka", KAFKA_CLASS_PATH)


def iceberg_class_path() -> str:
    """Return all jars of Iceberg's REST catalog."""
    return _class_path("Iceberg's REST catalog", ICEBERG_CLASS_PATH)


def postgres_folder() -> Path:
    """The folder of PostgreSQL's programs, which Debian does not put onto the path."""
    folders = Path("/usr/lib/postgresql").glob("*/bin/initdb")
    found = sorted(folders, key=lambda path: int(path.parts[-3]))
    return found[-1].parent if found else Path(debian_program("initdb", "postgresql")).parent


def hopsfs_python() -> Path:
    """Return the Python of the environment that has mrflight[hopsfs]."""
    if not (CACHE / "hopsfs" / ".installed").exists():
        _ask_for("the environment of mrflight[hopsfs]", "")
    return HOPSFS_PYTHON


def duckdb_python() -> Path:
    """Return the Python of the environment that has DuckDB and its extension for Iceberg."""
    if not (CACHE / "duckdb" / ".installed").exists():
        _ask_for("DuckDB's extension for Iceberg", "")
    return DUCKDB_PYTHON


def spark_python() -> Path:
    """Return the Python of the environment that has PySpark."""
    if which("java") is None:
        _ask_for("PySpark", "Java 17")
    if not (CACHE / "spark" / ".installed").exists():
        _ask_for("PySpark", "")
    return SPARK_PYTHON


def ducklake_python() -> Path:
    """Return the Python of the environment whose DuckDB has the ducklake extension."""
    if not (CACHE / "ducklake" / ".installed").exists():
        _ask_for("the environment of DuckLake", "")
    return DUCKLAKE_PYTHON


def validators() -> Path:
    """Return the environment that validates deploy/, with KubeRay's schema of a RayJob."""
    if not (VALIDATORS / "rayjobs.yaml").exists():
        _ask_for("the validators of deploy/", "Go" if which("go") is None else "")
    return VALIDATORS


def debian_program(name: str, package: str) -> str:
    """Return the path of a program of Debian, which `make services` installs if it may."""
    path = which(name)
    if path is None:
        raise NotBuiltError(f"{name} is not installed: apt-get install {package}, or make services")
    return path


def _class_path(server: str, file: Path) -> str:
    if which("java") is None:
        _ask_for(server, "Java 17 and Maven")
    if not file.exists():
        _ask_for(server, "Maven" if which("mvn") is None else "")
    jars = file.read_text().strip()
    gone = [jar for jar in jars.split(":") if not Path(jar).exists()]
    if gone:
        raise NotBuiltError(f"of {server} {len(gone)} jars are gone: make -B services")
    return jars


def _ask_for(server: str, tools: str) -> None:
    first = f"install {tools}, then " if tools else ""
    raise NotBuiltError(f"{server} is not built: {first}make services")
