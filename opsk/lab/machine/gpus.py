"""Computes what NVML reports on a simulated node: H100s that idle, work for their job, or are unhealthy."""

from __future__ import annotations

import math
from dataclasses import replace

from opsk.costmodel.machine import STATE_FRACTIONS
from opsk.hardware.xids import XidClass, xid
from opsk.lab.machine.machine import LOST_BY_XID, Machine
from opsk.lab.machine.nvml_gpus import make_h100
from opsk.lab.machine.nvml_state import StandInEvent, StandInGpu, StandInProcess, StandInState, Value
from opsk.lab.machine.work import NodeJob, Work
from opsk.units import GIB

LINKS = 18
IDLE_W, BUSY_W, LIMIT_W = 72.0, 640.0, 700.0
"""``BUSY_W`` is for jobs without a prediction; for others it is the power of their plan."""
WAITING_W = STATE_FRACTIONS.waiting * LIMIT_W
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


def compute_power_w(machine: Machine, gpu: int, job: NodeJob | None) -> float:
    """Return the power of a GPU [W]: 0 where it is lost, and slightly different each time when it works.

    Parameters
    ----------
    job
        The job that it works for: at a lower pace than predicted it waits in between. ``None`` for an idle GPU.
    """
    if LOST_BY_XID in machine.xids_of(gpu):
        return 0.0
    if job is None:
        return IDLE_W + gpu
    wave = math.sin(machine.at_unix_s / 7 + gpu)
    planned_w = job.power_w(gpu)
    if planned_w is None:
        return BUSY_W + 25 * wave + 5 * gpu
    mean_w = job.pace * planned_w + (1.0 - job.pace) * min(planned_w, WAITING_W)
    return min(mean_w * (1.0 + _POWER_WAVE * wave), LIMIT_W)


def build_gpu_state(machine: Machine, work: Work) -> StandInState:
    """Return all GPUs of the node as its counters, its work and its faults have them."""
    gpus = tuple(_build_gpu(machine, index, work.busy_job_of(index)) for index in range(machine.gpus))
    events = tuple(
        StandInEvent(number=each.number, gpu=each.gpu, datum=each.xid) for each in machine.told if each.gpu < len(gpus)
    )
    return StandInState(gpus=gpus, since_s=machine.at_unix_s, events=events)


def _build_gpu(machine: Machine, index: int, job: NodeJob | None) -> StandInGpu:
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


_ACTIVITIES = {1: 1.0, 2: 0.97, 3: 0.33, 5: 0.52, 10: 0.58}
"""GPM's numbers of graphics, SM, occupancy, tensor and DRAM activity, each as a share of the first."""


def _compute_used_bytes(card: StandInGpu, index: int, job: NodeJob | None) -> int:
    """Return the memory in use on a GPU [bytes]: that of its job's plan, at most what the card has."""
    if job is None:
        return _IDLE_BYTES
    planned_bytes = job.memory_bytes(index)
    room_bytes = int(card.keys["memory.total_bytes"]) - int(card.keys["memory.reserved_bytes"])
    return _BUSY_BYTES if planned_bytes is None else min(max(round(planned_bytes), _IDLE_BYTES), room_bytes)


def _compute_held_back_s(machine: Machine, index: int) -> float:
    """Return for how long the power limit has held a GPU back [s]: a share of the time that it has worked."""
    return _SHARE_HELD_BACK * machine.link_bytes[index] / LINK_BYTES_PER_S


def _build_links(machine: Machine, index: int) -> dict[str, Value]:
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


def _apply_faults(machine: Machine, index: int, gpu: StandInGpu) -> StandInGpu:
    """Return a GPU with the effects of its XIDs, and of the state of its NVLink domain."""
    keys: dict[str, Value] = {}
    for code in machine.xids_of(index):
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
