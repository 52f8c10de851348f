"""Makes the input of a model whose data set is not known, by the sizes that its program is started with."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from opsk.workload.public_models.measured import find_measured
from opsk_jobcheck.scripts.frameworks.own_models.public_parts import WHOLE
from opsk_jobcheck.scripts.frameworks.own_models.tensors.tensors import make_tensor
from opsk_jobcheck.scripts.frameworks.own_models.training.transforms import USUAL_CHANNELS
from opsk_jobcheck.scripts.frameworks.own_models.values import Choice, Module, Tensor

MAX_MODULES = 256
MAX_POSITIONS = 1 << 16
MAX_ROWS = 16
"""Rows of a sample that a network of rows may read at a time: points of a ray, atoms, words."""
_OF_ROWS = frozenset(
    {"Linear", "ReLU", "GELU", "Dropout", "BatchNorm1d", "Sigmoid", "Tanh", "LeakyReLU", "ELU", "SiLU"}
)
"""Layers of a network that reads one row of numbers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """Sizes of a sample by the settings of a program, 0 where they are not known.

    Parameters
    ----------
    side
        Height and width of an image.
    length
        Tokens of a text.
    batch
        Samples that a process works on at a time.
    is_single
        Whether a sample is one image, text or row, as far as the program's text says.
    parts
        Images or texts of a sample at most; 0 where that is not known.
    """

    side: int = 0
    length: int = 0
    batch: int = 0
    is_single: bool = True
    parts: int = 1


def make_usual_input(model: Module, inputs: Inputs) -> Tensor | None:
    """Return what a model gets, by its first layer; ``None`` where that does not tell it."""
    layers = list(_list_layers(model))
    if not layers or not inputs.batch or not inputs.is_single or len(layers) >= MAX_MODULES:
        return None
    first = layers[0]
    channels, features = first.attributes.get("in_channels"), first.attributes.get("in_features")
    if first.name == "Conv2d" and isinstance(channels, int) and inputs.side:
        return make_tensor((inputs.batch, channels, inputs.side, inputs.side), "float32")
    if first.layer is not None and first.layer[0] == WHOLE and inputs.side and find_measured(first.name) is not None:
        return make_tensor((inputs.batch, USUAL_CHANNELS, inputs.side, inputs.side), "float32")
    length = inputs.length or _find_positions(layers)
    if first.name == "Embedding" and length:
        return make_tensor((inputs.batch, length), "int64")
    if first.name == "Linear" and isinstance(features, int) and all(layer.name in _OF_ROWS for layer in layers):
        return make_tensor((MAX_ROWS * inputs.batch, features), "float32")
    return None


def _find_positions(layers: list[Module]) -> int:
    """Return the positions that a model of texts has learned, which is its longest text; 0 where that is not known."""
    tables = [layer.attributes for layer in layers[:2] if layer.name == "Embedding"]
    words, places = (tables[0], tables[1]) if len(tables) == 2 else ({}, {})
    count, has_same_width = places.get("num_embeddings"), words.get("embedding_dim") == places.get("embedding_dim")
    return count if has_same_width and isinstance(count, int) and 1 < count <= MAX_POSITIONS else 0


def _list_layers(model: Any, depth: int = 0) -> Iterator[Module]:
    """Yield the layers of a model in the order in which it makes them."""
    if isinstance(model, Choice):
        known = [option for option in model.options if isinstance(option, Module)]
        model = known[0] if known else None
    if not isinstance(model, Module) or not model.is_model or depth > MAX_MODULES // 4:
        return
    inner = [part for part in (*model.attributes.values(), *model.parts) if isinstance(part, Module | Choice)]
    if model.definition is None and model.name not in ("Sequential", "ModuleList", "ModuleDict"):
        yield model
        return
    for part in inner:
        yield from _list_layers(part, depth + 1)
