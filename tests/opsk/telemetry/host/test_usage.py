"""Is a node read as its procfs says?"""

from __future__ import annotations

from pathlib import Path

import pytest

from opsk.errors import TelemetryError
from opsk.telemetry.host.usage import HostReader
from tests.fakes.procfs import TICKS_PER_S, write_procfs


@pytest.fixture(autouse=True)
def own_procfs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the next test psutil's own place of procfs back."""
    monkeypatch.setattr("psutil.PROCFS_PATH", "/proc")


def test_cpu_ticks_become_seconds_by_mode(tmp_path: Path) -> None:
    sample = HostReader(write_procfs(tmp_path)).sample()
    # 1100, 4400 and 80 ticks in the fake's "cpu" line; the 100 of "guest" are in "user" already.
    assert sample.cpu_s["user"] == 1100 / TICKS_PER_S
    assert sample.cpu_s["idle"] == 4400 / TICKS_PER_S
    assert sample.cpu_s["steal"] == 80 / TICKS_PER_S
    assert "guest" not in sample.cpu_s
    assert sample.cpus == 2


def test_memory_is_in_bytes(tmp_path: Path) -> None:
    sample = HostReader(write_procfs(tmp_path)).sample()
    # The kernel's kB are KiB: 1,000,000 kB and 49,000 kB in the fake.
    assert sample.memory_bytes["total"] == 1_000_000 * 1024
    assert sample.memory_bytes["available"] == 600_000 * 1024
    assert sample.swap_bytes == {"total": 50_000 * 1024, "free": 49_000 * 1024}


def test_memory_that_the_kernel_does_not_tell_is_absent(tmp_path: Path) -> None:
    root = write_procfs(tmp_path)
    (root / "meminfo").write_text("MemTotal: 10 kB\nMemFree: 5 kB\n", encoding="ascii")
    sample = HostReader(root).sample()
    assert sample.memory_bytes == {"total": 10 * 1024, "free": 5 * 1024}
    assert sample.swap_bytes == {}


def test_load_and_boot_time_come_from_the_given_procfs(tmp_path: Path) -> None:
    sample = HostReader(write_procfs(tmp_path)).sample()
    assert sample.load == (0.5, 1.25, 2.0)
    assert sample.boot_unix_s == 1_700_000_000


def test_interfaces_of_containers_are_left_out(tmp_path: Path) -> None:
    sample = HostReader(write_procfs(tmp_path)).sample()
    assert [interface.interface for interface in sample.interfaces] == ["eth0", "lo"]
    eth0 = sample.interfaces[0]
    assert (eth0.received_bytes, eth0.transmitted_bytes) == (1_000_000, 5_000_000)
    assert (eth0.received_packets, eth0.transmitted_packets) == (2000, 6000)
    assert (eth0.receive_errors, eth0.receive_drops, eth0.transmit_errors, eth0.transmit_drops) == (3, 4, 7, 8)


def test_only_whole_disks_are_counted_in_bytes_and_seconds(tmp_path: Path) -> None:
    sample = HostReader(write_procfs(tmp_path)).sample()
    assert [disk.disk for disk in sample.disks] == ["nvme0n1", "sda"]
    nvme = sample.disks[0]
    # diskstats count 512-byte sectors and milliseconds (Linux, Documentation/admin-guide/iostats.rst).
    assert (nvme.read_bytes, nvme.written_bytes) == (2000 * 512, 4000 * 512)
    assert (nvme.reads, nvme.writes) == (100, 200)
    assert (nvme.read_s, nvme.write_s, nvme.busy_s) == (1.5, 2.5, 3.0)


def test_a_folder_that_is_no_procfs_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(TelemetryError, match=str(tmp_path)):
        HostReader(tmp_path).sample()


TORN = ["x y\nz\nrubbish: 1\n", "nan\n", "9" * 5000, "1 2 3 4 5 6 7 8 9 10\n"]


@pytest.mark.parametrize("text", TORN)
@pytest.mark.parametrize(
    ("name", "lost"), [("stat", {"cpu", "cpus", "boot"}), ("net/dev", {"network"}), ("diskstats", {"disk"})]
)
def test_a_torn_file_costs_what_it_tells(tmp_path: Path, name: str, lost: set[str], text: str) -> None:
    root = write_procfs(tmp_path)
    (root / name).write_text(text, encoding="ascii")
    sample = HostReader(root).sample()
    assert set(sample.unreadable) <= lost
    assert (sample.cpu_s == {}) == (name == "stat")
    assert (sample.interfaces == ()) == (name == "net/dev")
    assert (sample.disks == ()) == (name == "diskstats")
    assert sample.memory_bytes["total"] == 1_000_000 * 1024


@pytest.mark.parametrize("name", ["net/dev", "diskstats", "meminfo"])
def test_numbers_that_no_kernel_writes_are_no_values(tmp_path: Path, name: str) -> None:
    root = write_procfs(tmp_path)
    path = root / name
    path.write_text(path.read_text(encoding="ascii").replace("4000", "9" * 400), encoding="ascii")
    sample = HostReader(root).sample()
    assert all(value < 2**80 for value in sample.memory_bytes.values())
    assert sample.cpu_s["user"] == 1100 / TICKS_PER_S


def test_torn_files_altogether_are_one_clear_error(tmp_path: Path) -> None:
    root = write_procfs(tmp_path)
    for name in ("stat", "net/dev", "diskstats", "meminfo"):
        (root / name).write_text("rubbish\n", encoding="ascii")
    with pytest.raises(TelemetryError, match=str(tmp_path)):
        HostReader(root).sample()


def test_this_machine_can_be_read() -> None:
    sample = HostReader().sample()
    assert sample.unreadable == ()
    assert sample.cpus is not None
    assert sample.cpus >= 1
    assert sample.cpu_s["user"] > 0
    assert 0 < sample.memory_bytes["available"] <= sample.memory_bytes["total"]
