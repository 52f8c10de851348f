"""Are RDMA ports read as what they are, and is silence never read as zero?"""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsk.errors import TelemetryError
from opsk.telemetry.infiniband import SysfsInfiniband, parse_rate
from tests.fakes.sysfs import SysfsTree


@pytest.fixture
def tree(tmp_path: Path) -> SysfsTree:
    return SysfsTree(tmp_path / "sys")


def test_data_words_become_bytes_and_nothing_else_is_multiplied(tree: SysfsTree) -> None:
    tree.add_hca(2)
    (device,) = SysfsInfiniband(tree.root).devices()
    (port,) = device.ports
    # The fake's HCA 2 counts 3,000 words in, 6,000 out, 30 packets in, 14 ticks; a word has 4 bytes (IBA 16.1.3.5).
    assert port.counters["port_rcv_data"] == 12_000
    assert port.counters["port_xmit_data"] == 24_000
    assert port.counters["port_rcv_packets"] == 30
    assert port.counters["port_xmit_wait"] == 14


def test_a_wide_link_does_not_change_the_size_of_a_word(tree: SysfsTree) -> None:
    tree.add_hca(0, rate="800 Gb/sec (8X NDR)")
    assert SysfsInfiniband(tree.root).devices()[0].ports[0].counters["port_rcv_data"] == 4_000


def test_a_port_tells_state_speed_and_addresses(tree: SysfsTree) -> None:
    tree.add_hca(0)
    device = SysfsInfiniband(tree.root).devices()[0]
    port = device.ports[0]
    assert (device.board_id, device.firmware, device.hca_type) == ("MT_0000000838", "28.41.1000", "MT4129")
    assert (port.state, port.state_name, port.phys_state, port.phys_state_name) == (4, "ACTIVE", 5, "LinkUp")
    assert (port.rate_bytes_per_s, port.speed) == (50e9, "4X NDR")
    assert (port.lid, port.sm_lid, port.link_layer, port.netdev) == (16, 1, "InfiniBand", "ib0")
    # 12 ms in the fake.
    assert port.counter_lifespan_s == 0.012
    assert "lifespan" not in port.hardware
    assert port.unreadable == ()


def test_lid_zero_is_no_lid(tree: SysfsTree) -> None:
    tree.add_hca(0, link_layer="Ethernet")
    port = SysfsInfiniband(tree.root).devices()[0].ports[0]
    assert port.lid is None
    assert port.hardware["np_cnp_sent"] == 1


@pytest.mark.parametrize("text", ["N/A (no PMA)", "", "-1", "1e3", "0x10", "12 13", "٣", "9" * 30, str(2**64)])
def test_what_is_no_counter_value_is_absent_and_named(tree: SysfsTree, text: str) -> None:
    port = tree.add_hca(0)
    tree.write(port / "counters" / "link_downed", text)
    sample = SysfsInfiniband(tree.root).devices()[0].ports[0]
    assert "link_downed" not in sample.counters
    assert sample.unreadable == ("counters/link_downed",)


def test_the_largest_counter_is_read(tree: SysfsTree) -> None:
    port = tree.add_hca(0)
    tree.write(port / "counters" / "port_rcv_packets", str(2**64 - 1))
    assert SysfsInfiniband(tree.root).devices()[0].ports[0].counters["port_rcv_packets"] == 2**64 - 1


def test_a_file_that_fails_to_read_is_absent_and_named(tree: SysfsTree) -> None:
    port = tree.add_hca(0)
    broken = port / "counters" / "symbol_error"
    broken.unlink()
    # read() of a folder fails with EISDIR for everyone, root included: it stands for the kernel's EINVAL.
    broken.mkdir()
    sample = SysfsInfiniband(tree.root).devices()[0].ports[0]
    assert "symbol_error" not in sample.counters
    assert sample.unreadable == ("counters/symbol_error",)


def test_missing_files_and_folders_are_absent_and_no_fault(tree: SysfsTree) -> None:
    port = tree.add_hca(0)
    for name in ("state", "phys_state", "rate", "lid", "sm_lid", "link_layer"):
        (port / name).unlink()
    for path in (port / "hw_counters").iterdir():
        path.unlink()
    (port / "hw_counters").rmdir()
    sample = SysfsInfiniband(tree.root).devices()[0].ports[0]
    assert (sample.state, sample.rate_bytes_per_s, sample.lid, sample.link_layer) == (None, None, None, None)
    assert sample.hardware == {}
    assert sample.counter_lifespan_s is None
    assert sample.unreadable == ()


