"""Which words go into the launch script, or into the files that it names, to change one plan into another?"""

from __future__ import annotations

from opsk.workload.model import ModelShape
from opsk.workload.plan import Plan
from opsk.workload.workload import Workload
from opsk_jobcheck.advice.option_syntax.megatron import bridge_overrides, megatron_flags
from opsk_jobcheck.advice.option_syntax.named import named_settings
from opsk_jobcheck.advice.option_syntax.torchtitan import torchtitan_flags


def flags_for(workload: Workload, asked: Plan, wanted: Plan, *, model: ModelShape | None = None) -> tuple[str, ...]:
    """Return what to set, in the framework's own spelling; empty when opsk does not know words for all of the change.

    Flags and overrides are for the command line; what stands in a file names it: ``micro_batch_size: 1 in a.yaml``.

    Parameters
    ----------
    model
        What is trained, for frameworks whose words depend on it.
    """
    framework = workload.framework
    if framework == "megatron-bridge":
        return bridge_overrides(workload, asked, wanted)
    if framework in ("megatron-lm", "megatron-deepspeed"):
        return megatron_flags(workload, asked, wanted, deepspeed=framework == "megatron-deepspeed")
    if framework == "torchtitan" and model is not None:
        return torchtitan_flags(workload, model, asked, wanted)
    return named_settings(workload, asked, wanted)
