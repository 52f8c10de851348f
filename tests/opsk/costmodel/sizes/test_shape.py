from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from opsk.costmodel.sizes.shape import attended_tokens, build_shape, build_shapes
from opsk.workload.model import ModelShape
from tests.fakes.training_runs import gpt


def test_what_a_field_leaves_to_others_is_filled_in(mixtral: ModelShape):
    shape = build_shape(replace(mixtral, shared_experts=2, learned_positions=True))
    assert shape.shared_ffn == 2 * 14336
    assert shape.v_head_dim == 128
    assert shape.position_rows == mixtral.seq


def test_details_that_are_not_stated_follow_the_style(llama3_8b: ModelShape):
    assert build_shape(gpt(layers=2, hidden=512, heads=8)).qkv_bias == 1
    assert build_shape(llama3_8b).qkv_bias == 0
    assert build_shape(replace(llama3_8b, qkv_bias=True)).qkv_bias == 1


def test_flags_tell_whether_any_of_several_models_has_a_thing(llama3_8b: ModelShape, mixtral: ModelShape):
    assert not build_shape(llama3_8b).has_experts
    table = build_shapes([llama3_8b, mixtral])
    assert table.has_experts
    assert not table.has_latent
    assert table.moe_layers.tolist() == [0, 32]


def test_columns_are_shared_and_so_read_only(llama3_8b: ModelShape):
    assert build_shape(llama3_8b) is build_shape(replace(llama3_8b))
    with pytest.raises(ValueError, match="read-only"):
        build_shapes([llama3_8b]).layers[0] = 1


def test_a_window_as_long_as_the_sequence_sees_all_of_it(llama3_8b: ModelShape):
    full = attended_tokens(build_shape(llama3_8b))
    same = attended_tokens(build_shape(replace(llama3_8b, attention_window=8192, windowed_layers=32)))
    longer = attended_tokens(build_shape(replace(llama3_8b, attention_window=10**6, windowed_layers=32)))
    np.testing.assert_array_equal([full, same, longer], 8192)


def test_half_of_the_layers_with_a_window_save_half_as_much(llama3_8b: ModelShape):
    half, whole = (
        attended_tokens(build_shape(replace(llama3_8b, attention_window=1024, windowed_layers=layers)))
        for layers in (16, 32)
    )
    assert 8192 - half == pytest.approx((8192 - whole) / 2, rel=1e-12)
