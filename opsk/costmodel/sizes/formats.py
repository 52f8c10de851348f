"""Computes the bytes of a parameter of each state where a plan names formats beyond those of `States`.

Megatron's precision-aware optimizer stores moments in 8 or 16 bits, and of the fp32 master weight only what the 16-bit
weight lacks (``--exp-avg-dtype``, ``--exp-avg-sq-dtype``, ``--main-params-dtype``, ``store_param_remainders``:
``megatron/core/optimizer/optimizer_config.py``); it reads 16-bit gradients as they are, where others copy them to
fp32.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from opsk.costmodel.elementwise import any_of, lookup, where
from opsk.costmodel.table import STATE_FORMATS, BoolColumn, FloatColumn, IntColumn, PlanTable
from opsk.workload.plan import StateFormat

FORMAT_BYTES = {StateFormat.FP32: 4.0, StateFormat.BF16: 2.0, StateFormat.FP16: 2.0, StateFormat.FP8: 1.0}
_BYTES = np.array([FORMAT_BYTES.get(name, 0.0) for name in STATE_FORMATS])


@dataclass(frozen=True, slots=True, kw_only=True)
class StateSizes:
    """Bytes of a parameter's gradient, master copy, and of its ``moment``, the mean of Adam's two."""

    gradient: FloatColumn
    master: FloatColumn
    moment: FloatColumn


def names_formats(plans: PlanTable) -> bool:
    """Return whether any plan names a format of its own."""
    return (
        any_of(plans.gradient_format)
        or any_of(plans.master_format)
        or any_of(plans.moment_format)
        or any_of(plans.second_moment_format)
    )


def state_sizes(plans: PlanTable, gradient: FloatColumn, master: FloatColumn, moment: FloatColumn) -> StateSizes:
    """Return the sizes that a plan names, and those given where it names none."""
    first = _size(plans.moment_format, moment)
    both: FloatColumn = first + _size(plans.second_moment_format, first)
    return StateSizes(
        gradient=_size(plans.gradient_format, gradient),
        master=_size(plans.master_format, master),
        moment=0.5 * both,
    )


def _size(named: IntColumn, otherwise: FloatColumn) -> FloatColumn:
    """Return the bytes of a format, or those without one."""
    return where(named > 0, lookup(_BYTES, named), otherwise)


def has_low_gradients(plans: PlanTable, otherwise: BoolColumn) -> BoolColumn:
    """Return whether gradients are stored in less than fp32; ``otherwise`` where no format is named."""
    result: BoolColumn = where(plans.gradient_format > 0, lookup(_BYTES, plans.gradient_format) < 4.0, otherwise)
    return result


def reads_low_gradients(plans: PlanTable) -> BoolColumn:
    """Return whether the optimizer reads 16-bit gradients directly: one with 16-bit master weights.

    With fp32 masters Megatron's distributed optimizer copies them (``_copy_model_grads_to_main_grads``).
    """
    result: BoolColumn = where(plans.master_format > 0, lookup(_BYTES, plans.master_format) < 4.0, False)
    return result
