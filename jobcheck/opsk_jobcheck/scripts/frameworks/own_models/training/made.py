"""Defines objects that packages make of what they are given: data sets, loaders, transforms and images."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from opsk_jobcheck.scripts.frameworks.own_models.values import DATA, Shape, list_options

MAKES_DATA = re.compile(
    r"torchvision\.(transforms|datasets)\.(\w+\.)*[A-Z]\w*|torch\.utils\.data\.(\w+\.)*([A-Z]\w*|random_split)"
    r"|PIL\.Image\.(open|fromarray|new)|Image\.(open|fromarray|new)|(tqdm\.)*(tqdm|auto\.tqdm|rich\.tqdm)|rich\.progress\.track"
    r"|itertools\.(cycle|islice)|monai\.data\.(\w+\.)*(Thread)?DataLoader"
    r"|torch_geometric\.(data|loader)\.(\w+\.)*(Dense)?DataLoader|dgl\.dataloading\.(\w+\.)*GraphDataLoader"
)
"""Functions and classes of packages whose results are data sets, or what is made of them."""
PASSES_ON = frozenset({"tqdm", "cycle", "islice", "iter", "track", "prepare", "setup_dataloaders"})
"""Functions that yield what they are given."""


@dataclass(frozen=True, slots=True, eq=False)
class Made:
    """An object of a package, by the last part of the name of what makes it, with what that was given."""

    name: str
    positional: Sequence[Any] = ()
    keywords: Mapping[str, Any] = field(default_factory=dict)

    def get(self, index: int, name: str, default: Any = None) -> Any:
        """Return an argument by its place or name."""
        if name in self.keywords:
            return self.keywords[name]
        return self.positional[index] if index < len(self.positional) else default


@dataclass(frozen=True, slots=True, eq=False)
class Image:
    """An image that is no tensor yet: channels, height and width, each ``None`` where it is not known."""

    shape: Shape = (None, None, None)


def join_images(value: Any) -> Image | None:
    """Return an image that is one of several, with the sizes that all have; ``None`` for anything else."""
    options = list_options(value)
    images = [option for option in options if isinstance(option, Image)]
    if not images or len(images) < len(options):
        return None
    rows = zip(*(image.shape for image in images), strict=True)
    return Image(tuple(row[0] if all(side == row[0] for side in row) else None for row in rows))


def is_data(value: Any) -> bool:
    """Return whether a value is data alone, whatever is known of it."""
    return all(option is DATA or isinstance(option, Made | Image) for option in list_options(value))


def is_made(value: Any) -> bool:
    """Return whether a value is, or may be, an object of a package that makes data."""
    return any(isinstance(option, Made | Image) for option in list_options(value))
