"""Selects the settings in a launch script, or in the files that it names, that change one plan into another."""

from __future__ import annotations

from opsk.workload.model import ModelShape
from opsk.workload.plan import Plan
from opsk.workload.workload import Workload
from opsk_jobcheck.advice.option_syntax.megatron import build_bridge_overrides, build_megatron_flags
from opsk_jobcheck.advice.option_syntax.named import build_named_settings
from opsk_jobcheck.advice.option_syntax.torchtitan import build_torchtitan_flags


def build_flags(
    workload: Workload, requested: Plan, target: Plan, *, model: ModelShape | None = None
) -> tuple[str, ...]:
    """Return the settings of a plan change in the framework's own syntax; empty when opsk cannot express all of it.

    Flags and overrides are for the command line; a setting in a file names the file: ``micro_batch_size: 1 in a.yaml``.

    Parameters
    ----------
    model
        The model, for frameworks whose settings depend on it.
    """
    framework = workload.framework
    if framework == "megatron-bridge":
        return build_bridge_overrides(workload, requested, target)
    if framework in ("megatron-lm", "megatron-deepspeed"):
        return build_megatron_flags(workload, requested, target, deepspeed=framework == "megatron-deepspeed")
    if framework == "torchtitan" and model is not None:
        return build_torchtitan_flags(workload, model, requested, target)
    return build_named_settings(workload, requested, target)
