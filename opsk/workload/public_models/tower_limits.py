"""Limits what the tower of a model of images and text takes at most where it may be trained, or have adapters."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from math import sqrt

from opsk.workload.model import ModelShape
from opsk.workload.public_models.lookup import normalise_words
from opsk.workload.public_models.vision_language import find_vision_language

OPEN_TOWER = "worst.tower"
"""The option that states what of the tower may be trained (words of `OpenTower`); it is counted as frozen otherwise."""
STATE_BYTES = 16
"""Bytes of a trained parameter in fp32: weight, gradient and Adam's moments."""
BASE_BYTES = 4
LAYERS = 28
"""Layers of towers: 24 of CLIP's large one, 27 of SigLIP's, 32 of Qwen2-VL's."""
PARAMETERS_OF_LAYER = 12
"""Parameters of a layer over the square of its width."""
PATCHES, MANY_PATCHES = 4, 16
"""Patches that become one token of the language model: 2 × 2 mostly, up to 4 × 4 in small models and Gemma 3."""
_OF_MANY = re.compile(r"(^|-)(gemma|smol\w*|idefics\w*)(-|$)")


class OpenTower(StrEnum):
    """What of a tower may be trained."""

    TRAINED = "trained"
    ADAPTED = "adapted"


@dataclass(frozen=True, slots=True, kw_only=True)
class TowerLimit:
    """What a tower takes beyond its frozen weights: states [bytes], and activations over the language model's."""

    state_bytes: int
    activation_share: float


def limit_tower(name: str, shape: ModelShape, what: str) -> TowerLimit | None:
    """Return what the tower of a model takes at most; ``None`` for a model without one, or where nothing is open.

    Each token of the language model comes from patches that all layers of the tower save as its own do.

    Examples
    --------
    >>> limit_tower("gpt2", ModelShape(layers=1, hidden=64, heads=1, seq=64, vocab=64), "trained") is None
    True
    """
    model = find_vision_language(name)
    if model is None or what not in set(OpenTower):
        return None
    width = sqrt(model.tower_parameters / (PARAMETERS_OF_LAYER * LAYERS))
    patches = MANY_PATCHES if _OF_MANY.search(normalise_words(name)) else PATCHES
    state_bytes = (STATE_BYTES if what == OpenTower.TRAINED else BASE_BYTES) * model.tower_parameters
    return TowerLimit(
        state_bytes=state_bytes, activation_share=patches * LAYERS * width / (shape.layers * shape.hidden)
    )
