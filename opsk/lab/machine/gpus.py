"""Computes what NVML reports on a simulated node: H100s that idle, work for their job, or are unhealthy.

Every number of an idle GPU follows from its index, so that an expectation can be worked out by hand: the GPU with index
*i* is at ``40 + i`` degrees, draws ``100 + 10 i`` W and has used ``(i + 1)`` kJ.
"""

from __future__ import annotations

import math
from dataclasses import replace

from opsk.hardware.xids import XidClass, xid
from opsk.lab.machine.machine import LOST_BY_XID, SimulatedNode
from opsk.lab.machine.nvml_standin import StandInEvent, StandInGpu, StandInProcess, StandInState, Value
from opsk.lab.machine.work import NodeJob, Work
from opsk.units import GIB, MIB

_BUS = (0x1B, 0x43, 0x52, 0x61, 0x9D, 0xC3, 0xD1, 0xDF)
LINKS = 18
IDLE_W, BUSY_W, LIMIT_W = 72.0, 640.0, 700.0
"""``BUSY_W`` is for jobs without a prediction; for others it is the power of their plan."""
_POWER_WAVE = 0.02
LINK_BYTES_PER_S = 120e9
_KIB = 1024
_IDLE_BYTES, _BUSY_BYTES = 1 * GIB, 68 * GIB
"""Memory in use on a GPU without a job, and with one that has no plan; the first is the driver's, no process's."""
_SHARE_HELD_BACK = 0.1
"""Of its working time, how much the power limit slows a GPU down."""
_MEMORY_XIDS = frozenset({48, 63, 64, 94, 95})
_REMAP_FAILED_XID = 64
_NVLINK_XID = 74
_IDLE, _SW_POWER_CAP = 0x1, 0x4
_ACTIONS = {
    XidClass.RESET: 1, XidClass.REBOOT: 2, XidClass.RESET_WHEN_IDLE: 1, XidClass.DRAIN: 4, XidClass.NVLINK: 1,
}  # fmt: skip
"""The recovery action that the driver requests, by the class of the XID (nvmlDeviceGpuRecoveryAction_t)."""
_FABRIC_HEALTHY = 0x2 | 0x2 << 2 | 0x2 << 4 | 0x2 << 6 | 0x1 << 8
"""NVML's mask: bandwidth, route recovery, route and access timeouts not bad; configuration as it should be."""
_FABRIC_UNHEALTHY = 0x1 | 0x1 << 2 | 0x1 << 4 | 0x2 << 6 | 0x1 << 8
_ACTIVITIES = {1: 1.0, 2: 0.97, 3: 0.33, 5: 0.52, 10: 0.58}
"""GPM's numbers of graphics, SM, occupancy, tensor and DRAM activity, each as a share of the first."""


def gpu_uuid(index: int, *, node: int = 0) -> str:
    """Return the UUID of a lab's GPU."""
    return f"GPU-{0x0A5C0000 + node:08x}-0000-4000-8000-{index:012x}"


