"""Does what a job keeps in host memory fit into what it asks of Slurm? Said only where it surely does not.

What is compared is the least: states that were moved to the host as the cost model counts them on a GPU, without pinned
buffers, gradients, the framework and its data loaders.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from opsk.costmodel.predict import predict_one
from opsk.costmodel.table import PredictionTable
from opsk.hardware.spec import ClusterSpec
from opsk.text import format_bytes
from opsk.workload.memory_settings import fraction_of
from opsk.workload.model import ModelShape
from opsk.workload.plan import Offload, Plan
from opsk.workload.workload import Problem, Workload
from opsk_jobcheck.scripts.settings.deepspeed_config import ELSEWHERE, PARTLY
from opsk_jobcheck.submission.request import MEMORY_OPTIONS

_FRACTION = "optimizer.offload_fraction"
_OPEN = (PARTLY, ELSEWHERE)
"""Options of a workload that moves a part only, or elsewhere: what the host has to hold is not known."""
STATE_INPUTS = frozenset(
    {"model.layers", "model.hidden", "model.ffn", "model.gated_mlp", "model.experts", "model.expert_ffn"}
    | {"model.vocab", "plan.sharding", "plan.states", "plan.precision"}
)
"""Inputs that the size of the states hangs on most."""
SURE, SURE_WHERE_GUESSED = 0.8, 0.5
"""Shares of the predicted size that are taken for sure."""
_SHARE_OF_CPUS = 2
"""Slurm gives whole cores: a job may get, and memory is counted by, twice the CPUs that it asks for."""
_EACH = {"mem": "node", "mem-per-cpu": "cpu", "mem-per-gpu": "gpu"}
_STATES = ("weights", "optimizer")
_SIZE = re.compile(r"\s*([0-9]{1,12})([KMGT]?)B?\s*", re.IGNORECASE)
_UNITS = {"K": 1 << 10, "": 1 << 20, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


@dataclass(frozen=True, slots=True, kw_only=True)
class HostMemoryAsked:
    """Host memory as asked of Slurm: so many bytes for each node, CPU or GPU (``each``), and in which words."""

    size_bytes: int
    each: str
    words: str

    def per_node_bytes(self, *, gpus_per_node: int | None, cpus_per_node: int | None) -> int | None:
        """Return the most that a node's part of the job may have; ``None`` where that cannot be told."""
        if self.each == "node":
            return self.size_bytes
        count = gpus_per_node if self.each == "gpu" else cpus_per_node
        return self.size_bytes * count * (_SHARE_OF_CPUS if self.each == "cpu" else 1) if count else None


def memory_asked(options: Mapping[str, str]) -> HostMemoryAsked | None:
    """Return what sbatch's options ask for; ``None`` for nothing, all of a node, several at once, and what is no size.

    ``--mem`` and its kin count in MiB unless a letter says otherwise, by powers of 1024: sbatch(1).
    """
    given = [name for name in MEMORY_OPTIONS if options.get(name)]
    found = _SIZE.fullmatch(options[given[0]]) if len(given) == 1 else None
    if found is None or not int(found[1]):
        return None
    words = f"--{given[0]}={options[given[0]].strip()[:40]}"
    return HostMemoryAsked(size_bytes=int(found[1]) * _UNITS[found[2].upper()], each=_EACH[given[0]], words=words)


def why_partly(options: Iterable[tuple[str, str]]) -> str | None:
    """Return why the GPU memory of a workload cannot be told that moves a part of its states only; ``None`` else."""
    given = dict(options)
    fraction = given.get(_FRACTION)
    is_known = fraction is None or fraction_of(fraction) is not None
    if PARTLY not in given and (is_known or "optimizer.offload" not in given):
        return None
    return "a part of the optimizer is kept in host memory, and opsk predicts all of it there or none"


def host_shortage(
    asked: HostMemoryAsked | None,
    workload: Workload,
    model: ModelShape,
    plan: Plan,
    cluster: ClusterSpec,
    prediction: PredictionTable,
    *,
    cpus_per_node: int | None = None,
    is_guessed: bool = False,
) -> Iterator[Problem]:
    """Yield a problem where the states that a job keeps in host memory take more than it asks for on a node.

    Stages of a pipeline hold different parts of the model, so nothing is said of those. Where the size is guessed, or
    even where it is not, a part of it alone is taken for sure.
    """
    is_moved = plan.offload in (Offload.OPTIMIZER, Offload.OPTIMIZER_AND_WEIGHTS)
    gpus = workload.plan.gpus_per_node
    if asked is None or not is_moved or plan.pp > 1 or not gpus or any(name in _OPEN for name, _ in workload.options):
        return
    most = asked.per_node_bytes(gpus_per_node=gpus, cpus_per_node=cpus_per_node)
    if most is None:
        return
    at_home = predict_one(model, replace(plan, offload=Offload.NONE), cluster).memory.components
    moved = sum(float(at_home[name]) - float(prediction.memory.components[name]) for name in _STATES)
    if moved * gpus * (SURE_WHERE_GUESSED if is_guessed else SURE) > most:
        yield Problem(
            what=f"states in host memory take about {format_bytes(moved * gpus)} a node, and {asked.words} "
            f"allows {format_bytes(most)}",
            hint="ask for more, or for all that a node has: --mem=0",
        )
