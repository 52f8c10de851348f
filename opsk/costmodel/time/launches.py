"""Computes the time that the host needs to launch the kernels of a layer, which limits small micro-batches.

A GPU runs no faster than its kernels are launched. Where a layer's kernels take less time than the host needs to submit
them, the host decides. Figures are those of benchmarks/published/host.md and launches.csv of the repository: kernels
counted in the frameworks' code, times measured on x86 servers; Grace CPUs take `GpuSpec.launch_factor` times as long.
"""

from __future__ import annotations

import numpy as np

from opsk.costmodel.elementwise import logical_not, lookup, when, where
from opsk.costmodel.machine import Machine
from opsk.costmodel.table import SOFTWARE, FloatColumn, PlanTable
from opsk.costmodel.time.quantising import is_low
from opsk.workload.plan import Software

_EAGER_S = (40 * 9e-6, 90 * 6e-6)
"""Forward and backward of a layer of PyTorch modules: 38 to 44 kernels of 8 to 13 us, 85 to 100 of 5 to 8 us."""
_COMPILED_S = (13 * 5e-6, 28 * 5e-6)
"""The same compiled: 12 to 14 kernels and 25 to 30, of 3 to 6 us."""
_ENGINE_S = (14 * 13e-6, 28 * 9e-6)
"""Megatron Core with Transformer Engine: 12 to 15 kernels and 25 to 30, behind modules that take longer each."""
_FUSED_S = (24 * 9e-6, 44 * 6e-6)
"""Megatron-LM's own fused kernels (`opsk.costmodel.time.layer_time.FORWARD_KERNELS`)."""
LOW_PRECISION_FACTOR = 2.0
"""Casts and scales about double what the host does for a layer (TransformerEngine issue 761)."""
_BY_SOFTWARE = {Software.MEGATRON_CORE: _ENGINE_S, Software.MEGATRON: _FUSED_S, Software.DEEPSPEED: _FUSED_S}
_TABLE = np.array([_BY_SOFTWARE.get(member, _EAGER_S) for member in SOFTWARE]).T


def launches_s(plans: PlanTable, machine: Machine) -> tuple[FloatColumn, FloatColumn]:
    """Return how long the host takes to launch forward and backward of one layer [s]; 0 with CUDA graphs."""
    default = lookup(_TABLE, slice(None), plans.software)
    factor = machine.launch_factor * where(is_low(plans), LOW_PRECISION_FACTOR, 1.0)
    factor = when(logical_not(plans.cuda_graphs), factor)
    forward, backward = (
        factor * where(plans.compiled & (plans.software == _PYTORCH), compiled, default[index])
        for index, compiled in enumerate(_COMPILED_S)
    )
    return forward, backward


_PYTORCH = SOFTWARE.index(Software.PYTORCH)
