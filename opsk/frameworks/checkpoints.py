"""Says what a loaded checkpoint needs where TP or PP changes: some formats are bound to the plan that wrote them.

Source: ``--ckpt-format`` in ``megatron/training/arguments.py`` and ``docs/llama_mistral.md`` of Megatron-LM:
``torch_dist`` is resharded when it is loaded, ``torch`` is not; ``examples_deepspeed/universal_checkpointing`` of
Megatron-DeepSpeed. torchtitan (DCP) and NeMo 2 reshard what they load.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from opsk.workload.plan import Plan
from opsk.workload.workload import Workload

LOADED, FORMAT = "checkpoint.loaded", "checkpoint.format"
"""Options of a workload: the words that load a checkpoint, and its format where that is stated."""
BOUND, RESHARDED = "torch", frozenset({"torch_dist", "zarr", "fsdp_dtensor", "torch_dcp", "universal"})
"""Megatron's format of one file a rank of TP and PP, and those that any plan loads."""
_CONVERTERS: Mapping[str, str] = MappingProxyType(
    {
        "megatron-lm": "tools/checkpoint/convert.py: --target-tensor-parallel-size {tp} "
        "--target-pipeline-parallel-size {pp}",
        "megatron-deepspeed": "tools/convert_checkpoint/ds_to_universal.py: then give --universal-checkpoint",
    }
)
"""How a checkpoint is converted, by framework."""


def describe_conversion(workload: Workload, requested: Plan, targets: Iterable[Plan]) -> str:
    """Return what a job's checkpoint needs before one of these plans can load it; empty where it needs nothing."""
    options = dict(workload.options)
    loaded, converter = options.get(LOADED), _CONVERTERS.get(workload.framework or "")
    stated = options.get(FORMAT, "")
    target = next((plan for plan in targets if (plan.tp, plan.pp) != (requested.tp, requested.pp)), None)
    if not loaded or converter is None or stated in RESHARDED or target is None:
        return ""
    how = converter.format(tp=target.tp, pp=target.pp)
    is_open = workload.framework == "megatron-lm" and stated != BOUND
    exception = "; not if it was saved with --ckpt-format torch_dist" if is_open else ""
    return f"convert a checkpoint of TP{requested.tp} PP{requested.pp} ({loaded}) first with {how}{exception}"
