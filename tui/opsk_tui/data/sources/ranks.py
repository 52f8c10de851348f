"""Builds the rank table of a job: the GPU of each rank and its readings, one entry per rank."""

from __future__ import annotations

import numpy as np

from opsk.workload.advice_record import AdviceRecord
from opsk_tui.data.feed_port import RankTable
from opsk_tui.data.sources.readings import MEMORY_USED, Readings
from opsk_tui.data.view import GpuTable, JobView


def build_rank_table(job: JobView, readings: Readings, gpus: GpuTable | None) -> RankTable | None:
    """Return the ranks of a job: node after node in Slurm's order, on each its GPUs in order, as srun places them.

    ``None`` where neither Slurm nor the table has the job's GPUs.
    """
    record = job.record
    gpu_slots: list[tuple[str, int]] = []
    for node in record.nodes:
        held = record.gpu_indices.get(node)
        if held is None and gpus is not None and node in readings.rows and readings.rows[node] < len(gpus.job):
            held = tuple(np.flatnonzero(gpus.job[readings.rows[node]] == record.id).tolist())
        gpu_slots += [(node, index) for index in sorted(held or ())]
    if not gpu_slots:
        return None
    rows = np.array([readings.rows.get(node, -1) for node, _ in gpu_slots])
    slots = np.array([slot for _, slot in gpu_slots])
    values = {}
    memory = None
    if gpus is not None:
        inside = (rows >= 0) & (rows < gpus.job.shape[0]) & (slots < gpus.job.shape[1])
        cells = np.where(inside, rows, 0), np.where(inside, slots, 0)
        values = {
            metric: np.where(inside, array[cells], np.float32(np.nan)).astype(np.float32)
            for metric, array in gpus.values.items()
        }
        used = readings.gpu.get(MEMORY_USED)
        if used is not None and used.shape == gpus.job.shape:
            memory = np.where(inside, used[cells], np.nan)
    return RankTable(
        nodes=tuple(node for node, _ in gpu_slots),
        gpus=slots.astype(np.int16),
        values=values,
        memory_bytes=memory,
        places=format_plan_positions(job.advice, len(gpu_slots)),
    )


def format_plan_positions(advice: AdviceRecord | None, ranks: int) -> tuple[str, ...]:
    """Return each rank's position in the plan, in the order of Megatron and most others: TP, CP, DP, then PP.

    Empty where the plan does not fill exactly these ranks.
    """
    if advice is None or not (advice.tp or advice.pp or advice.dp):
        return ()
    sizes = {"tp": advice.tp or 1, "cp": advice.cp or 1, "dp": advice.dp or 1, "pp": advice.pp or 1}
    if np.prod(list(sizes.values())) != ranks:
        return ()
    shown = [name for name, size in sizes.items() if size > 1] or ["dp"]
    positions = []
    for rank in range(ranks):
        indices, rest = {}, rank
        for name, size in sizes.items():
            indices[name] = rest % size
            rest //= size
        positions.append(" ".join(f"{name}{indices[name]}" for name in ("tp", "pp", "cp", "dp") if name in shown))
    return tuple(positions)
