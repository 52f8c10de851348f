"""Does a site with dcgm-exporter, node_exporter and a Slurm exporter see its cluster, with nothing of ours on nodes?"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.grafana.sketch_data import Source
from tests.deploy.test_grafana import VARIABLES, panels
from tests.fakes.lab_cluster import STEPS
from tests.fakes.lab_node import GPUS, NODES, STEP_S, TRAINING, uuid
from tests.fakes.prometheus_server import LabPrometheus, lab_prometheus, programs

SEEN = {
    "opsk-cluster": {
        "GPUs",
        "GPUs that jobs have",
        "Activity by node and GPU",
        "Temperature by node and GPU",
        "Jobs by state",
        "Nodes by state",
        "GPUs by state",
    },
    "opsk-job": {"GPUs", "Activity", "Power", "Clock against the job's median: the ten slowest", "NVLink, sent"},
    "opsk-fabric": {"Ports active", "Worst congestion", "Sent and received, all ports", "Errors, by kind"},
    "opsk-power": {"GPUs", "Temperature of GPUs"},
    "opsk-gpu-health": {"XIDs, by GPU", "Rows replaced, by GPU"},
}
"""Panels that need nothing but what those exporters tell."""


def scrapes(start_unix_s: float) -> Iterator[str]:
    """Half an hour of the three exporters."""
    for step in range(STEPS):
        at, since_s = f"{start_unix_s + step * STEP_S:.3f}", step * STEP_S
        for number, node in enumerate(NODES):
            for gpu in range(GPUS):
                labels = (
                    f'gpu="{gpu}",UUID="{uuid(number, gpu)}",device="nvidia{gpu}",'
                    f'pci_bus_id="00000000:{gpu + 16:X}:00.0",modelName="NVIDIA H100 80GB HBM3",'
                    f'hostname="{node}",cluster="lab",instance="{node}:9400",job="dcgm"'
                )
                job = f',hpc_job="{TRAINING}"' if number < 2 else ""
                values = {
                    "DCGM_FI_DEV_GPU_UTIL": 90,
                    "DCGM_FI_PROF_SM_ACTIVE": 0.8,
                    "DCGM_FI_DEV_POWER_USAGE": 600.5,
                    "DCGM_FI_DEV_GPU_TEMP": 60,
                    "DCGM_FI_DEV_MEMORY_TEMP": 9223372036854775794,
                    "DCGM_FI_DEV_SM_CLOCK": 1980,
                    "DCGM_FI_PROF_NVLINK_TX_BYTES": 2.5e10,
                    "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS": 1,
                }
                for name, value in values.items():
                    yield f"{name}{{{labels}{job}}} {value} {at}"
                if (number, gpu) == (3, 3) and step > 30:
                    yield f'DCGM_EXP_XID_ERRORS_TOTAL{{{labels},xid="79"}} 1 {at}'
                    yield f'DCGM_EXP_XID_ERRORS_COUNT{{{labels},xid="79"}} 1 {at}'
            host = f'cluster="lab",instance="{node}:9100",job="node"'
            yield f'node_cpu_seconds_total{{{host},cpu="0",mode="idle"}} {since_s} {at}'
            yield f"node_load1{{{host}}} 3 {at}"
            for device in ("mlx5_0", "mlx5_1"):
                port = f'{host},device="{device}",port="1"'
                yield f"node_infiniband_state_id{{{port}}} 4 {at}"
                yield f"node_infiniband_rate_bytes_per_second{{{port}}} 5e10 {at}"
                yield f"node_infiniband_port_data_transmitted_bytes_total{{{port}}} {since_s * 3e10} {at}"
                yield f"node_infiniband_port_data_received_bytes_total{{{port}}} {since_s * 3e10} {at}"
                yield f"node_infiniband_port_transmit_wait_total{{{port}}} {since_s * 1e9} {at}"
                yield f"node_infiniband_symbol_error_total{{{port}}} {since_s} {at}"
        slurm = 'cluster="lab",instance="ctl:9341",job="slurm",partition="gpu"'
        yield f"slurm_partition_jobs_running{{{slurm}}} 3 {at}"
        yield f'slurm_queue_pending{{{slurm},user="ada",reason="Resources"}} 2 {at}'
        yield f'slurm_nodes_alloc{{{slurm},active_feature_set="null"}} 4 {at}'
        yield f"slurm_partition_gpus_allocated{{{slurm}}} 8 {at}"
    yield "# EOF"


@pytest.fixture(scope="module")
def site(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabPrometheus]:
    """A Prometheus with half an hour of such a site."""
    if programs() is None:
        pytest.skip("prometheus (Debian package prometheus) is not installed")
    folder = root / "deploy" / "prometheus"
    rules = (*sorted(folder.glob("opsk-from-*.yml")), folder / "opsk-rules.yml")
    # Theirs to ours, ours to what is worked out, and of that the medians.
    with lab_prometheus(tmp_path_factory.mktemp("site"), rules, scrapes, passes=3) as running:
        yield running


@pytest.mark.parametrize("uid", SEEN)
def test_panels_have_data(site: LabPrometheus, uid: str) -> None:
    source = Source(site.url, site.start_unix_s, site.end_unix_s, variables=VARIABLES)
    for panel in panels(uid):
        if panel["title"] in SEEN[uid]:
            assert any(source.series(target) for target in panel["targets"]), panel["title"]
    assert SEEN[uid] <= {panel["title"] for panel in panels(uid)}


def test_values_are_in_base_units_and_blanks_are_gone(site: LabPrometheus) -> None:
    assert {float(each["value"][1]) for each in site.now('opsk_gpu_clock_hertz{clock="sm"}')} == {1.98e9}
    assert {float(each["value"][1]) for each in site.now("opsk:gpu_power:watts")} == {600.5}
    assert not site.now("opsk:node_power:watts"), "the GPUs alone are not the node"
    assert not site.now('opsk_gpu_temperature_celsius{sensor="memory"}')
    xid = site.now("opsk_gpu_xid_errors_total")
    assert [(each["metric"]["node"], each["metric"]["class"]) for each in xid] == [("node4", "reboot")]
