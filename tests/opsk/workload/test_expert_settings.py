"""What a Megatron script's options say of dispatch and products of experts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from opsk.workload.completion import complete
from opsk.workload.plan import MoeDispatcher, MoeGemm, Plan
from opsk_jobcheck.scripts.script import read_script

SCRIPT = """#!/bin/bash
#SBATCH --nodes=1 --gpus-per-node=8
torchrun --nproc-per-node 8 pretrain_gpt.py --num-layers 4 --hidden-size 1024 --num-attention-heads 16 \\
  --seq-length 1024 --max-position-embeddings 1024 --micro-batch-size 1 --global-batch-size 8 --bf16 \\
  --vocab-size 32000 --num-experts 8 --moe-router-topk 2 --expert-model-parallel-size 8 {flags}
"""


def _plan(flags: str = "") -> Plan:
    found = complete(read_script(SCRIPT.format(flags=flags), file="job.sh")).plan
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("flags", "dispatcher"),
    [
        ("", MoeDispatcher.ALLGATHER),
        ("--moe-token-dispatcher-type alltoall", MoeDispatcher.ALLTOALL),
        ("--moe-token-dispatcher-type flex --moe-enable-deepep", MoeDispatcher.DEEPEP),
        ("--moe-token-dispatcher-type flex --moe-flex-dispatcher-backend hybridep", MoeDispatcher.HYBRIDEP),
    ],
)
def test_flags_name_the_dispatcher(flags: str, dispatcher: MoeDispatcher) -> None:
    assert _plan(flags).moe_dispatcher is dispatcher


def test_experts_run_one_by_one_unless_grouped_products_are_asked_for() -> None:
    assert _plan().moe_gemm is MoeGemm.SEQUENTIAL
    assert _plan("--moe-grouped-gemm").moe_gemm is MoeGemm.GROUPED


def test_fusion_and_overlap_are_off_unless_asked_for() -> None:
    assert not _plan().moe_permute_fusion
    assert not _plan().ep_overlap
    asked = _plan("--moe-permute-fusion --overlap-moe-expert-parallel-comm")
    assert asked == replace(_plan(), moe_permute_fusion=True, ep_overlap=True)


@pytest.mark.parametrize(
    ("flags", "factor"),
    [
        ("--moe-expert-capacity-factor 1.25 --moe-pad-expert-input-to-capacity", 1.25),
        ("--moe-expert-capacity-factor 1.25", 0),  # drops, but pads nothing
        ("--moe-expert-capacity-factor nan --moe-pad-expert-input-to-capacity", 0),
    ],
)
def test_a_capacity_counts_where_experts_are_padded_to_it(flags: str, factor: float) -> None:
    model = complete(read_script(SCRIPT.format(flags=flags), file="job.sh")).model
    assert model is not None
    assert model.capacity_factor == factor
