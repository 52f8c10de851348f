"""Computes what torchvision's transforms make of an image.

Source: ``torchvision/transforms`` of torchvision 0.9 to 0.24, of both versions of its interface.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from opsk_jobcheck.scripts.frameworks.own_models.tensors.tensors import make_tensor
from opsk_jobcheck.scripts.frameworks.own_models.training.made import Image, Made
from opsk_jobcheck.scripts.frameworks.own_models.values import DATA, Shape, Tensor

USUAL_CHANNELS = 3
"""Channels of an image of which they are not known, at most."""
_CUTS = frozenset({"CenterCrop", "RandomCrop", "RandomResizedCrop", "RandomSizedCrop", "FiveCrop", "TenCrop"})
_SAME = frozenset(
    {
        *("Normalize", "ToPILImage", "RandomHorizontalFlip", "RandomVerticalFlip", "ColorJitter", "RandomErasing"),
        *("AutoAugment", "RandAugment", "TrivialAugmentWide", "AugMix", "RandomAffine", "RandomGrayscale", "ToDtype"),
        *("GaussianBlur", "RandomPerspective", "RandomAdjustSharpness", "RandomAutocontrast", "RandomEqualize"),
        *(
            "RandomInvert",
            "RandomPosterize",
            "RandomSolarize",
            "ElasticTransform",
            "ConvertImageDtype",
            "GaussianNoise",
        ),
        *(
            "RandomApply",
            "RandomChoice",
            "RandomOrder",
            "LinearTransformation",
            "RandomRotation",
            "RandomPhotometricDistort",
        ),
        *("RandomPhotometricDistort", "GaussianNoise"),
        *("SanitizeBoundingBoxes", "ConvertBoundingBoxFormat", "Identity", "ToPureTensor"),
    }
)
"""Transforms after which an image has the size that it had (of a rotation unless it expands the image)."""
_TENSORS = frozenset({"ToTensor", "PILToTensor", "ToImage", "ToImageTensor"})


def apply_transform(transform: Any, value: Any) -> Any:
    """Return what a transform makes of an image or a tensor; ``DATA`` where that is not known."""
    if transform is None:
        return value
    shape = value.shape if isinstance(value, Image | Tensor) else None
    is_tensor = isinstance(value, Tensor)
    if not isinstance(transform, Made) or (shape is None and not isinstance(value, Image | Tensor)):
        return DATA
    name = transform.name
    if name in ("Compose", "Sequential"):
        rows = transform.get(0, "transforms")
        rows = rows if isinstance(rows, list | tuple) and name == "Compose" else transform.positional
        for row in rows:
            value = apply_transform(row, value)
        return value
    if name in _TENSORS:
        return value if is_tensor else make_tensor(_fill_channels(shape), "float32")
    if name in ("FiveCrop", "TenCrop"):
        return DATA
    if name in _SAME:
        if name == "RandomRotation" and transform.get(2, "expand", False) is not False:
            return DATA
        return value
    changed = _resize(transform, shape)
    if changed is None:
        return DATA
    return make_tensor(_fill_channels(changed), value.dtype) if is_tensor else Image(changed)


def _fill_channels(shape: Shape | None) -> Shape | None:
    """Return the shape with the usual channels where they are not known."""
    if shape is None or not shape or shape[0] is not None:
        return shape
    return (USUAL_CHANNELS, *shape[1:])


def _resize(transform: Made, shape: Shape | None) -> Shape | None:
    """Return the shape that a transform gives an image; ``None`` where that is not known."""
    if shape is None or len(shape) != 3:
        return None
    channels, height, width = shape
    size = transform.get(0, "size")
    if transform.name in _CUTS:
        sides = read_sides(size)
        return (channels, *sides) if sides is not None else None
    if transform.name in ("Resize", "Scale"):
        if isinstance(size, int) and not isinstance(size, bool):
            if height == width:
                return (channels, size, size) if height is not None else (channels, None, None)
            return (channels, None, None)  # the shorter side has that size
        sides = read_sides(size)
        return (channels, *sides) if sides is not None else None
    if transform.name == "Grayscale":
        count = transform.get(0, "num_output_channels", 1)
        return (count, height, width) if isinstance(count, int) else None
    if transform.name == "Pad":
        added = _find_padding(transform.get(0, "padding"))
        if added is None:
            return None
        pairs = zip((height, width), added, strict=True)
        return (channels, *(None if side is None else side + more for side, more in pairs))
    return None


def read_sides(size: Any) -> tuple[int, int] | None:
    """Return height and width of a size that is given as one number or two."""
    if isinstance(size, int) and not isinstance(size, bool):
        return size, size
    if isinstance(size, list | tuple) and 1 <= len(size) <= 2:
        sides = [side for side in size if isinstance(side, int) and not isinstance(side, bool)]
        return (sides[0], sides[-1]) if len(sides) == len(size) else None
    return None


def _find_padding(padding: Any) -> tuple[int, int] | None:
    """Return what a padding adds to height and width."""
    row: Sequence[Any] = padding if isinstance(padding, list | tuple) else (padding,)
    if len(row) not in (1, 2, 4) or not all(isinstance(side, int) for side in row):
        return None
    left, top, right, bottom = [*row] * (4 // len(row))
    return top + bottom, left + right


def find_sides(positional: Sequence[Any], keywords: Mapping[str, Any], *, is_second: bool) -> tuple[int, ...]:
    """Return height and width that a function gives an image, however it takes them; none where they are not known.

    Parameters
    ----------
    is_second
        Whether the size is the second argument, behind the image.
    """
    given = list(positional[1:] if is_second else positional)
    size = next((keywords[name] for name in ("size", "dsize", "output_shape") if name in keywords), None)
    if "height" in keywords and "width" in keywords:
        size = (keywords["height"], keywords["width"])
    if size is None and given:
        size = tuple(given[:2]) if len(given) > 1 and all(isinstance(side, int) for side in given[:2]) else given[0]
    return read_sides(size) or ()
