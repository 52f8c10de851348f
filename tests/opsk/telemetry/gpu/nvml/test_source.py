"""Does the real pynvml, on a library that says what we tell it, give the samples that it should?"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from opsk.lab.machine.gpus import gpu_uuid, make_h100
from opsk.lab.machine.nvml_standin import StandInGpu, StandInProcess, StandInState
from tests.fakes.nvml import Nvml
from tests.fakes.nvml_gpus import make_a100, make_h100_node, make_mig_device
from tests.fakes.nvml_reader import NvmlReader

GIB = 1 << 30


@pytest.fixture
def node(tmp_path: Path) -> Nvml:
    return Nvml(tmp_path)


def first(node: Nvml, gpu: StandInGpu, *, readings: int = 1) -> dict:  # type: ignore[type-arg]
    """The only GPU of a node after so many readings."""
    node.write(StandInState(gpus=(gpu,)))
    with NvmlReader(node) as reader:
        for _ in range(readings):
            reading = reader.read()
    assert reading["unreadable"] == []
    return reading["gpus"][0]  # type: ignore[no-any-return]


def test_what_a_gpu_is_and_the_versions_are_read(node: Nvml) -> None:
    with NvmlReader(node) as reader:
        reading = reader.read()
    assert (reading["driver"], reading["nvml"], reading["cuda"]) == ("570.124.06", "12.570.124.06", "12.8")
    assert [gpu["uuid"] for gpu in reading["gpus"]] == [gpu_uuid(index) for index in range(8)]
    gpu = reading["gpus"][1]
    assert (gpu["index"], gpu["minor"], gpu["pci"]) == (1, 1, "0000:43:00.0")
    assert (gpu["model"], gpu["architecture"]) == ("NVIDIA H100 80GB HBM3", "hopper")
    assert reading["lost"] == []


def test_all_values_are_si(node: Nvml) -> None:
    # The stand-in's GPU i: 40 + i degrees, 101 + 10 i W now, 100 + 10 i W averaged, (i + 1) kJ, (i + 1) GiB in use.
    with NvmlReader(node) as reader:
        gpu = reader.read()["gpus"][2]
    assert gpu["memory"]["used_bytes"] == 3 * GIB
    assert gpu["memory"]["total_bytes"] == 80 * GIB
    assert gpu["memory"]["reserved_bytes"] == 551 << 20
    assert gpu["power"]["instant_w"] == 121
    assert gpu["power"]["average_w"] == 120
    assert gpu["power"]["limit_w"] == 700
    assert gpu["power"]["energy_j"] == 3000
    assert gpu["temperatures_c"]["gpu"] == 42
    assert gpu["temperatures_c"]["memory"] == 52
    assert gpu["clocks_hz"]["memory"] == 2.619e9
    assert gpu["clocks_max_hz"]["sm"] == 1.98e9
    assert gpu["utilisation"] == {"gpu": 0.3, "memory": 0.15}
    assert gpu["temperature_limits_c"] == {"shutdown": 92, "slowdown": 89, "gpu_max": 87}


def test_throttle_reasons_and_violation_times_share_their_names(node: Nvml) -> None:
    # Bits 0x4 and 0x20 of the clocks event reasons; 1.5 s of power violation.
    gpu = first(
        node,
        make_h100(0).with_keys(
            {"clocks_event.reasons": 0x24, "clocks_event.supported": 0xFF, "violation.power_ns": 15 * 10**8}
        ),
    )
    assert gpu["throttle_reasons"] == ["sw_power_cap", "sw_thermal_slowdown"]
    assert "hw_power_brake" in gpu["throttle_reasons_known"]
    assert gpu["violation_s"]["sw_power_cap"] == 1.5


def test_activity_is_known_from_the_second_reading_on(node: Nvml) -> None:
    assert first(node, make_h100(0))["activity"] is None
    activity = first(node, make_h100(0).with_keys({"gpm.20": 100.0, "gpm.61": 2.0}), readings=2)["activity"]
    # Percent of the stand-in's first H100; MiB/s.
    assert activity["window_s"] == 15
    assert activity["ratios"] == {"sm": 0.5, "sm_occupancy": 0.3, "tensor": 0.4, "dram": 0.2}
    assert activity["bytes_per_s"] == {"pcie_transmitted": 100 << 20, "nvlink_transmitted": 2 << 20}


def test_a_gpu_without_gpm_has_no_activity_and_no_complaint(node: Nvml) -> None:
    gpu = first(node, make_a100(0), readings=3)
    assert gpu["activity"] is None
    assert gpu["utilisation"]["gpu"] == 0.1
    assert gpu["nvlinks"] == []
    assert gpu["fabric"] is None


def test_nvlinks_are_read_with_their_bytes_and_errors(node: Nvml) -> None:
    gpu = make_h100(0).with_keys(
        {
            "nvlink.3.state": 0,
            "nvlink.4.tx_kib": 7,
            "nvlink.4.rx_kib": 9,
            "nvlink.5.error.replay": 11,
            "nvlink.5.error.crc_flit": 13,
        }
    )
    links = first(node, gpu)["nvlinks"]
    assert len(links) == 18
    assert links[3]["state"] == "inactive"
    assert (links[4]["transmitted_bytes"], links[4]["received_bytes"]) == (7 << 10, 9 << 10)
    assert links[5]["errors"] == {"replay": 11, "recovery": 0, "crc": 13}
    assert links[0]["version"] == "4.0"
    assert links[0]["bytes_per_s"] == 26.562e9
    assert (links[1]["remote_kind"], links[1]["remote_pci"]) == ("switch", "0000:06:00.0")


def test_ecc_and_remapped_rows_are_read(node: Nvml) -> None:
    gpu = first(
        node,
        make_h100(0).with_keys(
            {
                "ecc.aggregate.uncorrected.dram": 2,
                "ecc.volatile.corrected.sram": 3,
                "remap.uncorrected": 1,
                "remap.pending": 1,
            }
        ),
    )
    counts = {(row["kind"], row["span"], row["location"]): row["count"] for row in gpu["ecc"]}
    assert counts["uncorrected", "aggregate", "dram"] == 2
    assert counts["corrected", "volatile", "sram"] == 3
    assert gpu["row_remap"]["uncorrected"] == 1
    assert gpu["row_remap"]["pending"] is True
    assert gpu["row_remap"]["failure"] is False
    assert gpu["row_remap"]["banks"] == {"max": 640, "high": 0, "partial": 0, "low": 0, "none": 0}


def test_sram_errors_are_told_by_their_kind_where_the_driver_can(node: Nvml) -> None:
    gpu = first(
        node,
        make_h100(0).with_keys({"ecc.sram.aggregate.parity": 2, "ecc.sram.threshold_exceeded": 1}),
    )
    counts = {(row["span"], row["location"]): row["count"] for row in gpu["ecc"] if row["kind"] == "uncorrected"}
    assert counts["aggregate", "sram_parity"] == 2
    assert gpu["sram_threshold_exceeded"] is True


def test_the_fabric_is_named_and_its_health_told_field_by_field(node: Nvml) -> None:
    # Degraded bandwidth false (2), route unhealthy true (1 << 4), insufficient NVLinks (5 << 8), manager connected.
    mask = 2 | 1 << 4 | 5 << 8 | 1 << 14
    fabric = first(
        node,
        make_h100(0).with_keys(
            {
                "fabric.cluster_uuid": "6b6b6b6b-0000-4000-8000-000000000001",
                "fabric.clique": 32766,
                "fabric.health_mask": mask,
                "fabric.health_summary": 2,
            }
        ),
    )["fabric"]
    assert (fabric["state"], fabric["status"]) == ("completed", "success")
    assert fabric["cluster_uuid"] == "6b6b6b6b-0000-4000-8000-000000000001"
    assert fabric["clique"] == 32766
    assert fabric["health"] == {
        "degraded_bandwidth": False,
        "route_unhealthy": True,
        "manager_disconnected": False,
        "incorrect_configuration": True,
    }
    assert (fabric["configuration"], fabric["summary"]) == ("insufficient_nvlinks", "unhealthy")


def test_a_fabric_that_is_not_set_up_yet_has_no_cluster(node: Nvml) -> None:
    fabric = first(node, make_h100(0).with_keys({"fabric.state": 2}))["fabric"]
    assert fabric["state"] == "in_progress"
    assert (fabric["status"], fabric["cluster_uuid"], fabric["clique"]) == (None, None, None)


def test_the_recovery_action_is_a_word(node: Nvml) -> None:
    assert first(node, make_h100(0))["recovery_action"] == "none"
    assert first(node, make_h100(0).with_keys({"recovery_action": 4}))["recovery_action"] == "drain_and_reset"


def test_blank_values_are_absent(node: Nvml) -> None:
    # DCGM's and NVML's blanks: none of them may come out as a number.
    gpu = first(
        node,
        make_h100(0).with_keys(
            {
                "energy_mj": 2**64 - 1,
                "power.instant_mw": 0xFFFFFFFF,
                "violation.power_ns": 9223372036854775794,
                "temperature.memory_c": 0x7FFFFFF2,
            }
        ),
    )
    assert gpu["power"]["energy_j"] is None
    assert gpu["power"]["instant_w"] is None
    assert "sw_power_cap" not in gpu["violation_s"]
    assert "memory" not in gpu["temperatures_c"]


def test_what_is_not_supported_is_absent_and_no_failure(node: Nvml) -> None:
    bare = StandInGpu(uuid="GPU-bare", keys={"name": "NVIDIA Something", "pci.bus_id": "00000000:01:00.0"})
    gpu = first(node, bare, readings=2)
    assert gpu["model"] == "NVIDIA Something"
    assert gpu["memory"] is None
    assert gpu["power"]["energy_j"] is None
    assert gpu["row_remap"] is None
    assert gpu["retired_pages"] is None


def test_what_appears_later_is_found_again(node: Nvml) -> None:
    node.write(StandInState(gpus=(make_h100(0).without("energy_mj"),)))
    with NvmlReader(node) as reader:
        assert reader.read()["gpus"][0]["power"]["energy_j"] is None
        node.write(StandInState(gpus=(make_h100(0),)))
        assert reader.read()["gpus"][0]["power"]["energy_j"] is None
        assert reader.read(later_s=301)["gpus"][0]["power"]["energy_j"] == 1000


def test_minor_numbers_need_not_follow_the_index(node: Nvml) -> None:
    order = (2, 3, 0, 1)
    node.write(StandInState(gpus=tuple(make_h100(index).having(minor=minor) for index, minor in enumerate(order))))
    with NvmlReader(node) as reader:
        gpus = reader.read()["gpus"]
    assert [(gpu["index"], gpu["minor"]) for gpu in gpus] == list(enumerate(order))


def test_processes_are_told_with_their_memory(node: Nvml) -> None:
    processes = (StandInProcess(pid=4711, memory_used_bytes=GIB), StandInProcess(pid=4712))
    found = first(node, replace(make_h100(0), processes=processes))["processes"]
    assert [(process["pid"], process["used_bytes"]) for process in found] == [(4711, GIB), (4712, None)]


def test_mig_devices_are_read_by_their_uuid(node: Nvml) -> None:
    mig = {index: make_mig_device(index) for index in (0, 2)}
    gpu = replace(make_a100(0).with_keys({"mig.mode": 1}), mig=mig)
    sample = first(node, gpu)
    assert sample["mig_mode"] is True
    assert [
        (each["uuid"], each["index"], each["gi"], each["ci"], each["profile"], each["multiprocessors"])
        for each in sample["mig"]
    ] == [(mig[0].uuid, 0, 7, 0, "1g.5gb", 14), (mig[2].uuid, 2, 9, 0, "1g.5gb", 14)]
    assert sample["mig"][1]["memory"]["used_bytes"] == 3 << 20


def test_mig_that_is_switched_on_is_seen_at_the_next_reading(node: Nvml) -> None:
    node.write(StandInState(gpus=(make_a100(0).with_keys({"mig.mode": 0}),)))
    with NvmlReader(node) as reader:
        before = reader.read()["gpus"][0]
        node.write(StandInState(gpus=(replace(make_a100(0).with_keys({"mig.mode": 1}), mig={0: make_mig_device(0)}),)))
        after = reader.read()["gpus"][0]
    assert (before["mig_mode"], before["mig"]) == (False, [])
    assert after["mig_mode"] is True
    assert len(after["mig"]) == 1


def test_nodes_of_many_gpus_are_read(node: Nvml) -> None:
    node.write(make_h100_node(16))
    with NvmlReader(node) as reader:
        assert len(reader.read()["gpus"]) == 16
