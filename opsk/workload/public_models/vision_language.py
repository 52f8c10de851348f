"""Looks up models that read images by a tower in front of a language model.

``vision_language.toml`` has the language model and the parameters of the tower of each. Where the tower is
frozen it takes its weights alone, and the tokens of images count as those of text do.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files

from opsk.errors import ConfigError
from opsk.workload.model import ModelShape
from opsk.workload.public_models.lookup import normalise_words, public_model

TABLE = "vision_language.toml"
TOWER = "tower"
"""The option that states that the tower is ``frozen``."""
TOWER_PARAMETERS = "tower.parameters"
"""The option that states the parameters of a frozen tower that a program puts in front of a language model."""
FROZEN = "frozen"


@dataclass(frozen=True, slots=True, kw_only=True)
class VisionLanguageModel:
    """The name of the language model, and the parameters of tower and projector."""

    text: str
    tower_parameters: int


def find_vision_language(name: str) -> VisionLanguageModel | None:
    """Return the model of images and text that a name means; ``None`` where it means none.

    Examples
    --------
    >>> find_vision_language("Qwen2.5-VL-7B-Instruct").text
    'Qwen/Qwen2.5-7B'
    """
    return _read_table()[0].get(normalise_words(name))


def find_tower(name: str) -> int | None:
    """Return the parameters of a tower by its name; ``None`` where it is not known."""
    return _read_table()[1].get(normalise_words(name))


def build_frozen_shape(model: VisionLanguageModel) -> ModelShape:
    """Return the shape of the language model, with the tower as a frozen model beside it.

    Raises
    ------
    ConfigError
        When the table names a language model that the catalogue does not have.
    """
    shape = public_model(model.text)
    if shape is None:
        raise ConfigError(f"{TABLE}: {model.text} is no public model")
    return replace(shape, frozen_parameters=model.tower_parameters)


@cache
def _read_table() -> tuple[Mapping[str, VisionLanguageModel], Mapping[str, int]]:
    """Return the models and the towers by the normalised words of their names."""
    text = files("opsk.workload.public_models").joinpath(TABLE).read_text(encoding="utf-8")
    table = tomllib.loads(text)
    models = {
        normalise_words(name): VisionLanguageModel(text=row["text"], tower_parameters=row["tower_parameters"])
        for row in table["models"]
        for name in row["names"]
    }
    return models, {normalise_words(name): count for name, count in table["towers"].items()}
