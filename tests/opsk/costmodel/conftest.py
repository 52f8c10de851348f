"""Models and the machine of the published runs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from opsk.hardware.spec import ClusterSpec
from opsk.workload.model import ModelShape
from tests.fakes.training_runs import a100_cluster, gpt


@pytest.fixture
def cluster() -> ClusterSpec:
    """4,096 A100 in nodes of eight, one HDR HCA a GPU."""
    return a100_cluster()


@pytest.fixture
def gpt3() -> ModelShape:
    """GPT-3 175B as in Narayanan et al. 2021 (96 layers, hidden 12288)."""
    return gpt(layers=96, hidden=12288, heads=96)


@pytest.fixture
def llama3_8b() -> ModelShape:
    """Llama 3 8B (its public config.json)."""
    return ModelShape(
        name="llama3-8b",
        layers=32,
        hidden=4096,
        ffn=14336,
        heads=32,
        kv_heads=8,
        head_dim=128,
        vocab=128256,
        seq=8192,
        gated_mlp=True,
        tied_embeddings=False,
    )


@pytest.fixture
def mixtral(llama3_8b: ModelShape) -> ModelShape:
    """Mixtral 8x7B (its public config.json)."""
    return replace(llama3_8b, name="mixtral", vocab=32000, seq=4096, experts=8, top_k=2, expert_ffn=14336)


@pytest.fixture
def deepseek_v3() -> ModelShape:
    """DeepSeek-V3 (its public config.json)."""
    return ModelShape(
        name="deepseek-v3",
        layers=61,
        hidden=7168,
        ffn=18432,
        heads=128,
        kv_heads=128,
        head_dim=192,
        vocab=129280,
        seq=4096,
        gated_mlp=True,
        experts=256,
        top_k=8,
        shared_experts=1,
        expert_ffn=2048,
        tied_embeddings=False,
        q_lora_rank=1536,
        kv_lora_rank=512,
        qk_rope_dim=64,
        v_head_dim=128,
        dense_layers=3,
        mtp_layers=1,
    )
