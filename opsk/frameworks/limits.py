"""Defines the part of the space of plans that a training framework can express."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from opsk.workload.plan import Loss, Offload, Optimizer, Precision, Recompute, Schedule, Sharding, Software, States


class SequenceParallel(StrEnum):
    """Whether norms and dropout are split over tp: optionally, always with tp, or never."""

    EITHER = "either"
    WITH_TP = "with-tp"
    NEVER = "never"


class ExpertTensor(StrEnum):
    """Over how many ranks each routed expert is split."""

    ONE = "one"
    AS_TP = "as-tp"
    OTHER = "other"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The part of the space of plans that a framework supports; the default is all of it.

    Parameters
    ----------
    name
        Its common name: ``megatron``.
    software
        The family whose efficiencies and buffers apply; ``None`` leaves the plan's own.
    shardings, pipelined_shardings
        Shardings without, and with, a pipeline.
    partial_sharding, partial_shardings
        Whether states can be sharded over part of the replicas (HSDP, MiCS), and with which shardings.
    replicated_alone
        Whether unsharded replicas exclude all other axes: no tp, pp or cp with sharding none.
    recomputes, recompute_layers
        Modes of recomputation, and whether it can be limited to some layers.
    schedules, interleaved
        Orders of a pipeline, and whether a stage can hold several chunks.
    uneven_stages
        Whether first and last stage can have fewer layers than the others.
    largest_tp, largest_pp, largest_cp, largest_ep
        The largest size of an axis; 1 is "not supported", 0 no limit.
    apart
        Pairs of axes (``cp``, ``tp``) that cannot both be larger than 1.
    expert_tensors, expert_shardings
        Sizes of etp, and shardings, of a model with experts.
    precisions, states, optimizers, offloads, losses
        Number formats of products and of states, optimizers, offloads to host memory, and forms of the loss.
    """

    name: str = "any"
    software: Software | None = None
    shardings: frozenset[Sharding] = frozenset(Sharding)
    pipelined_shardings: frozenset[Sharding] = frozenset(Sharding)
    partial_sharding: bool = True
    partial_shardings: frozenset[Sharding] = frozenset(Sharding) - {Sharding.NONE}
    replicated_alone: bool = False
    sequence_parallel: SequenceParallel = SequenceParallel.EITHER
    recomputes: frozenset[Recompute] = frozenset(Recompute)
    recompute_layers: bool = True
    schedules: frozenset[Schedule] = frozenset(Schedule)
    interleaved: bool = True
    uneven_stages: bool = True
    largest_tp: int = 0
    largest_pp: int = 0
    largest_cp: int = 0
    largest_ep: int = 0
    apart: frozenset[tuple[str, str]] = frozenset()
    expert_tensors: frozenset[ExpertTensor] = frozenset(ExpertTensor)
    expert_shardings: frozenset[Sharding] = frozenset(Sharding)
    precisions: frozenset[Precision] = frozenset(Precision)
    states: frozenset[States] = frozenset(States)
    optimizers: frozenset[Optimizer] = frozenset(Optimizer)
    offloads: frozenset[Offload] = frozenset(Offload)
    losses: frozenset[Loss] = frozenset(Loss)

    def excludes(self, **sizes: int) -> bool:
        """Return whether two axes that cannot be combined are both larger than 1."""
        return any(sizes[axis] > 1 and sizes[other_axis] > 1 for axis, other_axis in self.apart)

    def splits_experts(self, etp: int, tp: int) -> bool:
        """Return whether experts can be split over ``etp`` ranks with ``tp``."""
        kinds = {kind for kind, size in ((ExpertTensor.ONE, 1), (ExpertTensor.AS_TP, tp)) if etp == size}
        return bool((kinds or {ExpertTensor.OTHER}) & self.expert_tensors)


ANYTHING = Limits()
"""All plans that `opsk.costmodel` can predict and no rule forbids, whether or not one framework supports them."""
