"""What a step saves at most of samples of which only the data tell the size."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsk.workload.unstated.layer_limit import LayerSums
from opsk.workload.unstated.sample_limit import LADDERS, KnownSizes, Sample, find_kind, limit_samples
from opsk.workload.unstated.sizes import Size, Task, find_range

ROWS = LayerSums(
    first="Linear",
    channels=16,
    patch=0,
    row_features=500,
    map_features=0,
    width=64,
    positions=0,
    products=3,
    shrinks=False,
    grows=False,
    attends=False,
    parameters=9000,
)
IMAGES = replace(ROWS, first="Conv2d", map_features=4000, shrinks=True)
KNOWN = KnownSizes(side=0, length=0, batch=16, parts=1)


@pytest.mark.parametrize(
    ("sums", "is_graph", "kind"),
    [
        (ROWS, False, Sample.ROWS),
        (ROWS, True, Sample.GRAPH),
        (replace(ROWS, sequence_features=80), False, Sample.SEQUENCE),
        (replace(ROWS, sequence_features=80, grows=True), False, None),
        (replace(ROWS, sequence_features=80, attends=True), False, Sample.TOKENS),
        (replace(ROWS, first="Embedding"), False, Sample.TOKENS),
        (IMAGES, False, Sample.IMAGE),
        (IMAGES, True, None),
        (replace(IMAGES, first="Linear"), False, None),
        (replace(IMAGES, first="Conv3d", volumes=True), False, Sample.VOLUME),
        (replace(IMAGES, first="Conv3d", volumes=True, attends=True), False, None),
    ],
)
def test_the_layers_tell_what_a_sample_is(sums: LayerSums, is_graph: bool, kind: Sample | None) -> None:
    assert find_kind(sums, is_graph=is_graph) is kind


def test_samples_are_as_large_as_they_rarely_are_where_the_batch_is_known() -> None:
    limits = limit_samples([ROWS], KNOWN, is_graph=False)
    places = find_range(Size.PLACES, Task.ANY_ROWS)
    assert limits is not None
    assert places is not None
    assert (limits.largest.batch, limits.largest.places) == (16, places.generous)
    assert limits.largest.describe() == "samples of 4,096 rows in batches of 16"


def test_not_both_the_batch_and_the_samples_are_at_their_largest() -> None:
    limits = limit_samples([ROWS], replace(KNOWN, batch=0), is_graph=False)
    places, batches = find_range(Size.PLACES, Task.ANY_ROWS), find_range(Size.MICRO_BATCH, Task.ANY)
    assert limits is not None
    assert places is not None
    assert batches is not None
    corners = {(batches.typical, places.generous), (batches.generous, places.typical)}
    assert (limits.largest.batch, limits.largest.places) in corners


def test_smaller_samples_save_less() -> None:
    limits = limit_samples([IMAGES], KNOWN, is_graph=False)
    assert limits is not None
    saved = [case.saved_bytes for case in limits.smaller]
    assert saved == sorted(saved)
    assert saved[-1] < limits.largest.saved_bytes
    assert [case.places for case in limits.smaller] == [side for side in LADDERS[Sample.IMAGE] if side < 1024]


def test_a_known_side_or_length_leaves_no_range() -> None:
    image = limit_samples([IMAGES], replace(KNOWN, side=96), is_graph=False)
    text = limit_samples([replace(ROWS, first="Embedding")], replace(KNOWN, length=50), is_graph=False)
    assert image is not None
    assert text is not None
    assert (image.largest.places, text.largest.places) == (96, 50)


def test_no_more_tokens_than_learned_positions() -> None:
    sums = replace(ROWS, first="Embedding", positions=77)
    limits = limit_samples([sums], replace(KNOWN, length=50), is_graph=False)
    assert limits is not None
    assert limits.largest.places == 77


def test_several_parts_of_a_sample_and_several_passes_count() -> None:
    one = limit_samples([IMAGES], KNOWN, is_graph=False)
    several = limit_samples([IMAGES], replace(KNOWN, parts=10, passes=3), is_graph=False)
    assert one is not None
    assert several is not None
    assert several.largest.saved_bytes == 30 * one.largest.saved_bytes
    assert limit_samples([IMAGES], replace(KNOWN, parts=0), is_graph=False) is None
    assert limit_samples([ROWS], replace(KNOWN, parts=0), is_graph=False) is not None  # its rows are its parts


def test_a_row_of_many_numbers_is_one_of_few() -> None:
    """A sample of 4,096 rows has no 262,144 numbers in each."""
    narrow = replace(ROWS, row_features=5000, open_features=64)
    wide = replace(ROWS, row_features=1_000_000, open_features=1 << 18, parameters=90_000_000)
    limits = limit_samples([narrow, wide], KNOWN, is_graph=False)
    assert limits is not None
    assert limits.parameters == 90_000_000
    assert limits.largest.saved_bytes < 16 * 4096 * 1_000_000


def test_public_models_among_the_parts_save_what_was_measured_for_a_pixel() -> None:
    sums = replace(ROWS, pixel_bytes=1000)
    limits = limit_samples([sums], replace(KNOWN, side=100), is_graph=False)
    assert limits is not None
    assert limits.largest.saved_bytes >= 16 * 1000 * 128 * 128  # sides are rounded up to a multiple of 32


@given(st.integers(1, 4096), st.integers(1, 1 << 20), st.booleans())
def test_more_samples_of_a_size_never_save_less(batch: int, features: int, attends: bool) -> None:
    sums = replace(ROWS, row_features=features, sequence_features=1, attends=attends)
    known = replace(KNOWN, length=300)
    first, second = (limit_samples([sums], replace(known, batch=count), is_graph=False) for count in (batch, batch + 1))
    assert first is not None
    assert second is not None
    assert first.largest.saved_bytes < second.largest.saved_bytes


def test_layers_on_images_of_a_program_that_reads_no_images_work_on_its_sequences() -> None:
    folded = replace(IMAGES, first="Linear", sequence_features=40)
    assert limit_samples([folded], replace(KNOWN, length=96), is_graph=False) is None
    limits = limit_samples([folded], replace(KNOWN, length=96, reads_images=False), is_graph=False)
    assert limits is not None
    assert (limits.largest.kind, limits.largest.places) == (Sample.SEQUENCE, 96)
    assert limit_samples([folded], replace(KNOWN, reads_images=False), is_graph=False) is None  # no length is known


def test_a_side_that_a_layer_fixes_is_the_largest() -> None:
    limits = limit_samples([replace(IMAGES, side=140)], KNOWN, is_graph=False)
    assert limits is not None
    assert limits.largest.places == 140
    assert max(case.places for case in limits.smaller) == 128


def test_thousands_of_rows_have_no_hundred_thousands_of_columns() -> None:
    sizes = (1024, 1 << 18)
    rows = [replace(ROWS, row_features=size, open_features=size) for size in sizes]
    limits = limit_samples(rows, replace(KNOWN, batch=0), is_graph=False)
    batches = find_range(Size.MICRO_BATCH, Task.ANY)
    assert limits is not None
    assert batches is not None
    alone = limit_samples(rows[1:], replace(KNOWN, batch=batches.generous), is_graph=False)
    assert alone is not None
    assert limits.largest.saved_bytes < alone.largest.saved_bytes


@pytest.mark.parametrize(("batch", "places"), [(16, 1024), (32, 1024), (128, 512), (8192, 256)])
def test_large_batches_have_smaller_images(batch: int, places: int) -> None:
    limits = limit_samples([IMAGES], replace(KNOWN, batch=batch), is_graph=False)
    assert limits is not None
    assert limits.largest.places == places


def test_a_size_that_is_known_holds_for_any_batch() -> None:
    limits = limit_samples([IMAGES], replace(KNOWN, batch=8192, side=640), is_graph=False)
    assert limits is not None
    assert limits.largest.places == 640
