"""Machines and models of the published runs, built by hand so that these tests stand without the catalogue."""

from __future__ import annotations

from opsk.costmodel.sizes.parameters import ParameterCount, count_parameters
from opsk.costmodel.sizes.pipeline import Stages, build_stages
from opsk.costmodel.sizes.shape import ShapeColumns, build_shape
from opsk.costmodel.sizes.shares import Shares, compute_shares
from opsk.costmodel.table import PlanTable
from opsk.hardware.spec import ClusterSpec, GpuSpec, NicSpec, NodeSpec
from opsk.units import GIB
from opsk.workload.model import ModelShape
from opsk.workload.plan import Plan

A100 = GpuSpec(
    name="a100-sxm-80gb",
    vendor="nvidia",
    memory_bytes=80 * GIB,
    hbm_bytes_per_s=2.039e12,
    peak_flop_per_s={"fp32": 19.5e12, "fp16": 312e12, "bf16": 312e12},
    hb_bytes_per_s=300e9,
    pcie_bytes_per_s=32e9,
    tdp_w=400.0,
)
"""NVIDIA A100 80GB SXM data sheet."""


def a100_cluster(*, nodes: int = 512, nics: int = 8) -> ClusterSpec:
    """Return nodes of eight A100 with HDR HCAs."""
    nic = NicSpec(name="hdr", bytes_per_s=25e9)
    node = NodeSpec(name="dgx-a100", gpu=A100, gpus=8, nic=nic, nics=nics, hb_domain_gpus=8)
    return ClusterSpec(name="made", node=node, nodes=nodes, fabric="fat-tree")


def gpt(
    *, layers: int, hidden: int, heads: int, vocab: int = 51200, seq: int = 2048, flash: bool = False
) -> ModelShape:
    """Return a GPT shape as in the Megatron-LM papers."""
    return ModelShape(
        name="gpt",
        layers=layers,
        hidden=hidden,
        ffn=4 * hidden,
        heads=heads,
        kv_heads=heads,
        head_dim=hidden // heads,
        vocab=vocab,
        seq=seq,
        learned_positions=True,
        flash_attention=flash,
    )


def shares_and_stages(model: ModelShape | ShapeColumns, *plans: Plan) -> tuple[Shares, Stages]:
    """Return the shares and stages of plans for one model, or for a model each."""
    shape = build_shape(model) if isinstance(model, ModelShape) else model
    shares = compute_shares(shape, PlanTable.of(plans))
    return shares, build_stages(shape, shares)


def parts(model: ModelShape, *plans: Plan) -> tuple[Shares, Stages, ParameterCount]:
    """Return what the parts of the cost model are computed from."""
    shares, stages = shares_and_stages(model, *plans)
    return shares, stages, count_parameters(build_shape(model), shares, stages)
