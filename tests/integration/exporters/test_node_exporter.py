"""Do we and Prometheus' own node_exporter say the same of the same ports, in base units?"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from opsk_exporters.network.names import COUNTERS, EXTENDED
from tests.fakes.archives import unpack
from tests.fakes.node_exporter import OTHER_NAMES, PORT, PORT_NAMES, fetch, node_exporter, node_exporter_program
from tests.fakes.sysfs import SysfsTree
from tests.fakes.ttar import extract_ttar

Series = tuple[str, str, str]


@pytest.fixture(scope="module")
def program() -> str:
    found = node_exporter_program()
    if found is None:
        pytest.skip("node_exporter (Debian package prometheus-node-exporter) is not installed")
    return found


def samples(text: str) -> dict[Series, float]:
    """Return samples of InfiniBand by name, device and port."""
    return {
        (sample.name, sample.labels.get("device", ""), sample.labels.get("port", "")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if "_infiniband_" in sample.name
    }


def ours(sysfs: Path) -> dict[Series, float]:
    """Return what ``opsk exporter --once`` says."""
    command = [sys.executable, "-m", "opsk", "exporter", "--once", "--collectors", "infiniband", "--sysfs", str(sysfs)]
    return samples(subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout)


def compare(program: str, sysfs: Path) -> int:
    """Compare every value of node_exporter with ours; return how many there were."""
    mine = ours(sysfs)
    with node_exporter(program, sysfs) as (address, _):
        theirs = samples(fetch(address))
    compared = 0
    for (name, device, port), value in theirs.items():
        short = name.removeprefix("node_infiniband_")
        if short in OTHER_NAMES:
            continue
        assert short in PORT_NAMES, f"node_exporter has a metric that we do not know: {name}"
        assert mine.get((PORT + PORT_NAMES[short], device, port)) == value, (name, device, port)
        compared += 1
    return compared


def test_every_value_of_a_made_node_is_the_same(program: str, tmp_path: Path) -> None:
    tree = SysfsTree(tmp_path / "sys")
    tree.add_hca(0)
    tree.add_hca(1, rate="100 Gb/sec (1X NDR)")
    ailing = tree.add_hca(2, rate="2.5 Gb/sec (1X SDR)")
    tree.write(ailing / "state", "1: DOWN")
    tree.write(ailing / "phys_state", "2: Polling")
    tree.write(ailing / "counters" / "port_rcv_errors", "N/A (no PMA)")
    tree.add_hca(3, rate="200 Gb/sec (4X HDR)", link_layer="Ethernet")
    # Every file of counters has a value of its own, so that two names that are swapped show.
    for place, (folder, name) in enumerate(
        [("counters", name) for name in COUNTERS] + [("counters_ext", name) for name in EXTENDED]
    ):
        tree.write(tree.port("mlx5_1") / folder / name, str(3**20 + 1000 * place))
    # 4 ports x (3 gauges + the 21 counters that the fake writes) - 1 unreadable, and mlx5_1's others.
    assert compare(program, tree.root) >= 4 * 24 - 1 + len(EXTENDED)


@pytest.mark.shared
def test_every_value_of_a_real_h100_node_is_the_same(program: str, shared: Path, tmp_path: Path) -> None:
    unpack(shared / "data" / "real" / "sysfs" / "h100_sys_class_infiniband.tar.gz", tmp_path / "packed")
    (folder,) = (tmp_path / "packed").iterdir()
    (tmp_path / "sys" / "class").mkdir(parents=True)
    folder.rename(tmp_path / "sys" / "class" / "infiniband")
    # 9 ports with 3 gauges and 21 files of counters each.
    assert compare(program, tmp_path / "sys") == 9 * 24


@pytest.mark.shared
def test_every_value_of_node_exporters_own_fixture_is_the_same(program: str, shared: Path, tmp_path: Path) -> None:
    extract_ttar(shared / "data" / "real" / "sysfs" / "node_exporter_sys.ttar", tmp_path, "sys/class/infiniband")
    # 3 ports with 3 gauges each, and the counters of two of them: 16 + 8 and 8 + 8 files of the archive.
    assert compare(program, tmp_path / "sys") == 3 * 3 + 16 + 8 + 8 + 8
