"""Sizes that a workload leaves open."""

from __future__ import annotations

import pytest

from opsk.workload.completion import ENCODER_LENGTH
from opsk.workload.measured_model import DATA_SET, INPUT_SIZE
from opsk.workload.model import StatedModel
from opsk.workload.plan import StatedPlan
from opsk.workload.unstated.open_sizes import (
    BATCH,
    INPUT,
    SEQ,
    find_open_input,
    find_open_sizes,
    find_task,
    list_corners,
    state_sizes,
)
from opsk.workload.unstated.sizes import Task
from opsk.workload.workload import Unknown, Workload
from opsk.workload.worst_case import MICRO_BATCH


def make_workload(name: str, *, micro_batch: int | None = None, seq: int | None = None, **options: str) -> Workload:
    return Workload(
        framework=None,
        model=StatedModel(name=name, seq=seq),
        plan=StatedPlan(micro_batch=micro_batch),
        options=tuple(sorted(options.items())),
    )


@pytest.mark.parametrize(
    ("name", "task"),
    [
        ("Qwen/Qwen2.5-0.5B", Task.LANGUAGE_MODEL),
        ("bert-base-uncased", Task.TEXT_CLASSIFICATION),
        ("t5-small", Task.SEQUENCE_TO_SEQUENCE),
        ("vit_base_patch16_224", Task.IMAGE_CLASSIFICATION),
        ("resnet50", Task.IMAGE_CLASSIFICATION),
        ("openai/clip-vit-base-patch32", None),  # of two towers: its batch is no matter of memory alone
        ("someone/unknown", None),
        (None, None),
    ],
)
def test_the_task_follows_from_the_model(name: str | None, task: Task | None) -> None:
    assert find_task(name) is task


def test_length_and_batch_are_open_where_nothing_states_them() -> None:
    workload = make_workload("Qwen/Qwen2.5-0.5B")
    assert [row.field for row in find_open_sizes(workload, (SEQ, BATCH))] == [SEQ, BATCH]
    assert [row.field for row in find_open_sizes(make_workload("Qwen/Qwen2.5-0.5B", seq=512), (BATCH,))] == [BATCH]
    at_most = make_workload("Qwen/Qwen2.5-0.5B", **{MICRO_BATCH: "4"})
    assert [row.field for row in find_open_sizes(at_most, (SEQ, BATCH))] == [SEQ]


def test_what_only_lowers_the_memory_may_be_missing_too() -> None:
    workload = make_workload("Qwen/Qwen2.5-0.5B", micro_batch=1)
    assert [row.field for row in find_open_sizes(workload, (SEQ, "plan.sharding", "plan.precision"))] == [SEQ]


def test_a_batch_of_images_of_any_size_is_open_in_both() -> None:
    assert [row.field for row in find_open_sizes(make_workload("resnet50"), (BATCH,))] == [BATCH, INPUT]


@pytest.mark.parametrize("missing", [("model.layers",), (SEQ, "model.vocab")])
def test_nothing_is_said_where_more_is_missing(missing: tuple[str, ...]) -> None:
    assert find_open_sizes(make_workload("Qwen/Qwen2.5-0.5B"), missing) == ()


def test_not_both_sizes_are_at_what_next_to_none_has() -> None:
    """Who has long texts has small batches."""
    seq, batch = find_open_sizes(make_workload("Qwen/Qwen2.5-0.5B"), (SEQ, BATCH))
    assert list(list_corners((seq, batch))) == [
        {SEQ: seq.generous, BATCH: batch.typical},
        {SEQ: seq.typical, BATCH: batch.generous},
    ]


def test_an_encoder_for_long_texts_gets_long_texts() -> None:
    (short,) = find_open_sizes(make_workload("bert-base-uncased", micro_batch=8), (SEQ,))
    (long,) = find_open_sizes(make_workload("answerdotai/ModernBERT-base", micro_batch=8), (SEQ,))
    assert (short.generous, long.generous) == (512, 8192)


def test_images_of_a_measured_model_are_open_where_nothing_states_their_size() -> None:
    row = find_open_input(make_workload("resnet50"))
    assert row is not None
    assert (row.field, row.typical) == (INPUT, 224)
    assert row.generous > 224
    assert find_open_input(make_workload("resnet50", **{INPUT_SIZE: "96"})) is None
    assert find_open_input(make_workload("facebook/convnext-base-224")) is None  # the name says it
    assert find_open_input(make_workload("bert-base-uncased")) is None


def test_images_of_a_public_data_set_are_no_larger_than_models_take_them() -> None:
    """Programs enlarge small images to what a model was trained with."""
    row = find_open_input(make_workload("resnet50", **{DATA_SET: "cifar10"}))
    assert row is not None
    assert (row.typical, row.generous) == (32, 224)


def test_a_size_is_stated_in_place_of_one_that_is_not_known() -> None:
    workload = Workload(framework=None, unknown=(Unknown(field=SEQ, why="$1"),))
    stated = state_sizes(workload, {SEQ: 512, INPUT: 64})
    assert (stated.model.seq, stated.unknown, dict(stated.options)) == (512, (), {INPUT_SIZE: "64"})


def test_encoder_and_decoder_both_read_as_much_as_is_assumed() -> None:
    stated = state_sizes(make_workload("t5-small"), {SEQ: 1024})
    assert dict(stated.options) == {ENCODER_LENGTH: "1024"}
    known = state_sizes(make_workload("t5-small", **{ENCODER_LENGTH: "64"}), {SEQ: 1024})
    assert dict(known.options) == {ENCODER_LENGTH: "64"}
