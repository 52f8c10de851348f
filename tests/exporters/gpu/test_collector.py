"""Which series do GPUs have, and what is left of a GPU that is lost?"""

from __future__ import annotations

import logging
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import replace

import pytest
from prometheus_client import Metric, generate_latest

from opsk.errors import TelemetryError
from opsk.telemetry.background_reader import Latest
from opsk.telemetry.gpu.samples import (
    EccCount,
    GpuDriverMissingError,
    GpuReading,
    GpuSample,
    LostGpu,
    RetiredPages,
    Unreadable,
)
from opsk.telemetry.gpu.services import ImexSample, ServiceSample
from opsk_exporters.core.collector import NoDataError, Scraper
from opsk_exporters.gpu.collector import GpuCollector
from tests.fakes.gpus import GIB, FixedGpus, gpu_uuid, h100, reading, with_mig
from tests.golden.compare import assert_as_golden

SERVICES = (
    ServiceSample(name="nvidia-fabricmanager", enabled=True, running=True),
    ServiceSample(name="nvidia-imex", enabled=True, running=False),
)


class _Shown:
    """Metrics as a registry has them."""

    def __init__(self, metrics: Iterable[Metric]) -> None:
        self._metrics = tuple(metrics)

    def collect(self) -> tuple[Metric, ...]:
        return self._metrics


def text_of(metrics: Iterable[Metric]) -> str:
    return generate_latest(_Shown(metrics)).decode()  # type: ignore[arg-type]


def samples(metrics: Iterable[Metric]) -> dict[tuple[str, ...], float]:
    """Samples by name and label values in order of label name."""
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for metric in metrics
        for sample in metric.samples
    }


def shown(*gpus: GpuSample) -> dict[tuple[str, ...], float]:
    return samples(GpuCollector(FixedGpus(reading(*gpus))).collect())


def labels_of(metrics: Iterable[Metric], name: str) -> list[dict[str, str]]:
    return [sample.labels for metric in metrics for sample in metric.samples if sample.name == name]


def full_node() -> GpuReading:
    """One GPU of each kind: sound, with a lost one beside it, and one cut by MIG."""
    lost = LostGpu(uuid=gpu_uuid(2), index=2, pci="0000:1c:00.0", minor=2, model="x", why="gpu_is_lost")
    return replace(reading(h100(0, minor=3), with_mig(h100(1))), lost=(lost,))


def test_the_scrape_of_a_known_node_is_as_accepted() -> None:
    collector = GpuCollector(FixedGpus(full_node()), services=lambda: SERVICES, slurm_order=lambda _: {gpu_uuid(0): 1})
    assert_as_golden("exporter/gpu.prom", text_of(collector.collect()))


def test_promtool_finds_nothing_to_blame() -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool (Debian package prometheus) is not installed")
    collector = GpuCollector(FixedGpus(full_node()), services=lambda: SERVICES)
    checked = subprocess.run(
        [promtool, "check", "metrics"],
        input=text_of(collector.collect()),
        text=True,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, "")


def test_every_series_of_a_gpu_is_keyed_by_its_uuid() -> None:
    metrics = tuple(GpuCollector(FixedGpus(full_node())).collect())
    for metric in metrics:
        assert metric.documentation.endswith("."), metric.name
        for sample in metric.samples:
            if sample.name not in ("opsk_gpu_driver_info",):
                assert sample.labels["gpu"].startswith(("GPU-", "MIG-")), sample.name
                assert not {"index", "minor", "pci"} & sample.labels.keys() or sample.name.endswith("_info")


def test_index_minor_and_slurms_index_are_told_apart() -> None:
    # The board has its device files in another order than its PCI addresses.
    gpus = [h100(0, minor=2), h100(1, minor=3), h100(2, minor=0), h100(3, minor=1)]
    collector = GpuCollector(
        FixedGpus(reading(*gpus)), slurm_order=lambda found: {g.uuid: g.minor or 0 for g in found.gpus}
    )
    rows = [
        (row["gpu"], row["index"], row["minor"], row["slurm_index"], row["pci"])
        for row in labels_of(collector.collect(), "opsk_gpu_info")
    ]
    assert rows == [
        (gpu_uuid(0), "0", "2", "2", "0000:1a:00.0"),
        (gpu_uuid(1), "1", "3", "3", "0000:1b:00.0"),
        (gpu_uuid(2), "2", "0", "0", "0000:1c:00.0"),
        (gpu_uuid(3), "3", "1", "1", "0000:1d:00.0"),
    ]


