"""Which rank of a job runs on which GPU, and what does that GPU do? One entry a rank."""

from __future__ import annotations

import numpy as np

from opsk.workload.advice_record import AdviceRecord
from opsk_tui.data.feed_port import RankTable
from opsk_tui.data.sources.readings import MEMORY_USED, Readings
from opsk_tui.data.view import GpuTable, JobView


def rank_table(job: JobView, readings: Readings, gpus: GpuTable | None) -> RankTable | None:
    """Return the ranks of a job: node after node in Slurm's order, on each its GPUs in order, as srun lays them out.

    ``None`` where Slurm does not tell which GPUs the job has and the table does not either.
    """
    record = job.record
    seats: list[tuple[str, int]] = []
    for node in record.nodes:
        held = record.gpu_indices.get(node)
        if held is None and gpus is not None and node in readings.rows and readings.rows[node] < len(gpus.job):
            held = tuple(np.flatnonzero(gpus.job[readings.rows[node]] == record.id).tolist())
        seats += [(node, index) for index in sorted(held or ())]
    if not seats:
        return None
    rows = np.array([readings.rows.get(node, -1) for node, _ in seats])
    slots = np.array([slot for _, slot in seats])
    values = {}
    memory = None
    if gpus is not None:
        inside = (rows >= 0) & (rows < gpus.job.shape[0]) & (slots < gpus.job.shape[1])
        at = np.where(inside, rows, 0), np.where(inside, slots, 0)
        values = {
            metric: np.where(inside, array[at], np.float32(np.nan)).astype(np.float32)
            for metric, array in gpus.values.items()
        }
        used = readings.gpu.get(MEMORY_USED)
        if used is not None and used.shape == gpus.job.shape:
            memory = np.where(inside, used[at], np.nan)
    return RankTable(
        nodes=tuple(node for node, _ in seats),
        gpus=slots.astype(np.int16),
        values=values,
        memory_bytes=memory,
        places=places_of(job.advice, len(seats)),
    )


def places_of(advice: AdviceRecord | None, ranks: int) -> tuple[str, ...]:
    """Return each rank's place in the plan, in the order that Megatron and most others use: TP, CP, DP, then PP.

    Empty where the plan does not fill exactly these ranks.
    """
    if advice is None or not (advice.tp or advice.pp or advice.dp):
        return ()
    sizes = {"tp": advice.tp or 1, "cp": advice.cp or 1, "dp": advice.dp or 1, "pp": advice.pp or 1}
    if np.prod(list(sizes.values())) != ranks:
        return ()
    shown = [name for name, size in sizes.items() if size > 1] or ["dp"]
    found = []
    for rank in range(ranks):
        words, rest = {}, rank
        for name, size in sizes.items():
            words[name] = rest % size
            rest //= size
        found.append(" ".join(f"{name}{words[name]}" for name in ("tp", "pp", "cp", "dp") if name in shown))
    return tuple(found)
