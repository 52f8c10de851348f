"""Layouts of layers over stages; letters and repetitions are those of Megatron Core's own parser."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsk.frameworks.catalog import FRAMEWORKS
from opsk.frameworks.layers import chunk_layers
from opsk.frameworks.settings.megatron_layout import MAX_LETTERS, choose_stage_fields, parse_layout, write_layout
from opsk.workload.plan import Plan
from opsk.workload.public_models.lookup import public_model

DEEPSEEK_V3 = public_model("deepseek-v3")
LLAMA_405B = public_model("llama-3.1-405b")


@pytest.mark.parametrize(
    ("text", "pp", "stages", "mtp"),
    [
        # layouts of DeepSeek-V3 (61 layers) in Megatron-Bridge's recipes and in the docstring of Megatron's parser
        ("Et|(tt|)*30mL", 8, (7, 8, 8, 8, 8, 8, 8, 6), (31, 1)),
        ("Et*2|(tt|)*22t|(tt|)*7mL", 8, (8, 8, 8, 8, 8, 8, 8, 5), (31, 1)),
        ("Et*4|(t*4|)*14tmL", 4, (16, 16, 16, 13), (15, 1)),
        ("Ettt|(tt|)*29,m|L", 16, (5, *(4,) * 13, 2, 2), (30, 1)),
        # embedding, layers and loss apart
        ("E|t*3|(t*3|)*2L", 5, (0, 3, 3, 3, 0), (-1, 0)),
        ('[["embedding", "decoder"], ["decoder", "decoder", "mtp", "loss"]]', 2, (1, 2), (1, 1)),
        ("[[embedding,decoder],[],[decoder,loss]]", 3, (1, 0, 1), (-1, 0)),
    ],
)
def test_a_layout_gives_the_layers_of_each_stage(text: str, pp: int, stages: tuple[int, ...], mtp: tuple[int, int]):
    layout = parse_layout(text)
    assert layout.stage_layers(pp) == stages
    assert (layout.mtp_chunk, layout.mtp_layers) == mtp


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("auto", "'a' is none of"),
        ("t|tL", "start with E"),
        ("Et|t", "end with L"),
        ("Et|EtL", "each of them once"),
        ("Etm|mL", "in one chunk"),
        ("Em|tL", "after the last t"),
        ("[[embedding],[layer],[loss]]", "'layer' is none of"),
        ("", "start with E"),
        (f"Et*{MAX_LETTERS}|(t|)*{MAX_LETTERS}L", "more chunks and layers than any model"),
    ],
)
def test_what_megatron_does_not_accept_is_refused(text: str, why: str):
    with pytest.raises(ValueError, match=why):
        parse_layout(text)


@given(st.lists(st.integers(0, 9), min_size=2, max_size=40), st.integers(0, 2))
def test_what_is_written_is_read_again(chunks: list[int], mtp: int):
    layout = parse_layout(write_layout(chunks, mtp_layers=mtp))
    assert (layout.layers, layout.mtp_layers) == (tuple(chunks), mtp)


def test_layouts_are_written_as_people_write_them():
    assert write_layout((1, *(2,) * 30, 0), mtp_layers=1) == "Et|(tt|)*30mL"
    assert write_layout((11, 11, 11, 10)) == "Et*11|(t*11|)*2t*10L"


@pytest.mark.parametrize(
    ("layers", "plan", "fields"),
    [
        (32, {"pp": 4}, {}),
        (30, {"pp": 4, "first_stage_layers": 6}, {"num_layers_in_first_pipeline_stage": 6}),
        # 126 layers, embedding and loss are 16 stages of 8 chunks of 1
        (
            126,
            {"pp": 16, "vpp": 8, "first_stage_layers": 7, "last_stage_layers": 7},
            {"account_for_embedding_in_pipeline_split": True, "account_for_loss_in_pipeline_split": True},
        ),
        (31, {"pp": 4, "vpp": 4, "last_stage_layers": 7}, {"account_for_loss_in_pipeline_split": True}),
        # the layouts of DeepSeek-V3 above, of 32 chunks of 2
        (
            61,
            {"pp": 8, "vpp": 4, "first_stage_layers": 7, "last_stage_layers": 6},
            {"pipeline_model_parallel_layout": "Et|(tt|)*30L"},
        ),
        (
            61,
            {"pp": 8, "vpp": 4, "last_stage_layers": 5},
            {"pipeline_model_parallel_layout": "Ett|(tt|)*22t|(tt|)*7L"},
        ),
    ],
)
def test_uneven_stages_are_written_in_the_simplest_form_that_has_them(
    layers: int, plan: dict[str, int], fields: dict[str, object]
):
    assert LLAMA_405B is not None
    model, plan_ = replace(LLAMA_405B, layers=layers), Plan(global_batch=64, **plan)
    assert choose_stage_fields(model, plan_) == fields
    assert sum(chunk_layers(model, plan_)) == layers


def test_a_plan_with_a_layout_has_no_number_of_chunks():
    """``validate_args`` accepts one of both."""
    assert DEEPSEEK_V3 is not None
    model = replace(DEEPSEEK_V3, mtp_layers=1)
    plan = Plan(pp=8, vpp=4, first_stage_layers=7, last_stage_layers=6, global_batch=64)
    options = {option.name: option.value for option in FRAMEWORKS["megatron"].settings(model, plan).options}
    assert options["--pipeline-model-parallel-layout"] == "Et|(tt|)*30mL"
    assert "--num-virtual-stages-per-pipeline-rank" not in options
    assert not FRAMEWORKS["megatron"].refuses(model, plan)