def test_a_lost_gpu_is_down_and_has_no_other_series() -> None:
    lost = LostGpu(uuid=gpu_uuid(1), index=1, why="gpu_is_lost")
    never = LostGpu(uuid=None, index=5, why="gpu_is_lost")
    collector = GpuCollector(FixedGpus(reading(h100(0), h100(1)), replace(reading(h100(0)), lost=(lost, never))))
    assert samples(collector.collect())["opsk_gpu_up", gpu_uuid(1)] == 1
    now = samples(collector.collect())
    assert now["opsk_gpu_up", gpu_uuid(0)] == 1
    assert now["opsk_gpu_up", gpu_uuid(1)] == 0
    assert now["opsk_gpu_up", "index-5"] == 0
    assert [key for key in now if gpu_uuid(1) in key and key[0] != "opsk_gpu_up"] == []


def test_what_is_lost_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    lost = LostGpu(uuid=gpu_uuid(1), index=1, pci="0000:1b:00.0", why="gpu_is_lost")
    faulty = replace(
        reading(h100(0)), lost=(lost,), unreadable=(Unreadable(gpu=gpu_uuid(0), what="fabric", error="unknown"),)
    )
    collector = GpuCollector(FixedGpus(faulty))
    with caplog.at_level(logging.INFO, "opsk.exporter"):
        for _ in range(3):
            collector.collect()
    assert len(caplog.records) == 2
    assert "0000:1b:00.0) is lost: gpu_is_lost" in caplog.text


def test_what_could_not_be_read_is_counted_for_its_gpu() -> None:
    faults = tuple(Unreadable(gpu=gpu_uuid(1), what=what, error="no_permission") for what in ("gpm", "processes"))
    collector = GpuCollector(FixedGpus(replace(reading(h100(0), h100(1)), unreadable=faults)))
    now = samples(collector.collect())
    assert now["opsk_gpu_unreadable_values", gpu_uuid(0)] == 0
    assert now["opsk_gpu_unreadable_values", gpu_uuid(1)] == 2


def test_a_gpu_that_says_nothing_has_no_numbers() -> None:
    now = shown(GpuSample(uuid="GPU-x", index=0))
    assert {key[0] for key in now} == {
        "opsk_gpu_driver_info",
        "opsk_gpu_info",
        "opsk_gpu_up",
        "opsk_gpu_unreadable_values",
    }


def test_a_node_without_driver_or_gpu_has_no_data() -> None:
    with pytest.raises(NoDataError):
        GpuCollector(FixedGpus(GpuDriverMissingError("no driver"))).collect()
    with pytest.raises(NoDataError):
        GpuCollector(FixedGpus(GpuReading(read_at_s=0.0))).collect()


def test_gpus_without_a_driver_are_a_failure() -> None:
    source = FixedGpus(GpuDriverMissingError("the NVIDIA driver is not loaded"))
    collector = GpuCollector(source, on_bus=lambda: ("0000:1a:00.0", "0000:1b:00.0"))
    with pytest.raises(TelemetryError, match=r"2 NVIDIA GPUs are on the PCI bus .* is not loaded"):
        collector.collect()


def test_a_driver_that_goes_away_is_a_failure_not_an_absence() -> None:
    collector = GpuCollector(FixedGpus(reading(h100(0)), GpuDriverMissingError("the NVIDIA driver is not loaded")))
    collector.collect()
    with pytest.raises(TelemetryError, match="their driver is gone"):
        collector.collect()


def test_a_failing_source_drops_all_series_and_says_so() -> None:
    scraper = Scraper([GpuCollector(FixedGpus(TelemetryError("NVML hangs")))])
    scrape = scraper.scrape()
    assert scrape.failed == ("gpu",)
    assert not any(metric.name.startswith("opsk_gpu") for metric in scrape.metrics)


def test_values_are_in_base_units() -> None:
    now = shown(h100(1))
    uuid = gpu_uuid(1)
    assert now["opsk_gpu_memory_used_bytes", uuid] == GIB
    assert now["opsk_gpu_utilization_ratio", uuid] == 0.1
    assert now["opsk_gpu_power_watts", uuid] == 102
    assert now["opsk_gpu_power_average_watts", uuid] == 101
    assert now["opsk_gpu_energy_joules_total", uuid] == 1000
    assert now["opsk_gpu_clock_hertz", "sm", uuid] == 1.98e9
    assert now["opsk_gpu_temperature_celsius", uuid, "memory"] == 51
    assert now["opsk_gpu_tensor_active_ratio", uuid] == 0.4


def test_mig_devices_have_their_own_uuid_and_their_parent() -> None:
    gpu = with_mig(h100(3))
    now = shown(gpu)
    first, second = (mig.uuid for mig in gpu.mig)
    assert now["opsk_gpu_mig_enabled", gpu.uuid] == 1
    assert now["opsk_gpu_mig_memory_used_bytes", second, gpu.uuid] == GIB
    assert now["opsk_gpu_mig_sm_active_ratio", first, gpu.uuid] == 0.25
    assert now["opsk_gpu_mig_processes", second, gpu.uuid] == 1
    info = labels_of(GpuCollector(FixedGpus(reading(gpu))).collect(), "opsk_gpu_mig_info")
    assert [(row["parent"], row["gi"], row["ci"], row["profile"]) for row in info] == [
        (gpu.uuid, "7", "0", "1g.10gb"),
        (gpu.uuid, "8", "0", "1g.10gb"),
    ]
    # What cannot be told of a GPU that is cut is absent, not zero.
    assert ("opsk_gpu_utilization_ratio", gpu.uuid) not in now
    assert ("opsk_gpu_processes", gpu.uuid) not in now


