"""Is what tasks wait for read in seconds, and what a kernel does not tell left out?"""

from __future__ import annotations

from pathlib import Path

import pytest

from opsk.telemetry.host.usage import PressureReader
from tests.fakes.ttar_links import extract_with_links


def write(root: Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="ascii")


@pytest.fixture
def node(tmp_path: Path) -> Path:
    for resource in ("cpu", "io", "memory"):
        write(
            tmp_path,
            f"proc/pressure/{resource}",
            "some avg10=0.00 avg60=1.50 avg300=0.1 total=2500000\nfull avg10=0.00 avg60=0.00 avg300=0.0 total=500000\n",
        )
    write(tmp_path, "proc/vmstat", "nr_free_pages 5\noom_kill 3\noom_kill_extra 9\n")
    for number in (0, 1):
        text = "".join(
            f"Node {number} {name}:  {value} kB\n" for name, value in (("MemTotal", 1000), ("MemFree", 400 + number))
        )
        write(tmp_path, f"sys/devices/system/node/node{number}/meminfo", text)
    return tmp_path


def reader(root: Path) -> PressureReader:
    return PressureReader(root / "proc", root / "sys")


def test_microseconds_become_seconds_by_resource_and_share(node: Path) -> None:
    assert reader(node).sample().stalled_s == {
        ("cpu", "some"): 2.5,
        ("io", "some"): 2.5,
        ("io", "full"): 0.5,
        ("memory", "some"): 2.5,
        ("memory", "full"): 0.5,
    }


def test_kills_for_want_of_memory_are_counted(node: Path) -> None:
    assert reader(node).sample().oom_kills == 3


def test_memory_is_told_by_numa_node(node: Path) -> None:
    assert reader(node).sample().numa_bytes == {
        "0": {"size": 1000 * 1024, "free": 400 * 1024},
        "1": {"size": 1000 * 1024, "free": 401 * 1024},
    }


def test_a_kernel_that_tells_nothing_has_nothing(tmp_path: Path) -> None:
    sample = reader(tmp_path).sample()
    assert (sample.stalled_s, sample.oom_kills, sample.numa_bytes) == ({}, None, {})


def test_a_torn_file_is_no_zero(node: Path) -> None:
    write(node, "proc/pressure/io", "some avg10=0.0\n\x00\nfull total=-1\n")
    write(node, "proc/vmstat", "oom_kill\noom_kill x\n")
    sample = reader(node).sample()
    assert ("io", "some") not in sample.stalled_s
    assert ("io", "full") not in sample.stalled_s
    assert sample.oom_kills is None


@pytest.mark.shared
def test_a_recorded_tree_is_read_as_it_says(shared: Path, tmp_path: Path) -> None:
    extract_with_links(shared / "data/real/sysfs/node_exporter_sys.ttar", tmp_path, "sys/devices/system/node")
    found = reader(tmp_path).sample().numa_bytes
    # Read off the tree: meminfo of the NUMA nodes that have one.
    assert found["0"]["size"] == 134_182_340 * 1024
