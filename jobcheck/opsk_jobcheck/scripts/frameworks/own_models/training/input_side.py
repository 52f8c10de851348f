"""Finds how large an input may be by the first product behind the convolutions of a model, which reads all places."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import ceil

from opsk_jobcheck.scripts.frameworks.own_models.training.layer_sums import get_layer_name, read_argument, read_size
from opsk_jobcheck.scripts.frameworks.own_models.values import Module

MIN_PLACES = 4
"""Fewer may be the means and maxima of all places."""
MARGIN = 1.25
"""What an input that is no square has more than a square one of as many places."""
_CHANGES_PLACES = frozenset(
    {
        *("max_pool1d", "max_pool2d", "max_pool3d", "avg_pool1d", "avg_pool2d", "avg_pool3d", "interpolate", "pad"),
        *("adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "adaptive_max_pool1d"),
        *("adaptive_max_pool2d", "max", "min", "amax", "amin", "mean", "sum", "std", "var", "topk", "logsumexp", "cat"),
        *("stack", "einsum", "matmul", "bmm", "rearrange", "reduce", "unfold", "fold", "pixel_unshuffle", "select"),
        *("chunk", "split", "narrow", "gather", "conv1d", "conv2d", "conv3d", "max_pool2d_with_indices"),
    }
)
"""Functions that change how many places there are."""
_OTHERS = ("Adaptive", "Global", "ConvTranspose", "Upsampl", "Pixel", "Embedding", "LSTM", "GRU", "RNN", "MaxUnpool")


def find_input_side(layers: Sequence[Module], names: Collection[str]) -> int:
    """Return the side of an image, or the length of a sequence, at most; 0 where no layer tells it.

    Parameters
    ----------
    layers
        The layers of a model in the order in which it makes them.
    names
        The functions that its classes call.
    """
    if not _CHANGES_PLACES.isdisjoint(names):
        return 0
    channels, passed = 0, list[Module]()
    for layer in layers:
        name = get_layer_name(layer)
        if name.startswith(_OTHERS):
            return 0
        if name.startswith("Conv") or name.endswith(("Pool1d", "Pool2d", "Pool3d")):
            passed.append(layer)
        if name.startswith("Conv"):
            channels = read_size(layer, 1, "out_channels") or 0
        if name == "Linear" and passed:
            places, rest = divmod(read_size(layer, 0, "in_features") or 0, channels or 1)
            return _widen(passed, places) if channels and not rest and places >= MIN_PLACES else 0
    return 0


def _widen(layers: Sequence[Module], places: int) -> int:
    """Return the side of the input of layers that put out so many places; 0 where one of their sizes is not known."""
    axes = {int(get_layer_name(layer)[-2]) for layer in layers}
    if len(axes) != 1:
        return 0
    side: int = ceil(places ** (1 / axes.pop()))
    for layer in reversed(layers):
        is_pool = "Pool" in get_layer_name(layer)
        kernel = _read_largest(read_argument(layer, 0 if is_pool else 2, "kernel_size", None))
        stride = _read_largest(read_argument(layer, 1 if is_pool else 3, "stride", None if is_pool else 1))
        padding = read_argument(layer, 2 if is_pool else 4, "padding", 0)
        dilation = _read_largest(read_argument(layer, 3 if is_pool else 5, "dilation", 1))
        stride = kernel if is_pool and stride is None else stride
        if kernel is None or stride is None or dilation is None:
            return 0
        reach = dilation * (kernel - 1)
        around = 2 * padding if isinstance(padding, int) else reach if padding == "same" else 0
        side = max(side, (side - 1) * stride + reach + stride - around)
    return ceil(MARGIN * side)


def _read_largest(value: object) -> int | None:
    """Return a size along an axis, the largest of several; ``None`` where it is not known."""
    rows = value if isinstance(value, list | tuple) else [value]
    numbers = [row for row in rows if isinstance(row, int) and not isinstance(row, bool)]
    return max(numbers) if numbers and len(numbers) == len(rows) else None
