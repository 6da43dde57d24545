"""Tests that the documentation matches the code: keys, options, names, files and links."""

from __future__ import annotations

import importlib.util
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

import msgspec
import pytest

import mrflight
from mrflight import driver, errors
from mrflight.config import spec, text_options
from mrflight.config.cluster_section import ClusterSection, TlsSection
from mrflight.config.input_spec import InputSpec
from mrflight.config.job_file import decode_job
from mrflight.config.output_section import OutputSection
from mrflight.config.reduce_section import ReduceSection
from mrflight.config.stream_section import StreamSection
from mrflight.events.kinds import AnyEvent, Event, IncidentKind
from mrflight.frontend import cli
from mrflight.frontend.completion_words import words_of
from mrflight.result import Finding, StageProfile
from mrflight.security.access import AccessFile
from mrflight.shuffle.wire.protocol import DataAction, MetadataAction
from mrflight.system.early_interrupt import EXIT_INTERRUPTED
from tests.support.suite.cases import cases

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
REFERENCE = DOCS / "reference"

SECTIONS = {
    "[job]": spec.JobSection,
    "[inputs.NAME]": InputSpec,
    "[inputs.NAME.csv]": text_options.CsvOptions,
    "[inputs.NAME.json]": text_options.JsonOptions,
    "[shuffle]": spec.ShuffleSection,
    "[reduce]": ReduceSection,
    "[output]": OutputSection,
    "[stream]": StreamSection,
    "[stages.NAME]": spec.StageSpec,
    "[cluster]": ClusterSection,
    "[cluster.tls]": TlsSection,
}
CODE = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"(?<!!)\[[^\]]+\]\(([^)\s]+)\)|!\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
PATH = re.compile(r"(?<![\w/])(?:mrflight|servers|kernel|tests|examples|experiments|docs)/[\w./-]+")


def read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def rows(text: str) -> Iterator[list[str]]:
    """Yield the cells of each row of the tables in a page."""
    for line in text.splitlines():
        if line.startswith("|"):
            yield [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip("|"))]


def keys_in(section: str) -> dict[str, list[str]]:
    """Return the table rows of a section of the job file's reference, by key."""
    text = read(REFERENCE / "job-file.md")
    (body,) = re.findall(
        rf"^## `{re.escape(section)}`\n(.*?)(?=^## )", text, re.MULTILINE | re.DOTALL
    )
    return {key: cells for cells in rows(body) for key in CODE.findall(cells[0])}


def test_every_key_of_the_job_file_is_in_its_reference() -> None:
    with cases() as case:
        for section in SECTIONS:
            with case(section):
                assert set(keys_in(section)) == keys_of_job_files(section)


def keys_of_job_files(section: str) -> set[str]:
    fields = {field.name for field in msgspec.structs.fields(SECTIONS[section])}
    if section == "[inputs.NAME]":
        fields -= {"csv", "json"}  # they have sections of their own
        fields -= {"frame", "batch"}  # only jobs in Python, and batches of streams, have them
    if section == "[output]":
        fields.remove("unstored")  # only the changes of a database have it
    if section == "[cluster]":
        fields.remove("tls")
    return fields


def test_the_reference_has_the_defaults_and_choices_of_the_job_file() -> None:
    with cases() as case:
        for section, kind in SECTIONS.items():
            documented = keys_in(section)
            for field in msgspec.structs.fields(kind):
                with case(f"{section} {field.name}"):
                    cells = documented.get(field.name, [])
                    if (shown := _shown_default(field)) is not None:
                        assert cells[2] == shown
                    choices = [each for each in _choices(field.type) if each is not None]
                    assert [each for each in choices if str(each) not in " ".join(cells)] == []


def _shown_default(field: msgspec.structs.FieldInfo) -> str | None:
    """Return what the reference says of a default; None if any text will do."""
    default = field.default
    if isinstance(default, bool | int | str):
        mark = "'" if default == '"' else '"'  # as TOML needs it
        return f"`{mark}{default}{mark}`" if isinstance(default, str) else f"`{default}`".lower()
    return "required" if field.required and field.type is str else None


def _choices(kind: Any) -> list[Any]:
    if not get_args(kind):
        return []
    if all(isinstance(each, str) for each in get_args(kind)):
        return list(get_args(kind))
    return [choice for each in get_args(kind) for choice in _choices(each)]


EXPLAIN = ["explain", "explain_input", "explain_stage"]


def commands() -> list[str]:
    """Return all commands that do something, such as ``serve data``."""
    names = {" ".join(words.command) for words in words_of(cli.command_parser())} - {""}
    return sorted(
        name
        for name in names
        if name.startswith("ingest") or not any(other.startswith(f"{name} ") for other in names)
    )


