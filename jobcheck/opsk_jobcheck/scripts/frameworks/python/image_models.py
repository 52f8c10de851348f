"""Finds the models of torchvision that a Python program builds, and the side of the images that it trains on."""

from __future__ import annotations

import re
from collections.abc import Iterator

from opsk.workload.public_models.measured import is_public
from opsk_jobcheck.scripts.frameworks.python.source import Call, PythonSource, Value

_PACKAGE = "torchvision.models"
_CROPS = frozenset({"RandomResizedCrop", "RandomCrop", "CenterCrop"})
_RESIZES = frozenset({"Resize"})
_SMALL_IMAGES = {"CIFAR10": 32, "CIFAR100": 32, "SVHN": 32, "MNIST": 28, "FashionMNIST": 28}
"""Data sets of torchvision by the side of their images."""
MAX_SIDE = 4096
MAX_LINES = 400
_DEFINES = re.compile(r"(\s*)(?:class|def|async def)\s+(\w+)")
_MEASURES = re.compile(r"(?i)(^|_)fid|fid($|_)|FID|inception_?score|lpips|perceptual|vgg_?loss|style_?loss|metric")
"""Names of classes and functions whose model is not the trained one."""


def list_image_models(source: PythonSource) -> Iterator[Call]:
    """Yield the calls of torchvision's functions that build a model: ``models.resnet50()``, ``resnet50()``."""
    has_package = any(name.startswith("torchvision") for name in source.imports)
    imported = {name.rpartition(".")[2] for name in source.imports if name.startswith(f"{_PACKAGE}.")}
    calls: list[Call] = []
    for call in source.calls:
        is_one = call.owner in ("models", "torchvision") or (not call.owner and call.function in imported)
        if is_one and (has_package or call.is_followed) and call.function.islower() and is_public(call.function):
            calls.append(call)
    yield from (call for call in calls if not _is_measure(source, call.line))


def _is_measure(source: PythonSource, line: int) -> bool:
    """Return whether a call is in a class or function that measures images, or what a loss compares of them."""
    rows = source.lines[:line]
    indent = len(rows[-1]) - len(rows[-1].lstrip()) if rows else 0
    for row in reversed(rows[-MAX_LINES:]):
        match = _DEFINES.match(row)
        if match is not None and len(match[1]) < indent:
            indent = len(match[1])
            if _MEASURES.search(match[2]):
                return True
    return False


def find_image_side(source: PythonSource) -> int:
    """Return the side of the images that a program cuts its samples to; 0 where that is not known."""
    for functions in (_CROPS, _RESIZES):  # a crop is cut out of what was resized
        sides = {_read_side(call.first) for call in source.calls if call.function in functions}
        if sides:
            return sides.pop() if len(sides) == 1 else 0
    known = {_SMALL_IMAGES[call.function] for call in source.calls if call.function in _SMALL_IMAGES}
    return known.pop() if len(known) == 1 else 0


def _read_side(value: Value) -> int:
    """Return the side that a transform is given; 0 where that is not known, as of two sides."""
    side = value.literal
    return side if isinstance(side, int) and not isinstance(side, bool) and 0 < side <= MAX_SIDE else 0
