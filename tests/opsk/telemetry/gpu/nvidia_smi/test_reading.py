"""Is what nvidia-smi prints read right in every generation's words, and is what it does not say left out?

The texts are made here, in the layout that nvidia-smi has; numbers in them are made up.
"""

from __future__ import annotations

from datetime import datetime

import pytest

from opsk.telemetry.gpu.nvidia_smi import read_nvidia_smi
from opsk.telemetry.gpu.samples import GpuSample
from tests.fakes.nvidia_smi_text import HEAD, IDENTITY, UUID, block

MIB = 1 << 20


def one(lines: str) -> GpuSample:
    (report,) = read_nvidia_smi(HEAD.format(attached=1) + block(lines)).reports
    (gpu,) = report.reading.gpus
    return gpu


def test_head_and_identity() -> None:
    (report,) = read_nvidia_smi(HEAD.format(attached=8) + block(IDENTITY), read_at_s=7.0).reports
    assert (report.taken_at, report.attached) == (datetime(2026, 7, 3, 22, 22, 26), 8)  # noqa: DTZ001
    assert (report.reading.driver, report.reading.cuda, report.reading.read_at_s) == ("590.48.01", "13.1", 7.0)
    (gpu,) = report.reading.gpus
    assert (gpu.uuid, gpu.index, gpu.minor, gpu.pci) == (UUID, 0, 3, "0000:1a:00.0")
    assert (gpu.model, gpu.architecture) == ("NVIDIA H100 80GB HBM3", "hopper")


def test_quantities_are_si() -> None:
    gpu = one("""
FB Memory Usage
    Total                             : 81559 MiB
    Reserved                          : 479 MiB
    Used                              : 19818 MiB
    Free                              : 61263 MiB
Utilization
    GPU                               : 87 %
    Memory                            : 11 %
Temperature
    GPU Current Temp                  : 59 C
    GPU T.Limit Temp                  : 26 C
    GPU Shutdown T.Limit Temp         : -8 C
    Memory Current Temp               : 55 C
Clocks
    SM                                : 1980 MHz
Max Clocks
    SM                                : 1980 MHz
Clocks Event Reasons Counters
    SW Power Capping                  : 212288427 us
PCI
    GPU Link Info
        PCIe Generation
            Max                       : 5
            Current                   : 4
        Link Width
            Max                       : 16x
            Current                   : 8x
    Replays Since Reset               : 9
""")
    assert gpu.memory is not None
    assert (gpu.memory.total_bytes, gpu.memory.used_bytes) == (81559 * MIB, 19818 * MIB)
    assert gpu.utilisation == {"gpu": 0.87, "memory": 0.11}
    assert gpu.temperatures_c == {"gpu": 59, "margin": 26, "memory": 55}
    assert gpu.temperature_limits_c == {}  # margins are no temperatures
    assert (gpu.clocks_hz, gpu.clocks_max_hz) == ({"sm": 1.98e9}, {"sm": 1.98e9})
    assert gpu.violation_s == {"sw_power_cap": pytest.approx(212.288427)}
    assert (gpu.pcie.generation, gpu.pcie.generation_max, gpu.pcie.width, gpu.pcie.width_max) == (4, 5, 8, 16)
    assert gpu.pcie.counters == {"replays": 9}


@pytest.mark.parametrize(
    ("model", "architecture", "average_w", "instant_w"),
    [
        ("NVIDIA H800", "Hopper", 74.5, None),
        ("NVIDIA A10", "Ampere", 74.5, None),
        ("NVIDIA A100-SXM4-80GB", "Ampere", None, 74.5),  # GA100 tells the power of the moment
        ("Tesla V100-SXM2-32GB", "Volta", None, 74.5),
    ],
)
def test_the_single_power_of_old_drivers_is_a_mean_or_of_the_moment(
    model: str, architecture: str, average_w: float | None, instant_w: float | None
) -> None:
    gpu = one(f"""
Product Name                          : {model}
Product Architecture                  : {architecture}
Power Readings
    Power Draw                        : 74.50 W
    Power Limit                       : 700.00 W
""")
    assert (gpu.power.average_w, gpu.power.instant_w, gpu.power.limit_w) == (average_w, instant_w, 700)


