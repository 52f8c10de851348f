"""Limits what one step of a model saves by its layers and the size of its input, where nothing else is known of it.

Each layer is taken to run once, on each place of its input. What is known of measured models narrows that for networks
of images that shrink what they get.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

ATTENTION = ("MultiheadAttention", "TransformerEncoderLayer", "TransformerDecoderLayer")
FP32_BYTES = 4
PIXEL_BYTES = 1.8
"""Bytes in fp32 that a network of images saves for a pixel and the square root of its parameters, at most.

Of 144 measured ones the largest has 1.77, and 98 of 100 have no more than 1.36.
"""
HEAD_WIDTH = 32
"""The least width of a head, mostly."""
PRODUCTS_OF_ATTENTION = 3
"""Linear layers of a block with attention, at least."""
MAPS = 4
"""Maps of attention that a head saves: scores, their softmax, a mask and what dropout leaves."""
MARGIN = 2.0
"""What a model of a kind that was not measured may save beyond the limit."""


TOKEN_MARGIN = 1.25
"""The same of tokens, whose layers all run on each of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerSums:
    """Sums over the layers of models.

    Parameters
    ----------
    first
        The first layer with weights, by its name in PyTorch.
    channels
        Those of the images that it reads.
    patch
        The side of the patches that it cuts an image into; 0 where it does not.
    row_features, map_features
        Numbers that layers on tokens or rows, and layers on places of an image, save for each of these.
    width
        The width of tokens.
    positions
        Tokens for which positions are learned; 0 where none are.
    products
        Linear layers and layers of attention.
    shrinks, grows
        Whether a layer makes an image smaller, or larger.
    attends
        Whether places of an image may be multiplied with each other.
    sequence_features
        Those of ``row_features`` that layers on the steps of a sequence save.
    volumes
        Whether a layer works on volumes, or on the frames of a video.
    parameters
        Weights of all layers, those of sizes that only the data tell included.
    open_features
        The size that was taken for each size that only the data tell; 0 where all are known.
    pixel_bytes
        What public models of images among the parts save for a pixel, as it was measured.
    side
        The side of an image, or the length of a sequence, that the first product after the convolutions fixes, at most;
        0 where none does.
    has_public
        Whether a public model is among the parts.
    """

    first: str
    channels: int
    patch: int
    row_features: int
    map_features: int
    width: int
    positions: int
    products: int
    shrinks: bool
    grows: bool
    attends: bool
    sequence_features: int = 0
    volumes: bool = False
    parameters: int = 0
    open_features: int = 0
    pixel_bytes: int = 0
    side: int = 0
    has_public: bool = False


def limit_images(sums: LayerSums, *, parameters: int, side: int) -> int | None:
    """Return what a network of images saves of one of them, at most [bytes]; ``None`` for one that is none."""
    if sums.first != "Conv2d":
        return None
    pixels = side * side
    if sums.patch:
        return limit_tokens(sums, length=(side // sums.patch) ** 2 + 1)
    if sums.attends or (sums.grows and not sums.shrinks):
        return None
    whole = FP32_BYTES * pixels * (sums.map_features + sums.row_features + sums.channels)
    return round(MARGIN * (min(whole, PIXEL_BYTES * pixels * sqrt(parameters)) if sums.shrinks else whole))


def limit_tokens(sums: LayerSums, *, length: int) -> int:
    """Return what a network of tokens, or rows, saves of a sample of that many, at most [bytes]."""
    features = length * (sums.row_features + sums.map_features)
    heads = max(1, sums.width // HEAD_WIDTH)
    blocks = -(-sums.products // PRODUCTS_OF_ATTENTION)
    return round(TOKEN_MARGIN * FP32_BYTES * (features + MAPS * blocks * heads * length * length))
