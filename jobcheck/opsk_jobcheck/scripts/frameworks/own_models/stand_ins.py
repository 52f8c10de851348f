"""Finds the texts that stand for classes of packages: modules with the same weights that compute the same sizes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from opsk_jobcheck.scripts.frameworks.own_models.files import parse_file
from opsk_jobcheck.scripts.frameworks.own_models.values import File

_FOLDER = Path(__file__).parent / "package_texts"
_CLASSES: Mapping[str, re.Pattern[str]] = {
    "timm": re.compile(
        r"timm\.(models\.)?(layers|vision_transformer)\.(\w+\.)*(DropPath|Mlp|PatchEmbed|Attention|Block|VisionTransformer"
        r"|to_2tuple|trunc_normal_|lecun_normal_)"
    ),
    "torch_geometric": re.compile(
        r"torch_geometric\.nn\.(\w+\.)*(MessagePassing|GCNConv|ChebConv|SAGEConv|GraphConv|GATConv|GATv2Conv|TransformerConv"
        r"|GINConv|GINEConv|EdgeConv|NNConv|GlobalAttention|BatchNorm)"
    ),
    "monai": re.compile(r"monai\.networks\.(nets\.(\w+\.)*(UNet|SegResNet)|layers\.(factories\.)?Norm)"),
}
"""What has a text, by the name of the text."""


def find_stand_in(name: str) -> str | None:
    """Return the name of the text that has a class or function of a package; ``None`` for none."""
    top = name.partition(".")[0]
    return top if top in _CLASSES and _CLASSES[top].fullmatch(name) is not None else None


def make_stand_ins(name: str) -> File | None:
    """Return a text that stands for a package as a file of the program."""
    return parse_file(f"<{name}>", _read(name))


@lru_cache
def _read(name: str) -> str:
    """Return a text."""
    return (_FOLDER / f"{name}.txt").read_text(encoding="utf-8")
