"""Machines for tests of NVML: nodes of H100s, an A100 on PCIe, and MIG devices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from opsk.lab.machine.gpus import build_common_keys, gpu_uuid, make_h100
from opsk.lab.machine.nvml_standin import StandInGpu, StandInMig, StandInState, Value
from opsk.units import GIB, MIB


def make_a100(index: int, *, node: int = 0) -> StandInGpu:
    """Return an A100 40 GB on PCIe: no GPM, no NVLink, no fabric."""
    keys: dict[str, Value] = {
        **build_common_keys(index),
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


def with_gpu(state: StandInState, index: int, gpu: StandInGpu) -> StandInState:
    """Return a machine with another GPU at an index."""
    return replace(state, gpus=(*state.gpus[:index], gpu, *state.gpus[index + 1 :]))
