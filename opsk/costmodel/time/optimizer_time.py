"""Computes the time of the optimizer step, on the GPU or in host memory.

The arithmetic of an optimizer is small, so its bytes count: those of the GPU's memory, or of the host's where the
states are stored there (ZeRO-Offload, arXiv 2101.06840: gradients go down over PCIe, the CPU steps, weights come up).
Only what is trained is stepped: with LoRA the adapters, else all but the frozen share. Not modelled: Muon's
Newton-Schulz products (below one percent of a step of a million tokens by their FLOP), paging of paged optimizers, and
that DeepSpeed adds up gradients of several micro-batches in host memory.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from opsk.costmodel.elementwise import all_of, any_of, lookup, max_over_stages, minimum, where
from opsk.costmodel.machine import Machine
from opsk.costmodel.memory.states import MOMENT_COUNTS, QUANTIZED_MOMENT_BYTES, RECIPES, Recipe
from opsk.costmodel.sizes.parameters import ParameterCount
from opsk.costmodel.sizes.shares import Shares, names_formats, state_sizes
from opsk.costmodel.table import IS_WIDE, OFFLOADS, OPTIMIZERS, STATES, FloatColumn, PlanTable
from opsk.workload.plan import Offload, Optimizer, States

CHIP_LINK_BYTES_PER_S = 150e9
"""A link faster than this is not PCIe: NVLink-C2C has 450 GB/s a Grace, for one Hopper or two Blackwells."""
GRACE_LINK_BYTES_PER_S = 450e9
PCIE_FRACTION = 0.8
"""Data rate of copies over the link's: 24.8 of 31.5 GB/s on eight A100 with PCIe 4.0 x16 (nvbandwidth,
forums.developer.nvidia.com/t/352186), 12.5 to 13 of 15.75 on PCIe 3, 53 to 57 of 63 on PCIe 5."""
CHIP_LINK_FRACTION = 0.75
"""The same of NVLink-C2C: 270 to 420 of 450 GB/s (arXiv 2408.11556)."""
DDR_BYTES_PER_LINK_BYTE = 12.0
"""Peak memory bandwidth of a two-socket host over the rate of one of its PCIe x16 links: both grew together. 256 GB/s
(2 x 6 DDR4-2666) beside PCIe 3, 410 (2 x 8 DDR4-3200) beside PCIe 4, 614 (2 x 8 DDR5-4800) beside PCIe 5 are 16, 13 and
10 times the link."""
GRACE_MEMORY_BYTES_PER_S = 500e9
"""LPDDR5X of one Grace with 480 GB (data sheet)."""
OPTIMIZER_FRACTION = 0.13
"""Share of that bandwidth that whole training runs reach in a CPU optimizer, copies and waiting included.