def test_a_port_without_counters_shows_all_the_same(tree: SysfsTree) -> None:
    tree.write(tree.port("efa_0") / "state", "4: ACTIVE")
    (device,) = SysfsInfiniband(tree.root).devices()
    assert device.ports[0].state == 4
    assert device.ports[0].counters == {}


def test_devices_and_ports_come_in_order(tree: SysfsTree) -> None:
    for index in (3, 1):
        tree.add_hca(index)
    for number in (10, 2):
        tree.write(tree.port("mlx5_1", number) / "state", "1: DOWN")
    devices = SysfsInfiniband(tree.root).devices()
    assert [device.device for device in devices] == ["mlx5_1", "mlx5_3"]
    assert [port.port for port in devices[0].ports] == [1, 2, 10]


def test_devices_are_followed_through_links_as_in_a_real_sysfs(tree: SysfsTree, tmp_path: Path) -> None:
    tree.add_hca(0)
    elsewhere = tmp_path / "devices"
    (tree.root / "class" / "infiniband" / "mlx5_0").rename(elsewhere)
    (tree.root / "class" / "infiniband" / "mlx5_0").symlink_to(elsewhere)
    assert SysfsInfiniband(tree.root).devices()[0].ports[0].lid == 16


def test_a_node_without_rdma_has_no_devices(tmp_path: Path) -> None:
    assert SysfsInfiniband(tmp_path).devices() == ()


def test_a_folder_that_cannot_be_listed_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "class").mkdir()
    # A link to itself fails with ELOOP for everyone, root included: it stands for a sandbox that hides sysfs.
    (tmp_path / "class" / "infiniband").symlink_to(tmp_path / "class" / "infiniband")
    with pytest.raises(TelemetryError, match="infiniband: "):
        SysfsInfiniband(tmp_path).devices()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # Speeds in Gbit/s over 8 bits a byte, by hand.
        ("400 Gb/sec (4X NDR)", (50e9, "4X NDR")),
        ("2.5 Gb/sec (1X SDR)", (312.5e6, "1X SDR")),
        ("10 Gb/sec (4X)", (1.25e9, "4X")),
        ("56 Gb/sec (4X FDR)", (7e9, "4X FDR")),
        ("1600 Gb/sec (8X XDR)", (200e9, "8X XDR")),
        ("25 Gb/sec", (3.125e9, None)),
        ("unknown", None),
        ("", None),
    ],
)
def test_rates_are_read(text: str, expected: tuple[float, str | None] | None) -> None:
    assert parse_rate(text) == expected


@given(st.integers(min_value=1, max_value=10_000))
def test_a_rate_is_an_eighth_of_its_bits(gbit: int) -> None:
    found = parse_rate(f"{gbit} Gb/sec (4X NDR)")
    assert found is not None
    assert found[0] * 8 == pytest.approx(gbit * 1e9, rel=1e-12)


@pytest.mark.shared
def test_a_real_h100_node_is_read_whole(shared: Path, tmp_path: Path) -> None:
    archive = shared / "data" / "real" / "sysfs" / "h100_sys_class_infiniband.tar.gz"
    with tarfile.open(archive) as packed:
        packed.extractall(tmp_path, filter="data")
    (folder,) = tmp_path.iterdir()
    (tmp_path / "sys" / "class").mkdir(parents=True)
    (tmp_path / "sys" / "class" / "infiniband").symlink_to(folder)
    devices = {device.device: device for device in SysfsInfiniband(tmp_path / "sys").devices()}
    # Nine devices in the archive, eight NDR ports and a bond; words read from its files by hand, times 4.
    assert len(devices) == 9
    port = devices["mlx5_0"].ports[0]
    assert port.counters["port_rcv_data"] == 230_539_874_932_483 * 4
    assert port.counters["port_xmit_data"] == 230_442_669_431_839 * 4
    assert (port.rate_bytes_per_s, port.state_name, port.counters["port_rcv_errors"]) == (50e9, "ACTIVE", 14)
    bond = devices["mlx5_bond_0"].ports[0]
    assert (bond.link_layer, bond.rate_bytes_per_s, bond.speed) == ("Ethernet", 25e9, "2X NDR")
    assert all(port.unreadable == () for device in devices.values() for port in device.ports)