def test_every_command_and_its_options_are_in_the_reference(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with cases() as case:
        for command in commands():
            with case(command):
                with pytest.raises(SystemExit):
                    cli.main([*command.split(), "--help"])
                options = set(re.findall(r"--[a-z][a-z-]+", capsys.readouterr().out)) - {"--help"}
                assert {each for each in options if each not in _command_section(command)} == set()


def _command_section(command: str) -> str:
    text = read(REFERENCE / "command-line.md")
    (found,) = re.findall(
        rf"^## mrflight {command}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL
    )
    return str(found)


def test_every_public_name_is_in_the_reference() -> None:
    from mrflight import on_ray

    text = read(REFERENCE / "python-api.md")
    shown = set(re.findall(r"^::: (\S+)", text, re.MULTILINE))
    assert {f"mrflight.{name}" for name in mrflight.__all__} <= shown
    assert set(on_ray.__all__) <= {name.rpartition(".")[2] for name in shown}


def test_every_exit_code_is_in_the_reference() -> None:
    codes = {0, EXIT_INTERRUPTED, *(getattr(driver, n) for n in vars(driver) if n[:5] == "EXIT_")}
    documented = {cells[0] for cells in rows(read(REFERENCE / "errors.md"))}
    assert {str(code) for code in codes} <= documented


def test_every_key_of_the_result_is_in_the_reference() -> None:
    text = read(REFERENCE / "job-file.md").partition("## The result")[2]
    fields = {field.name for field in msgspec.structs.fields(mrflight.JobResult)}
    assert fields <= {key for cells in rows(text) for key in CODE.findall(cells[0])}


def test_every_kind_and_field_of_a_profile_is_in_the_reference() -> None:
    text = read(REFERENCE / "job-file.md").partition("### Where the time went")[2]
    documented = {key for cells in rows(text) for key in CODE.findall(cells[0])}
    for kind in (StageProfile, Finding):
        assert {field.name for field in msgspec.structs.fields(kind)} <= documented


def test_every_field_of_an_event_is_in_the_reference() -> None:
    sections = read(REFERENCE / "events.md").split("\n### ")
    kinds: tuple[type[Event], ...] = get_args(AnyEvent)
    with cases() as case:
        for kind in kinds:
            with case(kind.__name__):
                tag = kind.__struct_config__.tag
                section = next(part for part in sections if f"`{tag}`" in part[:60])
                fields = {field.encode_name for field in msgspec.structs.fields(kind)} - {"at"}
                assert fields <= set(CODE.findall(section))


def test_every_kind_of_incident_is_in_the_reference() -> None:
    documented = {cells[0].strip("`") for cells in rows(read(REFERENCE / "events.md"))}
    assert set(get_args(IncidentKind)) <= documented


def test_files_that_pages_name_exist() -> None:
    generated = ("examples/clicks/out", "examples/tpch/data", "examples/tpch/out")
    with cases() as case:
        for page in [*sorted(DOCS.rglob("*.md")), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]:
            with case(page.relative_to(ROOT)):
                named = {path for code in CODE.findall(read(page)) for path in PATH.findall(code)}
                looked_up = [path for path in named if not path.startswith(generated)]
                missing = [path for path in looked_up if not (ROOT / path).exists()]
                assert [path for path in missing if not (ROOT / f"{path}.py").exists()] == []


def test_tests_that_the_page_on_security_names_exist() -> None:
    sources = "".join(read(path) for path in (ROOT / "tests").rglob("test_*.py"))
    named = {code for code in CODE.findall(read(DOCS / "security.md")) if code.startswith("test_")}
    assert named
    assert [name for name in sorted(named) if f"def {name}(" not in sources] == []


def test_targets_of_relative_links_exist() -> None:
    """`make docs` checks the links inside docs/, with their anchors."""
    with cases() as case:
        for page in _pages_outside_of_the_site():
            with case(page.relative_to(ROOT)):
                text = FENCE.sub("", read(page))
                links = [first or second for first, second in LINK.findall(text)]
                targets = [link.partition("#")[0] for link in links if "://" not in link]
                missing = [each for each in targets if each and not (page.parent / each).exists()]
                assert missing == []


def _pages_outside_of_the_site() -> Iterator[Path]:
    for pattern in ("*.md", "examples/**/*.md", "experiments/**/*.md"):
        for path in sorted(ROOT.glob(pattern)):
            if not {".work", "out", "data"} & set(path.relative_to(ROOT).parts):
                yield path


@pytest.fixture
def drawings() -> ModuleType:
    found = importlib.util.spec_from_file_location("drawings", DOCS / "drawings.py")
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def test_the_committed_drawings_are_up_to_date(
    drawings: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drawings, "ASSETS", tmp_path)
    drawings.draw_all()
    drawn = {path.name: read(path) for path in tmp_path.iterdir()}
    assert drawn == {path.name: read(path) for path in (DOCS / "assets").glob("*.svg")}


def test_the_drawing_shows_every_room(drawings: ModuleType) -> None:
    rooms = {path.parent.name for path in ROOT.glob("mrflight/*/__init__.py")}
    assert {name for name, *_ in drawings.ROOMS} == rooms


def test_every_page_of_the_docs_is_in_the_menu() -> None:
    menu = re.findall(r": ([\w/-]+\.md)$", read(ROOT / "mkdocs.yml"), re.MULTILINE)
    assert sorted(menu) == sorted(str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md"))


def test_every_action_of_the_servers_is_in_the_wire_contract() -> None:
    text = read(REFERENCE / "wire-contract.md")
    actions = {action.value for kind in (MetadataAction, DataAction) for action in kind}
    assert {action for action in actions if f"`{action}`" not in text} == set()


def test_errors_renamed_in_the_changelog_keep_their_old_names() -> None:
    text = read(ROOT / "CHANGELOG.md")
    (entry,) = re.findall(r"^- Renamed errors: (.*?)\n-", text, re.MULTILINE | re.DOTALL)
    renamed = dict(re.findall(r"`(\w+)`\s+is\s+`(\w+)`", entry))
    assert len(renamed) >= 5
    for old, new in renamed.items():
        with pytest.warns(DeprecationWarning, match=f"{old} is now {new}"):
            assert getattr(errors, old) is getattr(errors, new)


def test_every_method_of_a_dataset_is_in_its_guide() -> None:
    text = read(DOCS / "how-to/python-jobs.md")
    methods = [
        name
        for name in dir(mrflight.Dataset)
        if not name.startswith("_")
        and not (getattr(mrflight.Dataset, name).__doc__ or "").startswith("Deprecated")
    ]
    assert [name for name in methods if not re.search(rf"\b{name}\b[(`]", text)] == []


def blocks(language: str) -> Iterator[tuple[str, str]]:
    """Yield the code blocks in a language on all pages, each with the page and line it is at."""
    fence = re.compile(rf"^```{language}\b[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
    for page in [*sorted(DOCS.rglob("*.md")), ROOT / "README.md"]:
        text = read(page)
        for found in fence.finditer(text):
            line = text.count("\n", 0, found.start()) + 1
            yield f"{page.relative_to(ROOT)}:{line}", found[1]


MINIMAL = {
    "job": {"name": "job"},
    "inputs": {"visits": {"path": "visits.csv"}},
    "output": {"table": "out"},
}


def test_the_job_files_of_all_pages_are_valid() -> None:
    with cases() as case:
        for place, code in blocks("toml"):
            with case(place):
                document = tomllib.loads(code)
                if "principals" in document:
                    msgspec.convert(document, AccessFile)
                else:
                    names = MINIMAL.keys() | document.keys()
                    decode_job({n: MINIMAL.get(n, {}) | document.get(n, {}) for n in names})


def test_the_programs_of_all_pages_compile() -> None:
    with cases() as case:
        for place, code in blocks("python"):
            with case(place):
                compile(code, place, "exec")


def test_the_options_of_commands_on_all_pages_exist() -> None:
    """Look up the options of each ``mrflight`` command in a code block in the reference."""
    command = re.compile(rf"\bmrflight ({'|'.join(reversed(commands()))}) ?")
    for page in DOCS.rglob("*.md"):
        for code in FENCE.findall(read(page)):
            for line in code.replace("\\\n", " ").splitlines():
                if found := command.search(line):
                    options = re.findall(r"--[a-z][a-z-]+", line[found.end() :])
                    known = _command_section(found[1]) + _command_section("serve metadata")
                    assert [each for each in options if each not in known] == [], (page, line)


def test_every_label_of_a_plan_is_in_its_guide() -> None:
    text = read(DOCS / "how-to/read-a-plan.md").replace("`input NAME`", "`input`")
    planner = "".join(read(ROOT / f"mrflight/planner/{name}.py") for name in EXPLAIN)
    labels = set(re.findall(r'(?:yield |\[)\(?f?"\s*([a-z ]+?)(?: \{name\})?", ', planner))
    assert len(labels) > 20
    assert {label for label in labels if label.strip() and f"`{label}`" not in text} == set()


QUOTED = {
    "how-to/hopsfs.md": ["is already committed", "cannot be read"],
    "how-to/maintain-tables.md": ["nothing to do"],
    "how-to/merge.md": [" read, ", " changed"],
    "how-to/tune-memory.md": ["is too little for"],
    "reference/errors.md": ["in the commit"],
    "reference/storage-options.md": ["unknown key; ", "did you mean"],
}
"""Parts of messages that pages quote. Another test runs the tutorial and compares its output."""


def test_messages_that_pages_quote_are_in_the_code() -> None:
    code = "".join(read(path) for path in (ROOT / "mrflight").rglob("*.py"))
    with cases() as case:
        for page, quoted in QUOTED.items():
            for words in quoted:
                with case(f"{page}: {words}"):
                    assert words in read(DOCS / page)
                    assert words in code