def test_ecc_locations_never_overlap() -> None:
    def count(location: str, number: int) -> EccCount:
        return EccCount(kind="uncorrected", span="aggregate", location=location, count=number)

    def locations(*counts: EccCount) -> dict[str, float]:
        now = shown(GpuSample(uuid="GPU-x", index=0, ecc=counts))
        return {key[3]: value for key, value in now.items() if key[0] == "opsk_gpu_ecc_aggregate_errors_total"}

    # Ampere and newer: SRAM in two parts, which the units of the chip are other views of.
    newer = (count("total", 9), count("dram", 4), count("sram_parity", 2), count("sram_secded", 3), count("l2", 5))
    assert locations(*newer) == {"dram": 4, "sram": 5}
    # Volta: units of the chip, whose sum is the total.
    assert locations(count("total", 7), count("dram", 4), count("l2", 3)) == {"dram": 4, "l2": 3}
    assert locations(count("total", 7)) == {"total": 7}


def test_the_recovery_action_is_a_state_set() -> None:
    uuid = gpu_uuid(0)
    now = shown(replace(h100(0), recovery_action="drain_and_reset"))
    actions = {key[1]: value for key, value in now.items() if key[0] == "opsk_gpu_recovery_action"}
    assert {action for action, value in actions.items() if value} == {"drain_and_reset"}
    assert len(actions) == 8
    assert now["opsk_gpu_recovery_action", "none", uuid] == 0
    # One that a newer driver has is shown by its number.
    later = shown(replace(h100(0), recovery_action="action_9"))
    assert later["opsk_gpu_recovery_action", "action_9", uuid] == 1


def test_old_gpus_have_retired_pages_instead_of_remapped_rows() -> None:
    pages = RetiredPages(single_bit=2, double_bit=1, pending=True)
    now = shown(GpuSample(uuid="GPU-x", index=0, retired_pages=pages))
    assert now["opsk_gpu_retired_pages", "double_bit", "GPU-x"] == 1
    assert now["opsk_gpu_retired_pages_pending", "GPU-x"] == 1
    assert not any("remap" in key[0] for key in now)


def test_a_fabric_that_is_not_there_has_no_series_and_a_bad_one_says_why() -> None:
    sound = h100(0)
    assert sound.fabric is not None
    none = shown(replace(sound, fabric=replace(sound.fabric, state="not_supported")))
    assert not any("fabric" in key[0] for key in none)
    bad = replace(
        sound.fabric,
        status="unknown",
        summary="unhealthy",
        health={"route_unhealthy": True, "degraded_bandwidth": False},
    )
    now = shown(replace(sound, fabric=bad))
    assert now["opsk_gpu_fabric_joined", sound.uuid] == 0
    assert now["opsk_gpu_fabric_healthy", sound.uuid] == 0
    assert now["opsk_gpu_fabric_fault", "route_unhealthy", sound.uuid] == 1
    assert now["opsk_gpu_fabric_state", sound.uuid, "completed"] == 1


def test_the_imex_daemon_and_its_domain_are_state_sets() -> None:
    sample = ImexSample(daemon="waiting_for_peers", domain="degraded", nodes=18, nodes_ready=17)
    latest = Latest(value=sample, age_s=12.0)
    now = samples(GpuCollector(FixedGpus(reading(h100(0))), imex=lambda: latest).collect())
    assert now["opsk_gpu_imex_daemon_state", "waiting_for_peers"] == 1
    assert now["opsk_gpu_imex_daemon_state", "ready"] == 0
    assert now["opsk_gpu_imex_domain_state", "degraded"] == 1
    assert (now["opsk_gpu_imex_nodes",], now["opsk_gpu_imex_nodes_ready",]) == (18, 17)
    assert now["opsk_gpu_imex_age_seconds",] == 12


def test_an_old_answer_of_imex_has_only_its_age() -> None:
    latest = Latest(value=ImexSample(daemon="ready", domain="up"), age_s=900.0)
    now = samples(GpuCollector(FixedGpus(reading(h100(0))), imex=lambda: latest).collect())
    assert [key for key in now if "imex" in key[0]] == [("opsk_gpu_imex_age_seconds",)]


def test_a_service_that_should_run_and_does_not_shows() -> None:
    now = samples(GpuCollector(FixedGpus(reading(h100(0))), services=lambda: SERVICES).collect())
    assert now["opsk_gpu_service_enabled", "nvidia-imex"] == 1
    assert now["opsk_gpu_service_running", "nvidia-imex"] == 0
