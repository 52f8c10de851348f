from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsk.errors import InputError
from opsk.workload.model import MODEL_FIELDS, ModelShape, StatedModel

GPT3 = ModelShape(
    name="gpt3-175b",
    layers=96,
    hidden=12288,
    ffn=4 * 12288,
    heads=96,
    kv_heads=96,
    head_dim=128,
    vocab=51200,
    seq=2048,
)


def test_everything_of_a_stated_model_may_be_unknown() -> None:
    assert all(getattr(StatedModel(), name) is None for name in MODEL_FIELDS)


def test_a_complete_shape_has_every_stated_field() -> None:
    assert all(hasattr(GPT3, name) for name in MODEL_FIELDS)


@pytest.mark.parametrize("field", ["layers", "hidden", "ffn", "heads", "kv_heads", "head_dim", "vocab", "seq"])
@pytest.mark.parametrize("value", [0, -1])
def test_a_size_below_one_is_refused(field: str, value: int) -> None:
    with pytest.raises(InputError, match=f"{field} is {value}"):
        replace(GPT3, **{field: value})


def test_all_that_is_wrong_is_named_with_the_model() -> None:
    with pytest.raises(InputError) as caught:
        replace(GPT3, layers=0, heads=10, kv_heads=4, experts=8, top_k=9, expert_ffn=0, shared_experts=-1)
    for part in ("gpt3-175b", "layers is 0", "heads 10", "kv_heads 4", "top_k 9", "expert_ffn", "shared_experts is -1"):
        assert part in caught.value.message


@given(st.integers(1, 16), st.integers(1, 16))
def test_query_heads_share_key_heads_evenly(kv_heads: int, groups: int) -> None:
    assert replace(GPT3, heads=kv_heads * groups, kv_heads=kv_heads).kv_heads == kv_heads
    if kv_heads > 1:
        with pytest.raises(InputError, match="not a multiple"):
            replace(GPT3, heads=kv_heads * groups + 1, kv_heads=kv_heads)


def test_a_mixture_of_experts_is_accepted() -> None:
    mixtral = replace(GPT3, experts=8, top_k=2, expert_ffn=14336)
    assert (mixtral.experts, mixtral.top_k) == (8, 2)
