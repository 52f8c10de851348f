"""Do the metrics of RDMA ports say what the port says, where it is cabled to, and what they cannot say?"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path

import pytest

from opsk.telemetry.network.infiniband import CongestionMeter, SysfsInfiniband
from opsk.telemetry.network.rails_file import PortPlace, RailsFile, write_rails
from opsk_exporters.network.infiniband import InfinibandCollector, make
from opsk_exporters.network.names import (
    BNXT_RE,
    COUNTERS,
    EFA,
    EFA_COMMANDS,
    EXTENDED,
    HARDWARE,
    HFI1,
    IRDMA,
    MLX4,
    MLX5,
    QUEUES,
    REPRESENTORS,
    RXE,
    TRAFFIC,
    MetricName,
)
from tests.fakes.sysfs import SysfsTree

Shown = dict[tuple[str, str], float]


@pytest.fixture
def tree(tmp_path: Path) -> SysfsTree:
    return SysfsTree(tmp_path / "sys")


def shown(collector: InfinibandCollector) -> Shown:
    """Return samples by name and device."""
    return {
        (sample.name.removeprefix("opsk_infiniband_"), sample.labels.get("device", "")): sample.value
        for metric in collector.collect()
        for sample in metric.samples
    }


def labels(collector: InfinibandCollector, name: str) -> list[dict[str, str]]:
    """Return the labels of each sample of a metric."""
    return [sample.labels for metric in collector.collect() for sample in metric.samples if sample.name == name]


def empty_port(tree: SysfsTree, device: str) -> Path:
    port = tree.port(device)
    tree.write(port / "state", "4: ACTIVE")
    return port


DRIVERS = {
    "mlx5": MLX5 | QUEUES,
    "representors": REPRESENTORS,
    "mlx4": MLX4,
    "bnxt_re": {name: metric for name, metric in BNXT_RE.items() if name != "np_cnp_pkts"},
    "efa": EFA | EFA_COMMANDS | TRAFFIC,
    "irdma": {name: metric for name, metric in IRDMA.items() if not name.startswith(("iw", "tcp"))},
    "i40iw": {name: metric for name, metric in IRDMA.items() if name.startswith(("iw", "tcp", "ip"))},
    "hfi1": HFI1,
    "rxe": RXE,
}


@pytest.mark.parametrize("driver", sorted(DRIVERS))
def test_every_counter_of_a_driver_has_a_series_of_its_own(tree: SysfsTree, driver: str) -> None:
    names = DRIVERS[driver]
    port = empty_port(tree, "dev0")
    for value, name in enumerate(names, 1):
        tree.write(port / "hw_counters" / name, str(value))
    found = shown(make(tree.root))
    for value, (name, metric) in enumerate(names.items(), 1):
        ending = "" if metric.kind == "gauge" else "_total"
        assert found[f"port_{metric.what}{ending}", "dev0"] == value, name
    assert found["port_unknown_files", "dev0"] == 0


def test_names_follow_the_rules() -> None:
    metrics: Iterable[MetricName] = (*COUNTERS.values(), *EXTENDED.values(), *HARDWARE.values())
    meant: dict[str, MetricName] = {}
    for metric in metrics:
        assert metric.what.replace("_", "").isalnum()
        assert metric.what == metric.what.lower()
        assert metric.help_text.endswith(".")
        assert not metric.what.endswith("_total")
        # One name, one meaning: two files may share a metric, two meanings may not.
        assert meant.setdefault(metric.what, metric) == metric


def test_a_file_that_nobody_has_explained_is_counted_and_named_once(
    tree: SysfsTree, caplog: pytest.LogCaptureFixture
) -> None:
    port = tree.add_hca(0)
    tree.write(port / "hw_counters" / "flux_capacitor", "88")
    tree.write(port / "counters" / "flux", "1")
    collector = make(tree.root)
    with caplog.at_level(logging.INFO, logger="opsk.exporter"):
        found, _ = shown(collector), shown(collector)
    assert found["port_unknown_files", "mlx5_0"] == 2
    assert not any("flux" in name for name, _ in found)
    assert [record.getMessage() for record in caplog.records] == [
        "counters without a known meaning: flux, flux_capacitor"
    ]


def test_two_files_of_one_meaning_make_one_series(tree: SysfsTree) -> None:
    port = empty_port(tree, "irdma0")
    tree.write(port / "hw_counters" / "InRdmaReads", "5")
    tree.write(port / "hw_counters" / "iwInRdmaReads", "6")
    names = [sample.name for metric in make(tree.root).collect() for sample in metric.samples]
    assert names.count("opsk_infiniband_port_received_read_requests_total") == 1


def test_counters_of_a_device_are_the_devices(tree: SysfsTree) -> None:
    port = empty_port(tree, "rdmap0s31")
    tree.write(port.parent.parent / "hw_counters" / "cmds_err", "3")
    assert shown(make(tree.root))["device_failed_commands_total", "rdmap0s31"] == 3


def test_a_saturated_counter_is_counted_and_named(tree: SysfsTree) -> None:
    port = tree.add_hca(0)
    tree.write(port / "counters" / "port_xmit_wait", str(2**32 - 1))
    tree.write(port / "counters" / "link_downed", "255")
    tree.add_hca(1)
    collector = make(tree.root)
    found = shown(collector)
    assert found["port_saturated_counters", "mlx5_0"] == 2
    assert found["port_saturated_counters", "mlx5_1"] == 0
    assert sorted(
        (each["device"], each["counter"]) for each in labels(collector, "opsk_infiniband_port_saturated")
    ) == [("mlx5_0", "link_downed"), ("mlx5_0", "port_xmit_wait")]


def test_congestion_is_shown_from_the_second_scrape_on(tree: SysfsTree) -> None:
    port = tree.add_hca(0)
    tree.add_hca(1, link_layer="Ethernet")
    now = iter(range(0, 1000, 15))
    collector = InfinibandCollector(SysfsInfiniband(tree.root), meter=CongestionMeter(clock=lambda: float(next(now))))
    name = "port_congestion_ratio"
    assert (name, "mlx5_0") not in shown(collector)
    # The fake begins at 2,000 words and 0 ticks: 750 ticks against 250 words of 4 bytes.
    tree.write(port / "counters" / "port_xmit_wait", "750")
    tree.write(port / "counters" / "port_xmit_data", "2250")
    found = shown(collector)
    assert found[name, "mlx5_0"] == 0.75
    assert (name, "mlx5_1") not in found
    assert found["port_transmit_wait_ticks_total", "mlx5_0"] == 750


def test_a_port_says_where_the_rails_file_cables_it(tree: SysfsTree, tmp_path: Path) -> None:
    for index in range(3):
        tree.add_hca(index)
    path = tmp_path / "rails.json"
    place = PortPlace(guid="9439e5fffe000001", port=1, rail=3, leaf="leaf-3", switch="f" * 16, switch_port=7)
    # The second of them is known by the GUID of its port only.
    by_port = PortPlace(guid="9439e5fffe000102", port=1, rail=4, role="storage")
    write_rails(path, [place, by_port], source="", generated="")
    collector = InfinibandCollector(SysfsInfiniband(tree.root), rails=RailsFile(path))
    found = {each["device"]: each for each in labels(collector, "opsk_infiniband_port_info")}
    keys = ("rail", "leaf", "switch", "switch_port", "role")
    assert [found["mlx5_1"][key] for key in keys] == ["3", "leaf-3", "f" * 16, "7", ""]
    assert [found["mlx5_2"][key] for key in keys] == ["4", "", "", "", "storage"]
    assert [found["mlx5_0"][key] for key in keys] == [""] * 5
    numbers = shown(collector)
    assert numbers["rails_file_ports", ""] == 2
    assert numbers["rails_file_damaged", ""] == 0
    assert numbers["rails_file_modified_timestamp_seconds", ""] == path.stat().st_mtime


def test_no_rails_file_is_no_fault(tree: SysfsTree, tmp_path: Path) -> None:
    tree.add_hca(0)
    found = shown(make(tree.root, rails_file=tmp_path / "none.json"))
    assert not any(name.startswith("rails_file") for name, _ in found)
    assert found["port_info", "mlx5_0"] == 1


def test_a_damaged_rails_file_shows_and_takes_nothing_else_away(tree: SysfsTree, tmp_path: Path) -> None:
    tree.add_hca(0)
    (tmp_path / "rails.json").write_text("hello", encoding="utf-8")
    found = shown(make(tree.root, rails_file=tmp_path / "rails.json"))
    assert found["rails_file_damaged", ""] == 1
    assert found["port_received_bytes_total", "mlx5_0"] == 4000


@pytest.mark.parametrize(("physical", "function"), [(None, "physical"), ("0000:1a:00.0", "virtual")])
def test_a_device_says_which_function_it_is(tree: SysfsTree, physical: str | None, function: str) -> None:
    tree.add_hca(0)
    tree.add_pci("mlx5_0", "0000:1a:00.1", physical=physical, numa_node=1)
    (found,) = labels(make(tree.root), "opsk_infiniband_device_info")
    assert (found["function"], found["pci"], found["numa_node"]) == (function, "0000:1a:00.1", "1")


def test_a_roce_port_names_its_interface_bond_and_address(tree: SysfsTree) -> None:
    tree.add_hca(0, link_layer="Ethernet")
    tree.add_bond("bond0", "eth0")
    (found,) = labels(make(tree.root), "opsk_infiniband_port_info")
    assert (found["link_layer"], found["netdev"], found["bond"]) == ("Ethernet", "eth0", "bond0")
    assert (found["gid"], found["port_guid"]) == ("fe80:0000:0000:0000:9439:e5ff:fe00:0100", "")
