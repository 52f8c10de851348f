"""Completes a workload for the smallest memory that it can take, where a script leaves open what only adds to it.

A job that does not fit with one short sequence at a time, states in as few bits as its framework may keep them, all
layers recomputed and no logits, does not fit at all. Only frameworks whose settings are read in full have such a case,
and only jobs of which everything is known that lowers memory: what is trained, what is sharded, offloaded and split.
"""

from __future__ import annotations

from dataclasses import replace

from opsk.workload.completion import Completion, complete
from opsk.workload.defaults import ROLE_PREFIXES, Assumption
from opsk.workload.plan import Precision, Recompute
from opsk.workload.workload import Workload

FRAMEWORKS = frozenset({"hf-trainer", "hf-trainer+deepspeed", "llama-factory"})
"""Frameworks whose flags and files state all that lowers memory."""
CHECKED = "smallest.checked"
"""The option that states that a program loads its one model itself, with packages that are known (``true``)."""
SHORTEST = 16
"""Tokens of a sequence that any training has."""
_ONLY_ADD = frozenset({"model.seq", "plan.micro_batch", "plan.global_batch", "plan.recompute", "plan.precision"})
"""Fields of which each value takes at least as much as the smallest."""
_LOWER = ("trainable", "adapters", "unmodelled", "activations", "worst.trained")


def find_smallest_case(workload: Workload) -> tuple[Completion, tuple[Assumption, ...]] | None:
    """Return the completed workload with the smallest memory, and what is assumed for it; ``None`` where none is."""
    names = {name for name, _ in workload.options}
    if CHECKED not in names and workload.framework != "llama-factory":
        return None
    is_known = (
        workload.framework in FRAMEWORKS
        and workload.is_training
        and {entry.field for entry in workload.unknown} <= _ONLY_ADD
    )
    if not is_known or any(name.startswith((*ROLE_PREFIXES, *_LOWER)) for name in names):
        return None
    plan = workload.plan
    if plan.gpus is None or plan.tp not in (None, 1) or plan.pp not in (None, 1):
        return None
    options = {**dict(workload.options), "loss.kernel": "fused"}
    options.setdefault("weights.dtype", Precision.BF16.value)  # from_pretrained's own choice since transformers 5
    smallest = replace(
        workload,
        model=replace(workload.model, seq=SHORTEST),
        plan=replace(
            plan, micro_batch=1, global_batch=None, recompute=Recompute.FULL, precision=plan.precision or Precision.BF16
        ),
        options=tuple(sorted(options.items())),
        unknown=(),
    )
    completion = complete(smallest)
    if completion.model is None or completion.plan is None:
        return None
    why = "the states alone, with one short sequence at a time, all layers recomputed, and as few bits as may be"
    return completion, (Assumption(field="plan", value="smallest", why=why),)
