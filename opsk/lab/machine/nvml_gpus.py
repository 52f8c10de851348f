"""Defines the GPUs that a lab simulates: plausible H100 and A100, with every number derived from the GPU's index.

So an expectation can be worked out by hand: the GPU with index *i* is at ``40 + i`` degrees, draws ``100 + 10 i`` W and
has used ``(i + 1)`` kJ.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from opsk.lab.machine.nvml_state import StandInGpu, StandInMig, StandInState, Value
from opsk.units import GIB, MIB

_BUS = (0x1B, 0x43, 0x52, 0x61, 0x9D, 0xC3, 0xD1, 0xDF)


def gpu_uuid(index: int, *, node: int = 0) -> str:
    """Return the UUID of a lab's GPU."""
    return f"GPU-{0x0A5C0000 + node:08x}-0000-4000-8000-{index:012x}"


def make_h100(index: int, *, node: int = 0, links: int = 18) -> StandInGpu:
    """Return an H100 SXM of a node with NVSwitch: GPM, row remapper, HBM temperature, no fan."""
    keys: dict[str, Value] = {
        **_common_keys(index),
        "name": "NVIDIA H100 80GB HBM3",
        "architecture": 9,
        "compute_capability": "9.0",
        "pci.device_id": "0x233010DE",
        "pci.subsystem_id": "0x16C110DE",
        "memory.total_bytes": 80 * GIB,
        "memory.reserved_bytes": 551 * MIB,
        "memory.used_bytes": (index + 1) * GIB,
        "memory.bus_width_bits": 5120,
        "bar1.total_bytes": 128 * GIB,
        "bar1.used_bytes": 4 * MIB,
        "power.limit_mw": 700_000,
        "power.enforced_limit_mw": 700_000,
        "power.default_limit_mw": 700_000,
        "power.min_limit_mw": 200_000,
        "power.max_limit_mw": 700_000,
        "clock.graphics_mhz": 1980,
        "clock.sm_mhz": 1980,
        "clock.memory_mhz": 2619,
        "clock.video_mhz": 1545,
        "clock.max.graphics_mhz": 1980,
        "clock.max.sm_mhz": 1980,
        "clock.max.memory_mhz": 2619,
        "clock.max.video_mhz": 1545,
        "pcie.generation": 5,
        "pcie.max_generation": 5,
        "gpm.supported": 1,
        "gpm.2": 50 + index,
        "gpm.3": 30 + index,
        "gpm.5": 40 + index,
        "gpm.10": 20 + index,
        "fabric.state": 3,
        "fabric.status": 0,
        "fabric.clique": 0,
        "fabric.cluster_uuid": "00000000-0000-0000-0000-000000000000",
        "recovery_action": 0,
    }
    for link in range(links):
        keys[f"nvlink.{link}.state"] = 1
        keys[f"nvlink.{link}.version"] = 6
        keys[f"nvlink.{link}.remote.type"] = 2
        keys[f"nvlink.{link}.remote.pci"] = f"00000000:{5 + link % 4:02X}:00.0"
        keys[f"nvlink.{link}.speed_mbps"] = 26_562
        keys[f"nvlink.{link}.tx_kib"] = 1000 * (index + 1)
        keys[f"nvlink.{link}.rx_kib"] = 2000 * (index + 1)
        for error in ("replay", "recovery", "crc_flit", "crc_data", "ecc_data"):
            keys[f"nvlink.{link}.error.{error}"] = 0
    return StandInGpu(uuid=gpu_uuid(index, node=node), keys=keys)


def make_a100(index: int, *, node: int = 0) -> StandInGpu:
    """Return an A100 40 GB on PCIe: no GPM, no NVLink, no fabric."""
    keys: dict[str, Value] = {
        **_common_keys(index),
        "name": "NVIDIA A100-PCIE-40GB",
        "architecture": 7,
        "compute_capability": "8.0",
        "pci.device_id": "0x20F110DE",
        "memory.total_bytes": 40 * GIB,
        "memory.reserved_bytes": 530 * MIB,
        "memory.used_bytes": (index + 1) * GIB,
        "power.limit_mw": 250_000,
        "power.enforced_limit_mw": 250_000,
        "power.default_limit_mw": 250_000,
        "power.min_limit_mw": 150_000,
        "power.max_limit_mw": 250_000,
        "clock.graphics_mhz": 1410,
        "clock.sm_mhz": 1410,
        "clock.memory_mhz": 1215,
        "clock.video_mhz": 1275,
        "pcie.generation": 4,
        "pcie.max_generation": 4,
    }
    return StandInGpu(uuid=gpu_uuid(index, node=node), keys=keys)


