"""Free memory is read from files like those of the kernel, for a machine and its containers."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mrflight.system.free_memory import free_memory

MIB = 2**20
GIB = 2**30

V1_UNLIMITED = 0x7FFFFFFFFFFFF000
"""The value of version 1 if no limit is set."""


class Machine:
    """Folders ``proc`` and ``sys`` of a machine with 16 GiB free."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._write("proc/meminfo", f"MemTotal: 1 kB\nMemAvailable:   {16 * GIB // 1024} kB\n")

    def runs_in(self, *lines: str) -> None:
        """Set what the kernel reports about the groups of this process."""
        self._write("proc/self/cgroup", "".join(f"{line}\n" for line in lines))

    def v2(self, group: str, limit: int | str, used: int = 0, idle: int = 0) -> None:
        folder = f"sys/fs/cgroup/{group}"
        self._write(f"{folder}/memory.max", f"{limit}\n")
        self._write(f"{folder}/memory.current", f"{used}\n")
        self._write(f"{folder}/memory.stat", f"anon 7\ninactive_file {idle}\nactive_file 9\n")

    def v1(self, group: str, limit: int, used: int = 0, idle: int = 0) -> None:
        folder = f"sys/fs/cgroup/memory/{group}"
        self._write(f"{folder}/memory.limit_in_bytes", f"{limit}\n")
        self._write(f"{folder}/memory.usage_in_bytes", f"{used}\n")
        stat = f"cache 7\ninactive_file 1\ntotal_inactive_file {idle}\ntotal_cache 9\n"
        self._write(f"{folder}/memory.stat", stat)

    def _write(self, path: str, text: str) -> None:
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_without_groups_the_memory_of_the_machine_is_free(machine: Machine) -> None:
    assert free_memory(machine.root) == 16 * GIB
    machine.runs_in("0::/")
    assert free_memory(machine.root) == 16 * GIB


def test_a_container_may_use_the_rest_of_its_limit_and_idle_pages(machine: Machine) -> None:
    machine.runs_in("0::/")
    machine.v2("", 4 * GIB, used=GIB, idle=200 * MIB)
    assert free_memory(machine.root) == 3 * GIB + 200 * MIB


def test_a_limit_above_the_memory_of_the_machine_is_ignored(machine: Machine) -> None:
    machine.v2("", 64 * GIB, used=GIB)
    assert free_memory(machine.root) == 16 * GIB


def test_the_word_max_is_no_limit(machine: Machine) -> None:
    machine.runs_in("0::/job")
    machine.v2("", "max", used=GIB)
    machine.v2("job", "max", used=GIB)
    assert free_memory(machine.root) == 16 * GIB


@pytest.mark.parametrize(
    ("outer", "middle", "inner", "free"),
    [
        ("max", "max", 3 * GIB, 2 * GIB),
        ("max", 3 * GIB, "max", 2 * GIB),
        (3 * GIB, "max", "max", 2 * GIB),
        (9 * GIB, 5 * GIB, 7 * GIB, 4 * GIB),
        (9 * GIB, 7 * GIB, 5 * GIB, 4 * GIB),
        (5 * GIB, 7 * GIB, 9 * GIB, 4 * GIB),
    ],
)
def test_of_nested_groups_the_one_with_the_least_left_counts(
    machine: Machine, outer: int | str, middle: int | str, inner: int | str, free: int
) -> None:
    machine.runs_in("0::/system.slice/job.scope")
    for group, limit in (("", outer), ("system.slice", middle), ("system.slice/job.scope", inner)):
        machine.v2(group, limit, used=GIB)
    assert free_memory(machine.root) == free


def test_memory_that_other_groups_use_of_an_outer_limit_is_not_free(machine: Machine) -> None:
    machine.runs_in("0::/pod/main")
    machine.v2("pod", 8 * GIB, used=7 * GIB)
    machine.v2("pod/main", 4 * GIB, used=GIB)
    machine.v2("pod/other", 100 * MIB, used=100 * MIB)
    assert free_memory(machine.root) == GIB


def test_groups_of_version_1(machine: Machine) -> None:
    machine.runs_in("3:cpu,cpuacct:/elsewhere", "2:memory:/docker/1", "1:name=systemd:/", "0::/")
    machine.v1("", V1_UNLIMITED, used=5 * GIB)
    machine.v1("elsewhere", MIB)
    machine.v1("docker", 8 * GIB, used=5 * GIB, idle=MIB)
    assert free_memory(machine.root) == 3 * GIB + MIB
    machine.v1("docker/1", 4 * GIB, used=2 * GIB, idle=2 * MIB)
    assert free_memory(machine.root) == 2 * GIB + 2 * MIB


def test_version_1_without_a_limit(machine: Machine) -> None:
    machine.runs_in("2:memory:/")
    machine.v1("", V1_UNLIMITED, used=5 * GIB)
    assert free_memory(machine.root) == 16 * GIB


def test_controllers_that_share_a_line(machine: Machine) -> None:
    machine.runs_in("2:cpu,memory:/job")
    machine.v1("job", 2 * GIB)
    assert free_memory(machine.root) == 2 * GIB


@pytest.mark.parametrize("version", [1, 2])
def test_a_container_that_sees_the_name_of_its_group_on_the_host(
    machine: Machine, version: int
) -> None:
    """Its own group is mounted as the root group."""
    machine.runs_in("4:memory:/docker/0c47", "0::/docker/0c47")
    if version == 1:
        machine.v1("", 2 * GIB, used=GIB)
    else:
        machine.v2("", 2 * GIB, used=GIB)
    assert free_memory(machine.root) == GIB


def test_both_versions_at_once(machine: Machine) -> None:
    """One version manages memory, and the other is mounted for other controllers."""
    machine.runs_in("4:memory:/job", "0::/job")
    (machine.root / "sys/fs/cgroup/job").mkdir(parents=True)
    machine.v1("job", 3 * GIB)
    assert free_memory(machine.root) == 3 * GIB


def test_a_group_over_its_limit_has_nothing_free(machine: Machine) -> None:
    machine.v2("", GIB, used=2 * GIB)
    assert free_memory(machine.root) == 0


def test_without_linux_half_of_the_machine_is_free(tmp_path: Path) -> None:
    assert 0 < free_memory(tmp_path / "nothing") < 2**50


def test_this_machine() -> None:
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert 0 < free_memory() <= physical
