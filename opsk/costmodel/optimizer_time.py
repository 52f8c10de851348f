"""How long does the optimizer step take, on the GPU or in host memory?

The arithmetic of an optimizer is little, so its bytes count: those of the GPU's memory, or of the host's where the
states are kept there (ZeRO-Offload, arXiv 2101.06840: gradients go down over PCIe, the CPU steps, weights come up).
Only what is trained is stepped: with LoRA the adapters, else all but the frozen share. Left out: Muon's Newton-Schulz
products (below one percent of a step of a million tokens by their FLOP), paging of paged optimizers, and that DeepSpeed
adds up gradients of several micro-batches in host memory.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from opsk.costmodel.elementwise import all_of, any_of, looked_up, most, where
from opsk.costmodel.machine import Machine
from opsk.costmodel.memory.states import MOMENT_COUNTS, QUANTIZED_MOMENT_BYTES, RECIPES, Recipe
from opsk.costmodel.parameters import ParameterCount
from opsk.costmodel.shares import Shares
from opsk.costmodel.table import OFFLOADS, OPTIMIZERS, PRECISIONS, STATES, FloatColumn, PlanTable
from opsk.workload.plan import Offload, Optimizer, Precision, States

GRADIENT_PASSES = 4.0
"""Reads and writes of a gradient: its norm, scaled (read and written), and read by the step."""
MASTER_GRADIENT_BYTES = 4.0
"""Gradients that meet fp32 master weights are, or are made, fp32."""
HOST_BYTES_PER_S = 40e9
"""What the optimizer of a node reaches of its host memory, for all of its GPUs [bytes/s].

Adam on a billion parameters then takes a second a node. DeepSpeed's kernel alone needs 0.22 to 0.26 s on two Xeon 8168
(ZeRO-Offload, table 4, from memory). Whole runs show more: LLaMA-7B on eight A800 and two Xeon 8358 takes 17 to 20 s a
step longer with ``offload_optimizer`` than without, 2.5 to 3 s a billion (gist.github.com/chenyaofo/
d4cd6a20ab4b95cb3a49491747e2139a, its throughput taken as samples a second), Qwen2.5-3B on two A100 at most 0.8 s with
cores bound to ranks (DeepSpeed's tutorial on ZeRO-Offload). A factor of three either way is open.
"""
PCIE_FRACTION = 0.8
"""Data rate of large copies from or to pinned memory over the link's: 24.8 of 31.5 GB/s on eight A100 with PCIe 4.0 x16
(nvbandwidth, forums.developer.nvidia.com/t/352186). Both ways at once one direction falls to 11 there."""

_ADAMS_MOMENTS = 2.0


def traffic_bytes(states: States, optimizer: Optimizer) -> float:
    """Return what one step reads and writes for a parameter [bytes].

    Gradients four times, master weights (or the weights themselves, where there are none) and moments read and written,
    and the weights written where they are copies. Adam on mixed states: 16 + 8 + 16 + 2 = 42.
    """
    recipe = RECIPES[states]
    gradient = MASTER_GRADIENT_BYTES if recipe.master else recipe.gradients
    stepped, copied = (recipe.master, recipe.weights) if recipe.master else (recipe.weights, 0.0)
    return GRADIENT_PASSES * gradient + 2.0 * (stepped + _moments_bytes(recipe, optimizer)) + copied


def _moments_bytes(recipe: Recipe, optimizer: Optimizer) -> float:
    """Return the moments of one parameter [bytes]."""
    each = QUANTIZED_MOMENT_BYTES.get(optimizer, recipe.moment)
    return MOMENT_COUNTS.get(optimizer, _ADAMS_MOMENTS) * each


_TRAFFIC = np.array([[traffic_bytes(states, optimizer) for optimizer in OPTIMIZERS] for states in STATES])
_COPIED = np.array([RECIPES[states].gradients + RECIPES[states].weights for states in STATES])
_FP32, _ALL_FP32 = PRECISIONS.index(Precision.FP32), STATES.index(States.AUTOCAST)
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
    largest: FloatColumn = most(dense + experts)
    states = where(plans.precision == _FP32, _ALL_FP32, plans.states)
    traffic = largest * looked_up(_TRAFFIC, states, plans.optimizer)
    on_gpu_s: FloatColumn = traffic / machine.hbm_bytes_per_s
    if not any_of(plans.offload):
        return on_gpu_s
    copied_s = largest * looked_up(_COPIED, states) / host_link_bytes_per_s(machine)
    on_host_s = copied_s + traffic * machine.node_gpus / HOST_BYTES_PER_S
    found: FloatColumn = where(looked_up(_ON_HOST, plans.offload), on_host_s, on_gpu_s)
    return found


def host_link_bytes_per_s(machine: Machine) -> FloatColumn:
    """Return what copies between a GPU and its host reach, one direction [bytes/s]."""
    return machine.pcie_bytes_per_s * PCIE_FRACTION