def make_h100(index: int, *, node: int = 0, links: int = 18) -> StandInGpu:
    """Return an H100 SXM of a node with NVSwitch: GPM, row remapper, HBM temperature, no fan."""
    keys: dict[str, Value] = {
        **build_common_keys(index),
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


def build_common_keys(index: int) -> dict[str, Value]:
    """Return the keys that all models have, with the values of an idle GPU of this index."""
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


def compute_power_w(machine: SimulatedNode, gpu: int, job: NodeJob | None) -> float:
    """Return the power of a GPU [W]: 0 where it is lost, and slightly different each time when it works.

    Parameters
    ----------
    job
        The job that it works for: at a lower pace than predicted it waits in between. ``None`` for an idle GPU.
    """
    if LOST_BY_XID in machine.list_xids(gpu):
        return 0.0
    if job is None:
        return IDLE_W + gpu
    wave = math.sin(machine.at_unix_s / 7 + gpu)
    planned_w = job.power_w(gpu)
    if planned_w is None:
        return BUSY_W + 25 * wave + 5 * gpu
    from opsk.costmodel.machine import STATE_FRACTIONS  # imports numpy, which commands of the lab do not need

    waiting_w = min(planned_w, STATE_FRACTIONS.waiting * LIMIT_W)
    mean_w = job.pace * planned_w + (1.0 - job.pace) * waiting_w
    return min(mean_w * (1.0 + _POWER_WAVE * wave), LIMIT_W)


def build_gpu_state(machine: SimulatedNode, work: Work) -> StandInState:
    """Return all GPUs of the node as its counters, its work and its faults have them."""
    gpus = tuple(_build_gpu(machine, index, work.find_busy_job(index)) for index in range(machine.gpus))
    events = tuple(
        StandInEvent(number=each.number, gpu=each.gpu, datum=each.xid)
        for each in machine.reported_xids
        if each.gpu < len(gpus)
    )
    return StandInState(gpus=gpus, since_s=machine.at_unix_s, events=events)


def _build_gpu(machine: SimulatedNode, index: int, job: NodeJob | None) -> StandInGpu:
    busy = job is not None
    card = make_h100(index, node=machine.number, links=LINKS)
    used_bytes = _compute_used_bytes(card, index, job)
    watts = machine.power_w[index]
    wave = 3 * math.sin(machine.at_unix_s / 5 + index)
    active = 88 + wave if busy else 0.0
    keys: dict[str, Value] = {
        "utilization.gpu_percent": round(min(99.0, active + 8)) if busy else 0,
        "utilization.memory_percent": round(active / 2),
        "memory.used_bytes": used_bytes,
        "power.usage_mw": round(watts * 1000),
        "power.average_mw": round(watts * 1000),
        "power.instant_mw": round(watts * 1000),
        "energy_mj": round(machine.energy_j[index] * 1000),
        "energy_mj.rate": round(watts * 1000),
        "temperature_c": round(30 + watts / 20 + index),
        "temperature.memory_c": round(38 + watts / 17 + index),
        "temperature.margin_c": round(57 - watts / 20 - index),
        "clock.graphics_mhz": 1755 if busy else 345,
        "clock.sm_mhz": 1755 if busy else 345,
        "clocks_event.reasons": _SW_POWER_CAP if busy else _IDLE,
        "violation.power_ns": round(_compute_held_back_s(machine, index) * 1e9),
        "violation.power_ns.rate": round(_SHARE_HELD_BACK * 1e9) if busy else 0,
        "remap.histogram.max": 2560,
        "remap.histogram.high": 0,
        "remap.histogram.partial": 0,
        "remap.histogram.low": 0,
        "remap.histogram.none": 0,
        "fabric.health_mask": _FABRIC_HEALTHY,
        "fabric.health_summary": 1,
    }
    keys |= {f"gpm.{number}": round(active * share, 1) for number, share in _ACTIVITIES.items()}
    keys |= _build_links(machine, index)
    gpu = card.with_keys(keys)
    return _apply_faults(machine, index, replace(gpu, processes=_build_processes(job, index, used_bytes)))


def _compute_used_bytes(card: StandInGpu, index: int, job: NodeJob | None) -> int:
    """Return the memory in use on a GPU [bytes]: that of its job's plan, at most what the card has."""
    if job is None:
        return _IDLE_BYTES
    planned_bytes = job.memory_bytes(index)
    room_bytes = int(card.keys["memory.total_bytes"]) - int(card.keys["memory.reserved_bytes"])
    return _BUSY_BYTES if planned_bytes is None else min(max(round(planned_bytes), _IDLE_BYTES), room_bytes)


def _compute_held_back_s(machine: SimulatedNode, index: int) -> float:
    """Return for how long the power limit has held a GPU back [s]: a share of the time that it has worked."""
    return _SHARE_HELD_BACK * machine.link_bytes[index] / LINK_BYTES_PER_S


def _build_links(machine: SimulatedNode, index: int) -> dict[str, Value]:
    """Return the traffic of each NVLink; all are equally busy."""
    moved_kib = int(machine.link_bytes[index] / LINKS / _KIB)
    rate = int(machine.link_bytes_per_s[index] / LINKS / _KIB)
    return {
        f"nvlink.{link}.{way}_kib{of}": value
        for link in range(LINKS)
        for way in ("tx", "rx")
        for of, value in (("", moved_kib), (".rate", rate))
    }


def _build_processes(job: NodeJob | None, gpu: int, used_bytes: int) -> tuple[StandInProcess, ...]:
    """Return the job's process on a GPU: one each, in turn."""
    if job is None:
        return ()
    pids = job.pids
    pid = pids[(len(pids) - 1 - job.gpus.index(gpu)) % len(pids)]
    return (StandInProcess(pid=pid, memory_used_bytes=used_bytes - _IDLE_BYTES),)


def _apply_faults(machine: SimulatedNode, index: int, gpu: StandInGpu) -> StandInGpu:
    """Return a GPU with the effects of its XIDs, and of the state of its NVLink domain."""
    keys: dict[str, Value] = {}
    for code in machine.list_xids(index):
        if action := _ACTIONS.get(xid(code).class_):
            keys["recovery_action"] = action
        if code == LOST_BY_XID:
            keys["lost"] = 1
        if code in _MEMORY_XIDS:
            keys |= {
                "ecc.volatile.uncorrected.dram": 1, "ecc.aggregate.uncorrected.dram": 1,
                "remap.uncorrected": 1, "remap.pending": int(code != _REMAP_FAILED_XID),
                "remap.failure": int(code == _REMAP_FAILED_XID),
                "remap.histogram.max": 2559, "remap.histogram.partial": 1,
            }  # fmt: skip
        if code == _NVLINK_XID:
            keys |= {"nvlink.0.state": 0, "nvlink.0.error.replay": 12, "nvlink.0.error.recovery": 3}
    if machine.is_domain_broken:
        keys |= {f"nvlink.{link}.state": 0 for link in range(LINKS)}
        keys |= {"fabric.health_mask": _FABRIC_UNHEALTHY, "fabric.health_summary": 2}
    return gpu.with_keys(keys)