def make_mig_device(index: int, *, gpu: int = 0, node: int = 0, gibibytes: int = 5) -> StandInMig:
    """Return a MIG device of one slice, in a GPU instance of its own whose number is ``index + 7``."""
    return StandInMig(
        uuid=f"MIG-{0x0A5C0000 + node:08x}-{gpu:04x}-5000-8000-{index:012x}",
        gpu_instance=index + 7,
        keys={
            "name": f"NVIDIA A100-PCIE-40GB MIG 1g.{gibibytes}gb",
            "memory.total_bytes": gibibytes * GIB,
            "memory.used_bytes": (index + 1) * MIB,
            "attributes.multiprocessors": 14,
            "attributes.gpu_slices": 1,
            "attributes.compute_slices": 1,
            "attributes.memory_mib": gibibytes * GIB // MIB,
        },
    )


def enable_mig(gpu: StandInGpu, devices: Mapping[int, StandInMig]) -> StandInGpu:
    """Return a GPU in MIG mode with MIG devices by index; as a whole it then reports no utilisation."""
    whole = gpu.without(*(name for name in gpu.keys if name.startswith("utilization.")))
    return replace(whole.having(mig__mode=1), mig=devices)


def make_h100_node(gpus: int = 8, *, node: int = 0) -> StandInState:
    """Return a node of H100s."""
    return StandInState(gpus=tuple(make_h100(index, node=node) for index in range(gpus)))


def _common_keys(index: int) -> dict[str, Value]:
    keys: dict[str, Value] = {
        "serial": f"16{index:011d}",
        "vbios": "96.00.74.00.01",
        "pci.bus_id": f"00000000:{_BUS[index % len(_BUS)]:02X}:{index // len(_BUS):02X}.0",
        "numa_node": index // 4 % 2,
        "brand": 2,
        "persistence_mode": 1,
        "compute_mode": 0,
        "utilization.gpu_percent": 10 * (index + 1) % 101,
        "utilization.memory_percent": 5 * (index + 1) % 101,
        "utilization.encoder_percent": 0,
        "utilization.decoder_percent": 0,
        "power.usage_mw": 100_000 + 10_000 * index,
        "power.average_mw": 100_000 + 10_000 * index,
        "power.instant_mw": 101_000 + 10_000 * index,
        "energy_mj": 1_000_000 * (index + 1),
        "temperature_c": 40 + index,
        "temperature.memory_c": 50 + index,
        "temperature.threshold.shutdown_c": 92,
        "temperature.threshold.slowdown_c": 89,
        "temperature.threshold.gpu_max_c": 87,
        "pstate": 0,
        "clocks_event.reasons": 0,
        "clocks_event.supported": 0x1FF,
        "violation.power_ns": 0,
        "violation.thermal_ns": 0,
        "ecc.mode": 1,
        "ecc.pending": 1,
        "remap.corrected": 0,
        "remap.uncorrected": 0,
        "remap.pending": 0,
        "remap.failure": 0,
        "remap.histogram.max": 640,
        "pcie.width": 16,
        "pcie.max_width": 16,
        "pcie.replays": 0,
        "pcie.tx_kib_per_s": 100 * (index + 1),
        "pcie.rx_kib_per_s": 200 * (index + 1),
        "mig.mode": 0,
        "accounting.mode": 0,
    }
    for span in ("volatile", "aggregate"):
        for kind in ("corrected", "uncorrected"):
            for place in ("dram", "sram"):
                keys[f"ecc.{span}.{kind}.{place}"] = 0
    return keys
