"""The rail-only paper's mixture of experts: how much of the traffic is all-to-all?"""

from __future__ import annotations

from dataclasses import replace

from opsk.costmodel.sizes.shape import build_shape
from opsk.costmodel.time import volumes
from opsk.workload.model import ModelShape
from opsk.workload.plan import Plan, Precision
from tests.fakes.training_runs import gpt, parts

DEEPSPEED_MOE_1_3B: ModelShape = replace(
    gpt(layers=24, hidden=2048, heads=16), dense_layers=12, experts=128, top_k=1, expert_ffn=8192
)
"""1.3B+MoE-128 (Rajbhandari et al. 2022, arXiv 2201.05596): 24 layers, hidden 2048, 16 heads, 128 experts in every
other layer, one a token."""


def test_all_to_all_is_about_a_quarter_of_the_traffic():
    # figure 5, printed: 27 % on 16 DGX A100, the dense part data-parallel, an expert a GPU. The batch is not printed:
    # 512 sequences of 2,048 here, DeepSpeed-MoE's (from memory), in fp16. Allowed: 20 to 35 %
    plan = Plan(dp=128, ep=128, micro_batch=4, global_batch=512, precision=Precision.FP16)
    model, (shares, _, count) = build_shape(DEEPSPEED_MOE_1_3B), parts(DEEPSPEED_MOE_1_3B, plan)
    moe_layers = DEEPSPEED_MOE_1_3B.layers - DEEPSPEED_MOE_1_3B.dense_layers
    ring = volumes.ring_share(shares.dp)
    # dispatch and combine, forward and backward; the dense part's gradients in one all-reduce
    all_to_all = 4 * moe_layers * volumes.expert_parallel_bytes(model, shares) * shares.micro_batches * ring
    all_reduce = volumes.data_parallel_bytes_per_element(shares) * ring * count.dense[0]
    share = float((all_to_all / (all_to_all + all_reduce))[0])
    assert 0.20 < share < 0.35, share


def test_the_dense_part_has_1_3_billion_parameters_less_every_other_mlp():
    # 1.3 billion with all 24 MLPs of 2 x 4 h^2; an expert a GPU holds 12 x 8 h^2 of them
    plan = Plan(dp=128, ep=128, micro_batch=4, global_batch=512, precision=Precision.FP16)
    _, _, count = parts(DEEPSPEED_MOE_1_3B, plan)
    assert 1.25e9 < float(count.dense[0, 0] + count.experts[0, 0]) < 1.35e9
