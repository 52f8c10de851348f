"""Computes what transforms of albumentations make of arrays of images, which have their channels last.

Source: ``albumentations/augmentations`` of albumentations 1.0 to 2.0.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from opsk_jobcheck.scripts.frameworks.own_models.tensors.tensors import make_tensor
from opsk_jobcheck.scripts.frameworks.own_models.training.made import Image, Made
from opsk_jobcheck.scripts.frameworks.own_models.training.transforms import USUAL_CHANNELS, read_sides
from opsk_jobcheck.scripts.frameworks.own_models.values import DATA, Shape, Tensor

_SIZES = frozenset(
    {"Resize", "RandomCrop", "CenterCrop", "RandomResizedCrop", "RandomSizedCrop", "CropNonEmptyMaskIfExists"}
)
_OPEN = frozenset(
    {"SmallestMaxSize", "LongestMaxSize", "RandomScale", "Crop", "PadIfNeeded", "Transpose", "RandomRotate90"}
)
"""Transforms after which the size of an image is not known."""
_IMAGES = ("image", "mask", "image0", "image1")


def apply_named(transform: Made, given: Mapping[str, Any]) -> Any:
    """Return the table that a transform makes of images that it is given by their names."""
    return {name: _apply(transform, value, is_mask=name == "mask") for name, value in given.items() if name in _IMAGES}


def _apply(transform: Made, value: Any, *, is_mask: bool) -> Any:
    """Return what a transform makes of one image; ``DATA`` where that is not known."""
    shape: Shape | None = None
    if isinstance(value, Tensor):
        shape = value.shape
    elif isinstance(value, Image):
        shape = (*value.shape[1:], value.shape[0])
    if shape is None or not 2 <= len(shape) <= 3:
        shape = (None, None) if is_mask else (None, None, USUAL_CHANNELS)
    dtype = value.dtype if isinstance(value, Tensor) else "uint8"
    rows = transform.get(0, "transforms") if transform.name in ("Compose", "Sequential") else [transform]
    for row in rows if isinstance(rows, list | tuple) else []:
        if not isinstance(row, Made):
            return DATA
        if row.name in ("ToTensorV2", "ToTensor"):
            shape = (shape[2], *shape[:2]) if len(shape) == 3 else shape
        elif row.name == "Normalize":
            dtype = "float32"
        else:
            shape = _resize(row, shape)
    return make_tensor(shape, dtype)


def _resize(transform: Made, shape: Shape) -> Shape:
    """Return the shape that a transform gives an array; a part of a composition counts as what it has."""
    if transform.name in ("Compose", "Sequential", "OneOf", "SomeOf"):
        rows = transform.get(0, "transforms")
        for row in rows if isinstance(rows, list | tuple) else []:
            shape = _resize(row, shape) if isinstance(row, Made) else shape
        return shape
    if transform.name in _OPEN:
        return (None, None, *shape[2:])
    if transform.name not in _SIZES:
        return shape
    size = transform.keywords.get("size", (transform.get(0, "height"), transform.get(1, "width")))
    sides = read_sides(size) or (None, None)
    return (*sides, *shape[2:])
