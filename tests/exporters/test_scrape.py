"""Is a whole scrape of a known node what was accepted in review, and does Prometheus' own linter like it?"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from opsk import __version__
from opsk.telemetry.network.infiniband import SysfsInfiniband
from opsk_exporters.catalogue import Sources, make_collectors
from opsk_exporters.core.collector import Scraper
from opsk_exporters.core.server import build_registry
from opsk_exporters.core.settings import Settings
from opsk_exporters.network.infiniband import InfinibandCollector
from opsk_exporters.network.names import COUNTERS, EXTENDED, MLX5, QUEUES, MetricName
from tests.fakes.archives import unpack
from tests.fakes.procfs import write_procfs
from tests.fakes.sysfs import SysfsTree
from tests.fakes.ttar import extract_ttar
from tests.golden.compare import assert_as_golden


@pytest.fixture(autouse=True)
def own_procfs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the next test psutil's own place of procfs back."""
    monkeypatch.setattr("psutil.PROCFS_PATH", "/proc")


@pytest.fixture
def node(tmp_path: Path) -> Callable[[], str]:
    """Write a node with two InfiniBand ports, one of them ailing, and a RoCE port; return what scrapes it."""
    tree = SysfsTree(tmp_path / "sys")
    tree.add_hca(0)
    ailing = tree.add_hca(1)
    tree.write(ailing / "state", "2: INIT")
    tree.write(ailing / "rate", "100 Gb/sec (1X NDR)")
    tree.write(ailing / "counters" / "symbol_error", "12")
    tree.write(ailing / "counters" / "port_rcv_errors", "N/A (no PMA)")
    tree.add_hca(2, rate="200 Gb/sec (4X HDR)", link_layer="Ethernet")
    procfs = write_procfs(tmp_path / "proc")
    sources = Sources(Settings(sysfs=tree.root, procfs=procfs))
    collectors = make_collectors(["host", "infiniband"], sources).collectors
    # The clock stands still: durations and ages are 0 in the golden file.
    return lambda: generate_latest(build_registry(Scraper(collectors, clock=lambda: 0.0), process=False)).decode(
        "utf-8"
    )


def samples(text: str) -> dict[tuple[str, ...], float]:
    """Return samples by name and label values in order of label name."""
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_the_whole_scrape_is_as_accepted(node: Callable[[], str]) -> None:
    assert_as_golden("exporter/scrape.prom", node().replace(__version__, "VERSION"))


def test_bytes_rates_and_durations_are_in_base_units(node: Callable[[], str]) -> None:
    shown = samples(node())
    # 1,000 and 4,000 words of 4 bytes; 400 and 200 Gbit/s over 8; 12 ms; 2,000 sectors of 512 bytes.
    assert shown["opsk_infiniband_port_received_bytes_total", "mlx5_0", "1"] == 4_000
    assert shown["opsk_infiniband_port_transmitted_bytes_total", "mlx5_1", "1"] == 16_000
    assert shown["opsk_infiniband_port_rate_bytes_per_second", "mlx5_0", "1"] == 50e9
    assert shown["opsk_infiniband_port_rate_bytes_per_second", "mlx5_2", "1"] == 25e9
    assert shown["opsk_infiniband_port_refresh_interval_seconds", "mlx5_0", "1"] == 0.012
    assert shown["opsk_host_disk_read_bytes_total", "nvme0n1"] == 1_024_000


def test_what_a_port_does_not_say_is_absent_and_counted(node: Callable[[], str]) -> None:
    shown = samples(node())
    assert ("opsk_infiniband_port_receive_errors_total", "mlx5_1", "1") not in shown
    assert shown["opsk_infiniband_port_receive_errors_total", "mlx5_0", "1"] == 0
    assert shown["opsk_infiniband_port_unreadable_files", "mlx5_1", "1"] == 1
    assert ("opsk_infiniband_port_lid", "mlx5_2", "1") not in shown


