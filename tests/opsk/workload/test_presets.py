"""Which shape a named model is completed with. Llama 3's numbers are from its config.json files on huggingface.co."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsk.workload.completion import Completion, complete
from opsk.workload.model import StatedModel
from opsk.workload.plan import StatedPlan
from opsk.workload.public_models.lookup import public_models
from opsk.workload.workload import Unknown, Workload

PLAN = StatedPlan(gpus=8, micro_batch=1)
LLAMA_70B = "meta-llama/Llama-3.1-70B"


def completed(
    name: str | None = LLAMA_70B,
    *,
    framework: str = "hf-trainer",
    options: tuple[tuple[str, str], ...] = (),
    **shape: int,
) -> Completion:
    """Complete a workload with a named model of which some sizes may be stated."""
    model = StatedModel(name=name, seq=2048, **shape)  # type: ignore[arg-type]
    return complete(Workload(framework=framework, model=model, plan=PLAN, options=options))


def test_the_catalogue_fills_the_shape_and_says_so() -> None:
    done = completed()
    assert done.model is not None
    shape = done.model
    assert (shape.layers, shape.hidden, shape.heads, shape.kv_heads, shape.ffn) == (80, 8192, 64, 8, 28672)
    assert (shape.vocab, shape.seq, shape.name) == (128256, 2048, LLAMA_70B)
    why = {entry.field: entry.why for entry in done.assumed}
    assert why["model.layers"] == f"the shape of {LLAMA_70B} in opsk's catalogue"


@pytest.mark.parametrize("framework", ["pytorch-fsdp", "torchtitan", "trl", "axolotl", "nemo"])
def test_every_framework_is_completed(framework: str) -> None:
    assert completed("llama3-70b", framework=framework).model is not None


@pytest.mark.parametrize("framework", ["megatron-lm", "megatron-deepspeed"])
def test_flags_of_megatron_are_the_whole_shape(framework: str) -> None:
    assert "model.layers" in completed(framework=framework).missing


@pytest.mark.parametrize("name", [None, "", "my-llama", "my-org/llama-3-70b-custom", "llama-3-70b-v2-pruned"])
def test_an_unknown_name_stands_for_nothing(name: str | None) -> None:
    assert "model.layers" in completed(name).missing


def test_a_name_after_a_public_one_has_its_shape_and_the_advice_tells_so() -> None:
    done = completed("my-org/llama-3-task-70b")
    assert done.model is not None
    assert done.model.layers == 80
    why = {entry.field: entry.why for entry in done.assumed}
    assert why["model.layers"] == (
        "the shape of llama-3-70b in opsk's catalogue, after which my-org/llama-3-task-70b is named"
    )


def test_the_length_of_sequences_is_not_the_models() -> None:
    model = StatedModel(name=LLAMA_70B)
    assert "model.seq" in complete(Workload(framework="hf-trainer", model=model, plan=PLAN)).missing


def test_what_is_stated_wins() -> None:
    shape = completed(layers=4, vocab=1000).model
    assert shape is not None
    assert (shape.layers, shape.vocab, shape.hidden) == (4, 1000, 8192)


def test_another_width_has_other_heads_and_another_mlp() -> None:
    done = completed(hidden=4096)
    assert "model.heads" in done.missing
    shape = completed(hidden=4096, heads=32).model
    assert shape is not None
    # not the 128 x 64 heads and the 28672 columns of the 70B model
    assert (shape.head_dim, shape.kv_heads, shape.ffn != 28672) == (128, 32, True)


def test_other_heads_are_as_wide_as_they_divide() -> None:
    shape = completed(heads=128).model
    assert shape is not None
    assert (shape.head_dim, shape.kv_heads) == (64, 8)


def test_a_mixture_with_other_experts_keeps_what_does_not_depend_on_them() -> None:
    shape = completed("Mixtral-8x7B", experts=4, expert_ffn=1024, top_k=1).model
    assert shape is not None
    assert (shape.experts, shape.top_k, shape.expert_ffn, shape.hidden) == (4, 1, 1024, 4096)


def test_what_cannot_be_told_is_not_taken_from_the_catalogue() -> None:
    workload = Workload(
        framework="hf-trainer",
        model=StatedModel(name=LLAMA_70B, seq=8),
        plan=PLAN,
        unknown=(Unknown(field="model.layers", why="$1"),),
    )
    assert "model.layers" in complete(workload).missing


def test_a_preset_is_where_another_model_starts_from() -> None:
    done = completed(None, options=(("model.preset", "gpt2"),), hidden=1024, heads=16)
    assert done.model is not None
    # GPT-2 has 12 layers and two matrices of four widths an MLP
    assert (done.model.layers, done.model.ffn, done.model.gated_mlp, done.model.learned_positions) == (
        12,
        4096,
        False,
        True,
    )


@given(
    name=st.sampled_from(sorted(public_models())),
    hidden=st.sampled_from((None, 64, 4096, 5120)),
    heads=st.sampled_from((None, 1, 8, 40, 64)),
    layers=st.sampled_from((None, 1, 3, 80)),
    experts=st.sampled_from((None, 0, 1, 6)),
    kv_heads=st.sampled_from((None, 1, 7, 128)),
)
def test_nothing_stated_beside_a_name_ever_raises(name: str, **sizes: int | None) -> None:
    done = completed(name, **{key: value for key, value in sizes.items() if value is not None})
    if done.model is not None:
        assert all(getattr(done.model, key) == value for key, value in sizes.items() if value)
        assert done.model.heads % done.model.kv_heads == 0
