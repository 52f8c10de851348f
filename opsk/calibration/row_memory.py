"""What do the columns of recomputation, formats of states and host memory say of a run's plan?"""

from __future__ import annotations

from typing import Any

from opsk.calibration.cells import MAX_SHOWN, Cells
from opsk.calibration.row_software import RunSoftware
from opsk.costmodel.memory.formats import FORMAT_BYTES
from opsk.costmodel.memory.states import RECIPES
from opsk.workload.modules import OffloadModule, RecomputeModule, sorted_words
from opsk.workload.plan import Optimizer, Precision, Software, StateFormat, States

_KINDS = {"recompute_modules": RecomputeModule, "offload_modules": OffloadModule}
_COLUMNS = {"grad_dtype": "gradient", "master_dtype": "master", "moment_dtype": "moment"}
_PARTS = {"gradient": "gradients", "master": "master", "moment": "moment"}
_LOW_OPTIMIZERS = (Optimizer.ADAM_8BIT, Optimizer.PAGED_ADAM_8BIT)
_GATHERS_FP8 = frozenset({"megatron-bridge", "nemo"})
"""Software whose FP8 recipes gather weights in FP8: ``fp8_param_gather`` of ``mixed_precision.py`` of Megatron-Bridge,
``fp8_params`` of NeMo's."""


def memory_settings(
    cells: Cells, software: RunSoftware, states: States, optimizer: Optimizer, precision: Precision
) -> dict[str, Any]:
    """Return the plan's modules, formats that its states do not have, and whether weights are kept in FP8."""
    found: dict[str, Any] = {name: _modules(cells, name) for name in _KINDS}
    if precision is not Precision.FP32:
        found |= _formats(cells, states, optimizer)
    if precision.is_low and software.family is Software.MEGATRON_CORE:
        found["fp8_weights"] = _keeps_fp8(cells, software)
    return found


def _modules(cells: Cells, name: str) -> str:
    """Return the modules of a column; those that are not known are said to be left out."""
    known, unknown = sorted_words(_KINDS[name], cells.text(name))
    if unknown:
        cells.odd.append(f"{name} {', '.join(unknown)[:MAX_SHOWN]!r}: not known, and left out")
    return known


def _formats(cells: Cells, states: States, optimizer: Optimizer) -> dict[str, StateFormat]:
    """Return the formats that a row states and that its kind of states does not have."""
    found = {}
    for column, part in _COLUMNS.items():
        stated = cells.choice(column)
        if stated not in set(StateFormat) or (part == "moment" and optimizer in _LOW_OPTIMIZERS):
            continue
        format_ = StateFormat(stated)
        usual = getattr(RECIPES[states], _PARTS[part])
        if usual and FORMAT_BYTES[format_] != usual:
            found[f"{part}_format"] = format_
    return found


def _keeps_fp8(cells: Cells, software: RunSoftware) -> bool:
    """Return whether weights are kept and gathered in FP8."""
    stated = cells.flag("fp8_params")
    if stated is not None:
        return stated
    usual = software.name in _GATHERS_FP8 or not software.name
    return bool(cells.assume("plan.fp8_weights", usual, f"usual in {software.words}"))