def test_new_drivers_tell_both_powers() -> None:
    gpu = one("""
GPU Power Readings
    Average Power Draw                : 629.45 W
    Instantaneous Power Draw          : 588.39 W
    Current Power Limit               : 700.00 W
    Default Power Limit               : 650.00 W
Module Power Readings
    Average Power Draw                : N/A
""")
    power = gpu.power
    assert (power.average_w, power.instant_w, power.limit_w, power.default_limit_w) == (629.45, 588.39, 700, 650)


@pytest.mark.parametrize("heading", ["Clocks Throttle Reasons", "Clocks Event Reasons"])
def test_reasons_of_both_names_and_both_depths(heading: str) -> None:
    gpu = one(f"""
{heading}
    Idle                              : Not Active
    HW Slowdown                       : Active
        HW Thermal Slowdown           : Active
        HW Power Brake Slowdown       : Not Active
    SW Power Cap                      : Not Active
""")
    assert gpu.throttle_reasons == {"hw_slowdown", "hw_thermal_slowdown"}
    assert gpu.throttle_reasons_known == gpu.throttle_reasons | {"gpu_idle", "hw_power_brake", "sw_power_cap"}


def test_memory_errors_of_new_and_old_gpus() -> None:
    new = one("""
ECC Mode
    Current                           : Enabled
ECC Errors
    Volatile
        SRAM Correctable              : 0
        SRAM Uncorrectable Parity     : 1
        SRAM Uncorrectable SEC-DED    : 2
        DRAM Correctable              : 177
        DRAM Uncorrectable            : 3
    Aggregate
        DRAM Uncorrectable            : 4
        SRAM Threshold Exceeded       : Yes
""")
    assert new.ecc_enabled
    assert new.sram_threshold_exceeded
    counts = {(count.kind, count.span, count.location): count.count for count in new.ecc}
    assert counts[("uncorrected", "volatile", "sram_parity")] == 1
    assert counts[("uncorrected", "volatile", "sram_secded")] == 2
    assert counts[("corrected", "volatile", "dram")] == 177
    assert counts[("uncorrected", "aggregate", "dram")] == 4
    old = one("""
Ecc Mode
    Current                           : Disabled
ECC Errors
    Volatile
        Single Bit
            Device Memory             : 5
            Register File             : 0
            Total                     : 5
        Double Bit
            Device Memory             : 1
            L2 Cache                  : N/A
""")
    assert old.ecc_enabled is False
    assert {(c.kind, c.location): c.count for c in old.ecc} == {
        ("corrected", "dram"): 5,
        ("corrected", "register_file"): 0,
        ("corrected", "total"): 5,
        ("uncorrected", "dram"): 1,
    }


def test_remapped_rows_and_retired_pages() -> None:
    gpu = one("""
Retired Pages
    Single Bit ECC                    : 2
    Double Bit ECC                    : 0
    Pending Page Blacklist            : Yes
Remapped Rows
    Correctable Error                 : 1
    Uncorrectable Error               : 0
    Pending                           : Yes
    Remapping Failure Occurred        : No
    Bank Remap Availability Histogram
        Max                           : 639 bank(s)
        None                          : 1 bank(s)
""")
    assert gpu.row_remap is not None
    assert (gpu.row_remap.corrected, gpu.row_remap.pending, gpu.row_remap.failure) == (1, True, False)
    assert gpu.row_remap.banks == {"max": 639, "none": 1}
    assert gpu.retired_pages is not None
    assert (gpu.retired_pages.single_bit, gpu.retired_pages.double_bit, gpu.retired_pages.pending) == (2, 0, True)


