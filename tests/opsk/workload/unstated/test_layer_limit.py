"""What a step saves at most by the layers of a model: it holds for measured models, and for kinds left out."""

from __future__ import annotations

import re
from dataclasses import replace
from importlib.resources import files
from math import sqrt

from hypothesis import given
from hypothesis import strategies as st

from opsk.workload.public_models.measured import TABLES
from opsk.workload.unstated.layer_limit import MARGIN, PIXEL_BYTES, LayerSums, limit_images, limit_tokens

NETWORK = LayerSums(
    first="Conv2d",
    channels=3,
    patch=0,
    row_features=2048,
    map_features=60_000,
    width=64,
    positions=0,
    products=1,
    shrinks=True,
    grows=False,
    attends=False,
)


def read_families(table: str = TABLES[0], kind: str = "image") -> dict[str, list[float]]:
    """Return the bytes for a pixel and the square root of the parameters of measured models, by family."""
    text = files("opsk.workload.public_models").joinpath("catalogue", table).read_text(encoding="utf-8")
    families: dict[str, list[float]] = {}
    for line in text.splitlines():
        if not line.startswith(f"{kind}\t"):
            continue
        _, _, *numbers = line.split("\t")
        size, parameters, stored = int(numbers[0]), int(numbers[1]), int(numbers[4])
        family = re.split(r"[\d_\-/.]", numbers[-1].split()[0].rpartition("/")[2])[0]
        families.setdefault(family, []).append(stored / size**2 / sqrt(parameters))
    return families


def test_no_measured_model_of_images_saves_more_than_the_limit() -> None:
    assert max(value for row in read_families().values() for value in row) <= PIXEL_BYTES


def test_the_limit_holds_for_detectors_which_it_was_not_made_of() -> None:
    detectors = [value for row in read_families("detectors.tsv").values() for value in row]
    assert len(detectors) > 100
    assert max(detectors) <= PIXEL_BYTES


def test_the_limit_holds_for_families_that_are_left_out() -> None:
    """With the 98th percentile of all others, at least 98 of 100 models of a family left out are within the margin."""
    families = read_families()
    assert len(families) >= 20
    held = []
    for name, row in families.items():
        others = sorted(value for other, values in families.items() if other != name for value in values)
        limit = MARGIN * others[int(0.98 * len(others))]
        held += [value <= limit for value in row]
    assert sum(held) >= 0.98 * len(held)


def test_a_network_whose_limit_is_not_known_has_none() -> None:
    assert limit_images(replace(NETWORK, first="Linear"), parameters=1, side=8) is None
    assert limit_images(replace(NETWORK, shrinks=False, grows=True), parameters=1, side=8) is None  # it enlarges them
    assert limit_images(replace(NETWORK, attends=True), parameters=1, side=8) is None


def test_each_layer_runs_on_every_pixel_where_none_makes_the_image_smaller() -> None:
    whole = limit_images(replace(NETWORK, shrinks=False), parameters=11_000_000, side=32)
    assert whole == 2 * 4 * 32 * 32 * (60_000 + 2048 + 3)
    shrinking = limit_images(NETWORK, parameters=11_000_000, side=32)
    assert shrinking is not None
    assert shrinking < whole


def test_patches_of_an_image_are_tokens() -> None:
    patches = replace(NETWORK, patch=16, width=384, products=48, attends=True)
    assert limit_images(patches, parameters=22_000_000, side=224) == limit_tokens(patches, length=197)


@given(sides=st.tuples(st.integers(1, 2048), st.integers(1, 2048)), parameters=st.integers(1, 10**9))
def test_larger_images_have_no_smaller_limit(sides: tuple[int, int], parameters: int) -> None:
    small, large = (limit_images(NETWORK, parameters=parameters, side=side) for side in sorted(sides))
    assert small is not None
    assert large is not None
    assert small <= large


@given(lengths=st.tuples(st.integers(1, 9000), st.integers(1, 9000)))
def test_longer_texts_have_no_smaller_limit(lengths: tuple[int, int]) -> None:
    small, large = (limit_tokens(NETWORK, length=length) for length in sorted(lengths))
    assert small <= large
