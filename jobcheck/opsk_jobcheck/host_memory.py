"""Checks whether the states that a job offloads to host memory exceed its Slurm memory request.

A problem is reported only where the request is certainly too small. The comparison uses a lower bound: the offloaded
states as the cost model counts them on a GPU, without pinned buffers, gradients, the framework and its data loaders.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from opsk.costmodel.predict import predict_one
from opsk.costmodel.table import PredictionTable
from opsk.hardware.spec import ClusterSpec
from opsk.text import format_bytes
from opsk.workload.memory_settings import parse_fraction
from opsk.workload.model import ModelShape
from opsk.workload.plan import Offload, Plan
from opsk.workload.workload import Problem, Workload
from opsk_jobcheck.scripts.settings.deepspeed_config import ELSEWHERE, PARTLY
from opsk_jobcheck.submission.request import MEMORY_OPTIONS

_FRACTION = "optimizer.offload_fraction"
_OPEN = (PARTLY, ELSEWHERE)
"""Options of a workload that offloads only partly, or elsewhere: the host memory that it needs is unknown."""
STATE_INPUTS = frozenset(
    {"model.layers", "model.hidden", "model.ffn", "model.gated_mlp", "model.experts", "model.expert_ffn"}
    | {"model.vocab", "plan.sharding", "plan.states", "plan.precision"}
)
"""Inputs that determine the size of the states most."""
SURE, SURE_WHERE_GUESSED = 0.8, 0.5
"""Shares of the predicted size that count as certain."""
_SHARE_OF_CPUS = 2
"""Slurm allocates whole cores: a job may get, and memory is counted by, twice the CPUs that it requests."""
_EACH = {"mem": "node", "mem-per-cpu": "cpu", "mem-per-gpu": "gpu"}
_STATES = ("weights", "optimizer")
_SIZE = re.compile(r"\s*([0-9]{1,12})([KMGT]?)B?\s*", re.IGNORECASE)
_UNITS = {"K": 1 << 10, "": 1 << 20, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


@dataclass(frozen=True, slots=True, kw_only=True)
class HostMemoryRequest:
    """Host memory requested from Slurm: bytes for each node, CPU or GPU (``each``), and the option text."""

    size_bytes: int
    each: str
    words: str

    def per_node_bytes(self, *, gpus_per_node: int | None, cpus_per_node: int | None) -> int | None:
        """Return the most memory that a node's part of the job may have; ``None`` where that is unknown."""
        if self.each == "node":
            return self.size_bytes
        count = gpus_per_node if self.each == "gpu" else cpus_per_node
        return self.size_bytes * count * (_SHARE_OF_CPUS if self.each == "cpu" else 1) if count else None


def parse_memory_request(options: Mapping[str, str]) -> HostMemoryRequest | None:
    """Return the memory request of sbatch's options; ``None`` for none, all of a node, several at once, or no size.

    ``--mem`` and its kin count in MiB unless a letter says otherwise, by powers of 1024: sbatch(1).
    """
    names = [name for name in MEMORY_OPTIONS if options.get(name)]
    match = _SIZE.fullmatch(options[names[0]]) if len(names) == 1 else None
    if match is None or not int(match[1]):
        return None
    option_text = f"--{names[0]}={options[names[0]].strip()[:40]}"
    return HostMemoryRequest(
        size_bytes=int(match[1]) * _UNITS[match[2].upper()], each=_EACH[names[0]], words=option_text
    )


def explain_partial_offload(options: Iterable[tuple[str, str]]) -> str | None:
    """Return why the GPU memory of a workload with partial offload cannot be predicted; ``None`` otherwise."""
    given = dict(options)
    fraction = given.get(_FRACTION)
    is_known = fraction is None or parse_fraction(fraction) is not None
    if PARTLY not in given and (is_known or "optimizer.offload" not in given):
        return None
    return "a part of the optimizer is kept in host memory, and opsk predicts all of it there or none"


def find_host_shortage(
    request: HostMemoryRequest | None,
    workload: Workload,
    model: ModelShape,
    plan: Plan,
    cluster: ClusterSpec,
    prediction: PredictionTable,
    *,
    cpus_per_node: int | None = None,
    is_guessed: bool = False,
) -> Iterator[Problem]:
    """Yield a problem where the states in host memory take more than the job requests on a node.

    Pipelines are not checked, since their stages hold different parts of the model. Only a share of the size counts as
    certain, and a smaller one where the size is guessed.
    """
    is_offloaded = plan.offload in (Offload.OPTIMIZER, Offload.OPTIMIZER_AND_WEIGHTS)
    gpus = workload.plan.gpus_per_node
    if (
        request is None
        or not is_offloaded
        or plan.pp > 1
        or not gpus
        or any(name in _OPEN for name, _ in workload.options)
    ):
        return
    max_bytes = request.per_node_bytes(gpus_per_node=gpus, cpus_per_node=cpus_per_node)
    if max_bytes is None:
        return
    without_offload = predict_one(model, replace(plan, offload=Offload.NONE), cluster).memory.components
    offloaded_bytes = sum(float(without_offload[name]) - float(prediction.memory.components[name]) for name in _STATES)
    if offloaded_bytes * gpus * (SURE_WHERE_GUESSED if is_guessed else SURE) > max_bytes:
        yield Problem(
            what=f"states in host memory take about {format_bytes(offloaded_bytes * gpus)} a node, and {request.words} "
            f"allows {format_bytes(max_bytes)}",
            hint="ask for more, or for all that a node has: --mem=0",
        )