@pytest.mark.parametrize(
    ("folder", "names"), [("counters", COUNTERS), ("counters_ext", EXTENDED), ("hw_counters", MLX5 | QUEUES)]
)
def test_directions_are_those_of_the_kernel(tmp_path: Path, folder: str, names: dict[str, MetricName]) -> None:
    # Every counter gets a value of its own; a swap of two names or of receive and transmit shows.
    tree = SysfsTree(tmp_path / "sys")
    port = tree.add_hca(0, link_layer="Ethernet")
    values: dict[str, float] = {}
    for file_name, metric in names.items():
        value = 1000 + len(values)
        tree.write(port / folder / file_name, str(value))
        factor = 4 if file_name.removesuffix("_64") in ("port_rcv_data", "port_xmit_data") else 1
        values[f"opsk_infiniband_port_{metric.what}_total"] = value * factor
        assert ("rcv" in file_name) <= ("receive" in metric.what), file_name
        assert ("xmit" in file_name) <= ("transmit" in metric.what), file_name
    collector = InfinibandCollector(SysfsInfiniband(tree.root))
    shown = {sample.name: sample.value for metric in collector.collect() for sample in metric.samples}
    assert {name: shown.get(name) for name in values} == values
    assert len(values) == len(names)


def test_every_metric_has_a_help_text_and_a_name_by_the_rules(node: Callable[[], str]) -> None:
    for family in text_string_to_metric_families(node()):
        assert family.name.startswith("opsk_")
        assert family.documentation.endswith("."), family.name


def test_promtool_finds_nothing_to_blame(node: Callable[[], str]) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool (Debian package prometheus) is not installed")
    checked = subprocess.run(
        [promtool, "check", "metrics"], input=node(), text=True, capture_output=True, timeout=60, check=False
    )
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, "")


@pytest.mark.shared
def test_a_real_h100_node_is_exported_in_bytes(shared: Path, tmp_path: Path) -> None:
    unpack(shared / "data" / "real" / "sysfs" / "h100_sys_class_infiniband.tar.gz", tmp_path)
    (folder,) = tmp_path.iterdir()
    (tmp_path / "sys" / "class").mkdir(parents=True)
    folder.rename(tmp_path / "sys" / "class" / "infiniband")
    collector = InfinibandCollector(SysfsInfiniband(tmp_path / "sys"))
    shown = {
        (sample.name, sample.labels["device"]): sample.value
        for metric in collector.collect()
        for sample in metric.samples
    }
    # Words and packets of mlx5_0 read from the archive by hand.
    assert shown["opsk_infiniband_port_received_bytes_total", "mlx5_0"] == 230_539_874_932_483 * 4
    assert shown["opsk_infiniband_port_received_packets_total", "mlx5_0"] == 317_548_853_677
    assert shown["opsk_infiniband_port_roce_adaptive_retransmissions_total", "mlx5_0"] == 3
    assert sum(name == "opsk_infiniband_port_state" for name, _ in shown) == 9


@pytest.mark.shared
def test_a_driver_without_counters_gives_no_counters(shared: Path, tmp_path: Path) -> None:
    extract_ttar(shared / "data" / "real" / "sysfs" / "node_exporter_sys.ttar", tmp_path, "sys/class/infiniband")
    collector = InfinibandCollector(SysfsInfiniband(tmp_path / "sys"))
    shown = {
        (sample.name, sample.labels["device"], sample.labels.get("port")): sample.value
        for metric in collector.collect()
        for sample in metric.samples
    }
    # i40iw says "N/A (no PMA)" in its 17 counter files; mlx4 port 1 has 4,631,917 words in and ticks that stick.
    assert not any(name.endswith("_total") for name, device, _ in shown if device == "i40iw0")
    assert shown["opsk_infiniband_port_unreadable_files", "i40iw0", "1"] == 17
    assert shown["opsk_infiniband_port_rate_bytes_per_second", "i40iw0", "1"] == 1.25e9
    assert shown["opsk_infiniband_port_received_bytes_total", "mlx4_0", "1"] == 4_631_917 * 4
    assert shown["opsk_infiniband_port_transmit_wait_ticks_total", "mlx4_0", "1"] == 4_294_967_295
    assert shown["opsk_infiniband_port_extended_received_bytes_total", "mlx4_0", "2"] == 4_631_917 * 4
    assert ("opsk_infiniband_port_receive_errors_total", "mlx4_0", "2") not in shown
