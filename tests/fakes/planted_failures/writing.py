"""How a planted job is written down: one log a rank, one for all, one a node; kernel logs in three forms."""

from __future__ import annotations

import gzip
import os
from datetime import UTC, datetime
from pathlib import Path

from tests.fakes.planted_failures.world import World


def written(world: World, folder: Path) -> tuple[list[Path], list[tuple[str, Path]]]:
    """Write all logs; return those of the job, and those of kernels by node."""
    logs = {
        "per_rank": _per_rank, "torchrun_dirs": _torchrun_dirs, "per_node": _per_node,
        "srun_l": _together, "rank_labels": _together, "mpi": _together,
    }[world.layout](world)  # fmt: skip
    paths = []
    for name, lines in logs.items():
        if not lines:
            continue
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        data = "".join(line if line.startswith("\r") else f"{line}\n" for line in lines).encode(
            "utf-8", "surrogateescape"
        )
        if world.layout == "per_rank" and world.rng.random() < 0.1:
            path = path.with_name(path.name + ".gz")
            data = gzip.compress(data, mtime=0)
        path.write_bytes(data)
        os.utime(path, (world.end_s + 5, world.end_s + 5))
        paths.append(path)
    return paths, _kernels(world, folder)


def _sorted(*parts: list[tuple[float, int, str]]) -> list[str]:
    return [line for _, _, line in sorted(entry for part in parts for entry in part)]


def _kept(world: World) -> dict[int, list[tuple[float, int, str]]]:
    return {rank: lines for rank, lines in world.said.items() if rank not in world.lost_logs}


def _per_rank(world: World) -> dict[str, list[str]]:
    form = world.rng.choice(
        ["train-{job}-{rank}.out", "rank{rank}.log", "run_{job}_{node}_rank{rank}.log", "log.rank_{rank}.txt"]
    )
    logs = {f"slurm-{world.job_id}.out": _sorted(world.launched)}
    for rank, lines in sorted(_kept(world).items()):
        logs[form.format(job=world.job_id, rank=rank, node=world.node(rank))] = _sorted(lines)
    return logs


def _torchrun_dirs(world: World) -> dict[str, list[str]]:
    logs = {f"slurm-{world.job_id}.out": _sorted(world.launched)}
    for rank, lines in sorted(_kept(world).items()):
        logs[f"{world.node(rank)}/attempt_0/{world.local(rank)}/stderr.log"] = _sorted(lines)
    return logs


def _per_node(world: World) -> dict[str, list[str]]:
    logs = {f"slurm-{world.job_id}.out": _sorted(world.launched)}
    for node in world.nodes:
        entries = []
        for rank in world.ranks_of(node):
            mark = f"[rank{rank}]: "
            entries += [
                (at, count, line if f"[rank{rank}]" in line[:16] else mark + line)
                for at, count, line in _kept(world).get(rank, [])
            ]
        logs[f"train_{world.job_id}.{node}.log"] = _sorted(entries)
    return logs


def _together(world: World) -> dict[str, list[str]]:
    width = len(str(world.world - 1))
    marks = {"srun_l": f"{{rank:{width}d}}: ", "rank_labels": "[rank{rank}]: ", "mpi": "[1,{rank}]<stderr>:"}
    entries = list(world.launched)
    for rank, lines in _kept(world).items():
        mark = marks[world.layout].format(rank=rank)
        for at, count, line in lines:
            has_own = world.layout == "rank_labels" and line.startswith(f"[rank{rank}]")
            entries.append((at, count, line if has_own else mark + line.replace("\r", "")))
    return {f"slurm-{world.job_id}.out": _sorted(entries)}


def _kernels(world: World, folder: Path) -> list[tuple[str, Path]]:
    found = []
    for node in world.kernel_nodes:
        # A clock since boot says nothing without the boot's time, so those forms are left out.
        form = world.rng.choice(["dmesg_t", "journal", "syslog", "dmesg_t", "dmesg_t"])
        lines = [_kernel_line(form, node, at, text) for at, _, text in sorted(world.kernel.get(node, []))]
        path = folder / f"kernel.{node}.log"
        path.write_text("\n".join(lines) + "\n")
        os.utime(path, (world.end_s + 5, world.end_s + 5))
        found.append((node, path))
    return found


def _kernel_line(form: str, node: str, clock: float, text: str) -> str:
    at = datetime.fromtimestamp(clock, UTC)
    if form == "dmesg_t":
        return f"[{at:%a %b} {at.day:2d} {at:%H:%M:%S %Y}] {text}"
    if form == "journal":
        return f"{at:%Y-%m-%dT%H:%M:%S}.{at.microsecond:06d}+00:00 {node} kernel: {text}"
    return f"{at:%b} {at.day:2d} {at:%H:%M:%S} {node} kernel: {text}"


def record(world: World) -> dict[str, object]:
    """Return what Slurm would say of the job, as plain values."""
    return {
        "job_id": world.job_id, "user": "alice", "name": "train", "state": world.state,
        "exit_code": world.exit_code, "exit_signal": world.exit_signal, "cancelled_by": world.cancelled_by,
        "nodes": tuple(world.nodes), "tasks": world.world, "start_s": world.start_s, "end_s": world.end_s,
        "time_limit_s": world.time_limit_s, "partition": "gpu", "node_reasons": dict(world.node_reasons),
    }  # fmt: skip
