"""How much energy do the GPUs of one step take? First order: idle power always, the rest while they work.

Energy = step time x GPUs x (idle + busy share x (board limit - idle)). Hosts, switches, storage and cooling are left
out.
"""

from __future__ import annotations

from opsk.costmodel.machine import Machine
from opsk.costmodel.shape import ShapeColumns
from opsk.costmodel.shares import Shares
from opsk.costmodel.table import EnergyTable, Range, TimeTable

IDLE_FRACTION = 0.2
"""Power of an idle GPU in a job over its limit: A100 SXM 60 to 90 of 400 W, H100 SXM 110 to 140 of 700 W."""
BUSY = ("compute", "recompute", "optimizer")
"""Parts of the step in which the GPU computes; while it waits or communicates it is taken as idle."""


def step_energy(model: ShapeColumns, shares: Shares, time: TimeTable, machine: Machine) -> EnergyTable:
    """Return the energy of one step of all GPUs, per step and per token [J], and the mean power of one GPU [W]."""
    idle_w, limit_w = IDLE_FRACTION * machine.tdp_w, machine.tdp_w
    busy = sum(time.components[name] for name in BUSY) / time.step_s.expected
    gpu_w = idle_w + busy * (limit_w - idle_w)
    job_w = gpu_w * shares.gpus
    tokens = model.seq * shares.global_batch
    step_j = Range(low=job_w * time.step_s.low, expected=job_w * time.step_s.expected, high=job_w * time.step_s.high)
    return EnergyTable(
        step_j=step_j,
        j_per_token=Range(low=step_j.low / tokens, expected=step_j.expected / tokens, high=step_j.high / tokens),
        gpu_w=gpu_w,
    )
