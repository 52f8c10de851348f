"""Are RDMA ports read as what they are, and is silence never read as zero?"""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsk.errors import TelemetryError
from opsk.telemetry.network.infiniband import COUNTER_BITS, SysfsInfiniband, parse_guid, parse_rate
from tests.fakes.archives import unpack
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


@pytest.mark.parametrize(("name", "bits"), sorted(COUNTER_BITS.items()))
def test_a_counter_at_the_end_of_its_field_is_saturated(tree: SysfsTree, name: str, bits: int) -> None:
    port = tree.add_hca(0)
    for value, expected in ((2**bits - 2, ()), (2**bits - 1, (f"counters/{name}",)), (2**bits, ())):
        tree.write(port / "counters" / name, str(value))
        assert SysfsInfiniband(tree.root).devices()[0].ports[0].saturated == expected


def test_a_64_bit_counter_is_saturated_at_its_own_end_only(tree: SysfsTree) -> None:
    port = tree.add_hca(0)
    for value, expected in ((2**32 - 1, ()), (2**64 - 1, ("counters/unicast_rcv_packets",))):
        tree.write(port / "counters" / "unicast_rcv_packets", str(value))
        assert SysfsInfiniband(tree.root).devices()[0].ports[0].saturated == expected


def test_a_device_tells_its_guid_and_its_place_in_the_node(tree: SysfsTree) -> None:
    tree.add_hca(0)
    tree.add_pci("mlx5_0", "0000:1a:00.0", numa_node=1)
    device = SysfsInfiniband(tree.root).devices()[0]
    assert (device.node_guid, device.pci, device.numa_node) == ("9439e5fffe000000", "0000:1a:00.0", 1)
    assert device.virtual_function is False
    assert (device.ports[0].port_guid, device.ports[0].gid) == (
        "9439e5fffe000100",
        "fe80:0000:0000:0000:9439:e5ff:fe00:0100",
    )


def test_a_virtual_function_is_one(tree: SysfsTree) -> None:
    tree.add_hca(0)
    tree.add_hca(1)
    tree.add_pci("mlx5_0", "0000:1a:00.0")
    tree.add_pci("mlx5_1", "0000:1a:00.1", physical="0000:1a:00.0", numa_node=-1)
    device = SysfsInfiniband(tree.root).devices()[1]
    assert device.virtual_function is True
    assert device.numa_node is None


def test_a_copy_of_sysfs_tells_the_pci_address_in_uevent(tree: SysfsTree) -> None:
    port = tree.add_hca(0)
    tree.write(port.parent.parent / "device" / "uevent", "DRIVER=mlx5_core\nPCI_SLOT_NAME=0000:1a:00.0")
    assert SysfsInfiniband(tree.root).devices()[0].pci == "0000:1a:00.0"


def test_a_device_off_pci_has_no_function(tree: SysfsTree) -> None:
    tree.add_hca(0)
    device = SysfsInfiniband(tree.root).devices()[0]
    assert (device.pci, device.numa_node, device.virtual_function) == (None, None, None)


@pytest.mark.parametrize("netdev", ["eth0", "bond0"])
def test_a_bonded_port_names_its_bond(tree: SysfsTree, netdev: str) -> None:
    port = tree.add_hca(0, link_layer="Ethernet")
    tree.write(port / "gid_attrs" / "ndevs" / "0", netdev)
    tree.add_bond("bond0", "eth0")
    sample = SysfsInfiniband(tree.root).devices()[0].ports[0]
    assert (sample.netdev, sample.bond) == (netdev, "bond0")
    assert sample.port_guid is None


@pytest.mark.parametrize("netdev", ["..", ".", "../../etc", "eth9", "9" * 4000, "a\0b"])
def test_an_interface_without_a_bond_has_none(tree: SysfsTree, netdev: str) -> None:
    port = tree.add_hca(0, link_layer="Ethernet")
    tree.write(port / "gid_attrs" / "ndevs" / "0", netdev)
    assert SysfsInfiniband(tree.root).devices()[0].ports[0].bond is None


def test_counters_of_the_device_itself_are_read(tree: SysfsTree) -> None:
    port = tree.add_hca(0)
    for name, text in (("cmds_err", "3"), ("lifespan", "10"), ("mmap_err", "N/A")):
        tree.write(port.parent.parent / "hw_counters" / name, text)
    device = SysfsInfiniband(tree.root).devices()[0]
    assert device.hardware == {"cmds_err": 3}
    assert device.unreadable == ("hw_counters/mmap_err",)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("9439:e5ff:fe00:0012", "9439e5fffe000012"),
        ("9439:E5FF:FE00:0012", "9439e5fffe000012"),
        ("0000:0000:0000:0000", None),
        ("9439:e5ff:fe00", None),
        ("x", None),
        ("", None),
        (None, None),
    ],
)
def test_guids_are_read_as_dumps_have_them(text: str | None, expected: str | None) -> None:
    assert parse_guid(text) == expected


@pytest.mark.shared
def test_a_real_h100_node_is_read_whole(shared: Path, tmp_path: Path) -> None:
    unpack(shared / "data" / "real" / "sysfs" / "h100_sys_class_infiniband.tar.gz", tmp_path)
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
    # Its file says 15, which is all that the field of 4 bits can say.
    assert port.saturated == ("counters/excessive_buffer_overrun_errors",)


@pytest.mark.parametrize("text", ["0x" + "f" * 400, "-5", "9" * 4000, "4294967296"])
def test_a_lid_that_no_port_can_have_is_absent_and_named(tree: SysfsTree, text: str) -> None:
    port = tree.add_hca(0)
    tree.write(port / "lid", text)
    (device,) = SysfsInfiniband(tree.root).devices()
    assert device.ports[0].lid is None
    assert "lid" in device.ports[0].unreadable