Runs with ``offload_optimizer`` on nodes with eight A100 and 410 GB/s: Qwen-72B 1.8 billion parameters a second
(DeepSpeed issue 6834), Qwen2.5-3B at least 1.3 (pull request 7474), LLaMA-7B 0.33 to 0.4 (gist.github.com/chenyaofo/
d4cd6a20ab4b95cb3a49491747e2139a); at 42 bytes a parameter 75, 55 and 15 GB/s, whose middle is 0.13. The kernel alone
reaches half of the bandwidth (ZeRO-Offload, table 4: 3.9 to 4.5 billion on 256 GB/s). A factor of three either way is
open.
"""
GRADIENT_PASSES = 4.0
"""Reads and writes of a gradient: its norm, scaled (read and written), and read by the step."""
MASTER_GRADIENT_BYTES = 4.0
"""Gradients for fp32 master weights are, or are converted to, fp32."""
_8BIT = (Optimizer.ADAM_8BIT, Optimizer.PAGED_ADAM_8BIT)
_ADAMS_MOMENTS = 2.0


def traffic_bytes(states: States, optimizer: Optimizer) -> float:
    """Return the memory traffic of one step for a parameter [bytes].

    Gradients four times, master weights (or the weights themselves, where there are none) and moments read and written,
    and the weights written where they are copies. Adam on mixed states: 16 + 8 + 16 + 2 = 42.
    """
    recipe = RECIPES[states]
    gradient = MASTER_GRADIENT_BYTES if recipe.master else recipe.gradients
    stepped, copied = (recipe.master, recipe.weights) if recipe.master else (recipe.weights, 0.0)
    return GRADIENT_PASSES * gradient + 2.0 * (stepped + _moments_bytes(recipe, optimizer)) + copied


def _moments_bytes(recipe: Recipe, optimizer: Optimizer) -> float:
    """Return the moments of one parameter [bytes]."""
    size = QUANTIZED_MOMENT_BYTES.get(optimizer, recipe.moment)
    return MOMENT_COUNTS.get(optimizer, _ADAMS_MOMENTS) * size


_TRAFFIC = np.array([[traffic_bytes(states, optimizer) for optimizer in OPTIMIZERS] for states in STATES])
_COPIED = np.array([RECIPES[states].gradients + RECIPES[states].weights for states in STATES])
_RECIPE = np.array([[getattr(RECIPES[name], part) for name in STATES] for part in ("gradients", "master", "moment")])
_MOMENTS = np.array([0.0 if name in _8BIT else MOMENT_COUNTS.get(name, _ADAMS_MOMENTS) for name in OPTIMIZERS])
_ONLY_OPTIMIZER = OFFLOADS.index(Offload.OPTIMIZER)
_ALL_FP32 = STATES.index(States.AUTOCAST)
_ON_HOST = np.array([place in (Offload.OPTIMIZER, Offload.OPTIMIZER_AND_WEIGHTS) for place in OFFLOADS])


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """Parameters of the candidate stages that have gradients, shape (3, plans), by how they are replicated."""

    dense: FloatColumn
    experts: FloatColumn


def trained_parameters(shares: Shares, parameters: ParameterCount) -> Trained:
    """Return what the optimizer steps and data-parallel ranks reduce: adapters, or all but the frozen share."""
    if all_of(shares.trained_share == 1.0):
        return Trained(dense=parameters.dense, experts=parameters.experts)
    return Trained(
        dense=parameters.dense * shares.trained_share + parameters.adapters,
        experts=parameters.experts * shares.trained_share + parameters.expert_adapters,
    )


def optimizer_s(plans: PlanTable, shares: Shares, trained: Trained, machine: Machine) -> FloatColumn:
    """Return the time of the optimizer on the stage with most parameters, shape (plans,) [s]."""
    dense = trained.dense / where(shares.shards_optimizer, shares.shard_group, 1.0)
    experts = trained.experts / where(shares.shards_optimizer, shares.expert_shard_group, 1.0)
    largest: FloatColumn = max_over_stages(dense + experts)
    states = where(lookup(IS_WIDE, plans.precision), _ALL_FP32, plans.states)
    bytes_per_parameter = lookup(_TRAFFIC, states, plans.optimizer)
    if names_formats(plans):
        bytes_per_parameter = bytes_per_parameter + _more_traffic(plans, states)
    traffic = largest * bytes_per_parameter
    on_gpu_s: FloatColumn = traffic / machine.hbm_bytes_per_s
    if not any_of(plans.offload):
        return on_gpu_s
    copied_s = largest * lookup(_COPIED, states) / host_link_bytes_per_s(machine)
    on_host_s = copied_s + traffic / host_optimizer_bytes_per_s(machine)
    share = where(plans.offload == _ONLY_OPTIMIZER, plans.offload_fraction, 1.0)
    result: FloatColumn = where(lookup(_ON_HOST, plans.offload), share * on_host_s + (1.0 - share) * on_gpu_s, on_gpu_s)
    return result


def _more_traffic(plans: PlanTable, states: FloatColumn) -> FloatColumn:
    """Return the additional traffic of a step of a parameter in the formats that a plan names [bytes]."""
    gradient, master, moment = lookup(_RECIPE, slice(None), states)
    sizes = state_sizes(plans, gradient, master, moment)
    moments = lookup(_MOMENTS, plans.optimizer)
    more = GRADIENT_PASSES * where(gradient < 4.0, 0.0, sizes.gradient - gradient)
    result: FloatColumn = more + 2.0 * (sizes.master - master + moments * (sizes.moment - moment))
    return result


def host_link_bytes_per_s(machine: Machine) -> FloatColumn:
    """Return the rate of copies between a GPU and its host, one direction [bytes/s]."""
    link = machine.pcie_bytes_per_s
    return link * where(link > CHIP_LINK_BYTES_PER_S, CHIP_LINK_FRACTION, PCIE_FRACTION)


def host_optimizer_bytes_per_s(machine: Machine) -> FloatColumn:
    """Return the host memory bandwidth for the optimizer of one GPU's states [bytes/s], all GPUs stepping at once.

    On superchips each Grace serves the GPUs that share its link.
    """
    link = machine.pcie_bytes_per_s
    of_node = DDR_BYTES_PER_LINK_BYTE * link / machine.node_gpus
    of_grace = GRACE_MEMORY_BYTES_PER_S * minimum(link / GRACE_LINK_BYTES_PER_S, 1.0)
    return OPTIMIZER_FRACTION * where(link > CHIP_LINK_BYTES_PER_S, of_grace, of_node)
