"""Requests to Slurm and the sizes that slurmctld makes of them, on nodes of 8 GPUs and 224 CPUs.

The numbers are those of slurmctld 22.05, 24.11 and 26.05: ``tests/integration/slurm/test_derived_sizes.py`` asks it
again. ``None`` is left to what is free when the job starts, or differs between the releases.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RequestedSizes:
    """Options of sbatch, and what the job gets by them."""

    options: str
    nodes: int | None
    gpus: int | None
    ntasks: int | None


SIZES = (
    RequestedSizes("--gres=gpu:4", 1, 4, None),
    RequestedSizes("--gpus-per-node=h100:4", 1, 4, None),
    RequestedSizes("--gres=gpu:8 --exclusive", 1, 8, None),
    RequestedSizes("-N2-2 --gpus-per-node=4", 2, 8, None),
    RequestedSizes("-N2 --gpus=2", 2, 2, None),
    RequestedSizes("-N2 --gpus=5", 2, 5, None),
    RequestedSizes("-N2 --gpus-per-task=1", 2, 2, None),
    RequestedSizes("-N2 --gpus-per-task=1 --ntasks-per-node=4", 2, 8, 8),
    RequestedSizes("--gpus-per-task=2 --ntasks=8 --ntasks-per-node=4", 2, 16, 8),
    RequestedSizes("--gpus-per-task=1 --ntasks=16", None, 16, 16),
    RequestedSizes("--gpus=8 --gpus-per-node=4", 2, 8, None),
    RequestedSizes("--gpus=8 --gpus-per-task=2", None, 8, 4),
    RequestedSizes("--gpus=16 --gpus-per-node=8 --ntasks=16", 2, 16, 16),
    RequestedSizes("--ntasks-per-node=8 --gres=gpu:8", 1, 8, 8),
    RequestedSizes("--ntasks=8 --ntasks-per-node=4 --gres=gpu:4", 2, 8, 8),
    RequestedSizes("--ntasks=9 --ntasks-per-node=4 --gres=gpu:4", 3, 12, 9),
    RequestedSizes("--ntasks=1 --gpus=8", 1, 8, 1),
    RequestedSizes("--ntasks=8 --gres=gpu:8", None, None, 8),
    RequestedSizes("--ntasks-per-gpu=1 --gres=gpu:4", None, None, None),
    RequestedSizes("--ntasks-per-gpu=1 --gpus=16", None, 16, 16),
    RequestedSizes("--ntasks-per-gpu=2 --ntasks=8", None, 4, 8),
    RequestedSizes("--ntasks-per-gpu=2 --gpus-per-node=4 -N2", 2, 8, 16),
    RequestedSizes("-N4 --ntasks=2 --gres=gpu:8", 2, 16, 2),
    RequestedSizes("-N2 --ntasks=7 --gres=gpu:8", 2, 16, 7),
    RequestedSizes("-N2 --gpus-per-node=4 --cpus-per-gpu=14 --mem-per-gpu=100G", 2, 8, None),
    RequestedSizes("-w n[0-1] --gres=gpu:8", 2, 16, None),
    RequestedSizes("-w n[0-1] --ntasks-per-node=2 --gres=gpu:8", 2, 16, 4),
    RequestedSizes("-w n0,n2 -N2 --gpus-per-node=8", 2, 16, None),
    RequestedSizes("--gres=gpu:2 --gres=gpu:4", 1, 4, None),
)
REFUSED_BY_NEWER = RequestedSizes("--gpus-per-node=4 --gres=gpu:8", 1, 8, None)
"""26.05 refuses two counts of one node's GPUs."""
