"""Maps series of dcgm-exporter to those of opsk, by the old names and those of DCGM 4.7 and newer.

Sources: NVIDIA's field identifiers and ``default-counters.csv`` of dcgm-exporter 2.4 to 4.9.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

MIB = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Value:
    """One series of dcgm-exporter by its old and its new name (DCGM 4.7 on).

    Parameters
    ----------
    ours
        Our name.
    old, new
        Theirs; several old ones are added up.
    factor
        From the old unit to ours; the new ones are base units already.
    below
        Values from here on are blanks (DCGM has several, from 2147483632 to 9.2e18), in the old unit.
    labels
        What our series has beside ``gpu``.
    """

    ours: str
    old: tuple[str, ...]
    new: str = ""
    factor: float = 1.0
    below: str = "1e9"
    labels: Mapping[str, str] = field(default_factory=dict)


RATIO = "1.01"
DCGM = (
    Value(
        ours="opsk_gpu_utilization_ratio",
        old=("DCGM_FI_DEV_GPU_UTIL",),
        new="DCGM_FI_DEV_GPU_UTIL_RATIO",
        factor=0.01,
        below="101",
    ),
    Value(
        ours="opsk_gpu_memory_utilization_ratio",
        old=("DCGM_FI_DEV_MEM_COPY_UTIL",),
        new="DCGM_FI_DEV_MEMORY_UTIL_RATIO",
        factor=0.01,
        below="101",
    ),
    Value(
        ours="opsk_gpu_graphics_active_ratio",
        old=("DCGM_FI_PROF_GR_ENGINE_ACTIVE",),
        new="DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO",
        below=RATIO,
    ),
    Value(
        ours="opsk_gpu_sm_active_ratio",
        old=("DCGM_FI_PROF_SM_ACTIVE",),
        new="DCGM_FI_PROF_SM_UTIL_RATIO",
        below=RATIO,
    ),
    Value(
        ours="opsk_gpu_sm_occupancy_ratio",
        old=("DCGM_FI_PROF_SM_OCCUPANCY",),
        new="DCGM_FI_PROF_SM_OCCUPANCY_RATIO",
        below=RATIO,
    ),
    Value(
        ours="opsk_gpu_tensor_active_ratio",
        old=("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE",),
        new="DCGM_FI_PROF_TENSOR_UTIL_RATIO",
        below=RATIO,
    ),
    Value(
        ours="opsk_gpu_dram_active_ratio",
        old=("DCGM_FI_PROF_DRAM_ACTIVE",),
        new="DCGM_FI_PROF_DRAM_UTIL_RATIO",
        below=RATIO,
    ),
    Value(ours="opsk_gpu_pcie_received_bytes_per_second", old=("DCGM_FI_PROF_PCIE_RX_BYTES",), below="1e12"),
    Value(ours="opsk_gpu_pcie_transmitted_bytes_per_second", old=("DCGM_FI_PROF_PCIE_TX_BYTES",), below="1e12"),
    Value(
        ours="opsk_gpu_memory_size_bytes",
        old=("DCGM_FI_DEV_FB_TOTAL",),
        new="DCGM_FI_DEV_FB_CAPACITY_BYTES",
        factor=MIB,
    ),
    Value(ours="opsk_gpu_memory_used_bytes", old=("DCGM_FI_DEV_FB_USED",), new="DCGM_FI_DEV_FB_USED_BYTES", factor=MIB),
    Value(ours="opsk_gpu_memory_free_bytes", old=("DCGM_FI_DEV_FB_FREE",), new="DCGM_FI_DEV_FB_FREE_BYTES", factor=MIB),
    Value(
        ours="opsk_gpu_memory_reserved_bytes",
        old=("DCGM_FI_DEV_FB_RESERVED",),
        new="DCGM_FI_DEV_FB_RESERVED_BYTES",
        factor=MIB,
    ),
    Value(
        ours="opsk_gpu_power_watts",
        old=("DCGM_FI_DEV_POWER_USAGE",),
        new="DCGM_FI_DEV_BOARD_POWER_WATTS",
        below="1e5",
    ),
    Value(
        ours="opsk_gpu_power_limit_watts",
        old=("DCGM_FI_DEV_ENFORCED_POWER_LIMIT",),
        below="1e5",
    ),
    Value(
        ours="opsk_gpu_energy_joules_total",
        old=("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION",),
        new="DCGM_FI_DEV_GPU_ENERGY_JOULES_TOTAL",
        factor=0.001,
        below="1e14",
    ),
    Value(
        ours="opsk_gpu_temperature_celsius",
        old=("DCGM_FI_DEV_GPU_TEMP",),
        new="DCGM_FI_DEV_GPU_TEMP_CELSIUS",
        below="300",
        labels={"sensor": "gpu"},
    ),
    Value(
        ours="opsk_gpu_temperature_celsius",
        old=("DCGM_FI_DEV_MEMORY_TEMP",),
        new="DCGM_FI_DEV_MEMORY_TEMP_CELSIUS",
        below="300",
        labels={"sensor": "memory"},
    ),
    Value(
        ours="opsk_gpu_clock_hertz",
        old=("DCGM_FI_DEV_SM_CLOCK",),
        new="DCGM_FI_DEV_SM_CLOCK_HERTZ",
        factor=1e6,
        below="1e5",
        labels={"clock": "sm"},
    ),
    Value(
        ours="opsk_gpu_clock_hertz",
        old=("DCGM_FI_DEV_MEM_CLOCK",),
        new="DCGM_FI_DEV_MEMORY_CLOCK_HERTZ",
        factor=1e6,
        below="1e5",
        labels={"clock": "memory"},
    ),
    Value(
        ours="opsk_gpu_throttle_seconds_total",
        old=(),
        new="DCGM_FI_DEV_GPU_THERMAL_THROTTLE_SECONDS_TOTAL",
        labels={"reason": "thermal"},
    ),
    Value(
        ours="opsk_gpu_throttle_seconds_total",
        old=(),
        new="DCGM_FI_DEV_GPU_POWER_THROTTLE_SECONDS_TOTAL",
        labels={"reason": "sw_power_cap"},
    ),
    Value(
        ours="opsk_gpu_pcie_replays_total",
        old=("DCGM_FI_DEV_PCIE_REPLAY_COUNTER",),
        new="DCGM_FI_DEV_PCIE_REPLAY_TOTAL",
    ),
    Value(
        ours="opsk_gpu_ecc_volatile_errors_total",
        old=("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL",),
        labels={"error": "uncorrected", "location": "all"},
    ),
    Value(
        ours="opsk_gpu_ecc_volatile_errors_total",
        old=("DCGM_FI_DEV_ECC_SBE_VOL_TOTAL",),
        labels={"error": "corrected", "location": "all"},
    ),
    Value(
        ours="opsk_gpu_remapped_rows",
        old=("DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS",),
        new="DCGM_FI_DEV_ROW_REMAP_UNCORRECTABLE_TOTAL",
        labels={"cause": "uncorrected"},
    ),
    Value(
        ours="opsk_gpu_remapped_rows",
        old=("DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS",),
        new="DCGM_FI_DEV_ROW_REMAP_CORRECTABLE_TOTAL",
        labels={"cause": "corrected"},
    ),
    Value(
        ours="opsk_gpu_row_remap_failed",
        old=("DCGM_FI_DEV_ROW_REMAP_FAILURE",),
        new="DCGM_FI_DEV_ROW_REMAP_FAILED",
        below="2",
    ),
    Value(ours="opsk_gpu_row_remap_pending", old=("DCGM_FI_DEV_ROW_REMAP_PENDING",), below="2"),
    Value(
        ours="opsk_gpu_nvlink_errors_total",
        old=("DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL",),
        new="DCGM_FI_DEV_NVLINK_CRC_ERROR_TOTAL",
        labels={"kind": "crc"},
    ),
    Value(
        ours="opsk_gpu_nvlink_errors_total",
        old=("DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL",),
        new="DCGM_FI_DEV_NVLINK_REPLAY_TOTAL",
        labels={"kind": "replay"},
    ),
    Value(
        ours="opsk_gpu_nvlink_errors_total",
        old=("DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL",),
        new="DCGM_FI_DEV_NVLINK_RECOVERY_TOTAL",
        labels={"kind": "recovery"},
    ),
    Value(
        ours="opsk:gpu_nvlink:bytes_per_second",
        old=("DCGM_FI_PROF_NVLINK_TX_BYTES",),
        below="1e13",
        labels={"direction": "transmitted"},
    ),
    Value(
        ours="opsk:gpu_nvlink:bytes_per_second",
        old=("DCGM_FI_PROF_NVLINK_RX_BYTES",),
        below="1e13",
        labels={"direction": "received"},
    ),
)