MIG = f"""
GPU UUID                              : {UUID}
MIG Mode
    Current                           : Enabled
MIG Device
    Index                             : 0
    GPU Instance ID                   : 2
    Compute Instance ID               : 0
    Device Attributes
        Shared
            Multiprocessor count      : 16
    FB Memory Usage
        Total                         : 20096 MiB
        Used                          : 22 MiB
        Free                          : 20074 MiB
MIG Device
    Index                             : 1
    GPU Instance ID                   : 3
    Compute Instance ID               : 1
Remapped Rows                         : N/A
Utilization
    GPU                               : N/A
Processes
    GPU instance ID                   : 3
    Compute instance ID               : 1
    Process ID                        : 4711
        Type                          : C
        Name                          : python
        Used GPU Memory               : 12 MiB
    GPU instance ID                   : 2
    Compute instance ID               : 0
    Process ID                        : 4712
        Type                          : M+C
        Used GPU Memory               : N/A
    GPU instance ID                   : 2
    Compute instance ID               : 0
    Process ID                        : 1
        Type                          : G
"""


def test_mig_devices_have_their_memory_their_processes_and_the_names_of_the_list() -> None:
    listed = (
        f"GPU 0: NVIDIA H100 (UUID: {UUID})\n"
        "  MIG 1g.10gb     Device  0: (UUID: MIG-aaaaaaaa-0000-0000-0000-000000000000)\n"
    )
    (report,) = read_nvidia_smi(listed + HEAD.format(attached=1) + block(MIG)).reports
    (gpu,) = report.reading.gpus
    first, second = gpu.mig
    assert gpu.mig_mode
    assert gpu.processes is None
    assert gpu.utilisation == {}
    assert gpu.row_remap is None
    assert (first.uuid, first.profile) == ("MIG-aaaaaaaa-0000-0000-0000-000000000000", "1g.10gb")
    assert (first.gi, first.ci, first.multiprocessors) == (2, 0, 16)
    assert first.memory is not None
    assert first.memory.total_bytes == 20096 * MIB
    assert [process.pid for process in first.processes or ()] == [4712]
    assert [process.pid for process in second.processes or ()] == [4711]
    assert (second.uuid, second.memory) == ("", None)


@pytest.mark.parametrize(("text", "processes"), [("None", 0), ("N/A", None)])
def test_no_processes_is_not_the_same_as_none_that_the_driver_tells(text: str, processes: int | None) -> None:
    gpu = one(f"Processes                             : {text}")
    assert (None if gpu.processes is None else len(gpu.processes)) == processes


def test_the_fabric_and_its_health() -> None:
    gpu = one("""
GPU Recovery Action                   : Drain and Reset
Fabric
    State                             : Completed
    Status                            : Success
    CliqueId                          : 5
    ClusterUUID                       : 12345678-0000-0000-0000-000000000001
    Health
        Summary                       : Limited Capacity
        Bandwidth                     : Degraded
        Route Recovery in progress    : False
        Route Unhealthy               : True
        Access Timeout Recovery       : N/A
        Incorrect Configuration       : Insufficient Nvlinks
""")
    assert gpu.recovery_action == "drain_and_reset"
    fabric = gpu.fabric
    assert fabric is not None
    assert (fabric.state, fabric.status, fabric.clique, fabric.summary) == (
        "completed",
        "success",
        5,
        "limited_capacity",
    )
    assert fabric.cluster_uuid == "12345678-0000-0000-0000-000000000001"
    assert fabric.configuration == "insufficient_nvlinks"
    assert fabric.health == {
        "degraded_bandwidth": True,
        "route_recovery": False,
        "route_unhealthy": True,
        "incorrect_configuration": True,
    }


def test_no_fabric_and_no_cluster() -> None:
    assert one("Fabric\n    State                             : N/A").fabric is None
    single = one(
        "Fabric\n    State                             : In Progress\n"
        "    ClusterUUID                       : 00000000-0000-0000-0000-000000000000"
    ).fabric
    assert single is not None
    assert (single.state, single.cluster_uuid) == ("in_progress", None)
