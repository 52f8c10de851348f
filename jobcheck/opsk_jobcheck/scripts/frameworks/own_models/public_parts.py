"""Makes the public models that a program's own model contains: ``timm.create_model("resnet50")``."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from opsk.costmodel.sizes.parameters import total_parameters
from opsk.workload.public_models.lookup import public_model
from opsk.workload.public_models.measured import MeasuredModel, find_measured
from opsk_jobcheck.scripts.frameworks.own_models.layers import Arguments, make_layer
from opsk_jobcheck.scripts.frameworks.own_models.values import DATA, OPEN, Children, Module, Parameter, Span

MAX_NAME = 200
_NAME_KEYWORDS = ("pretrained_model_name_or_path", "model_name", "model")
_MAKERS = re.compile(
    r"timm\.(models\.)?create_model|torchvision\.models\.(\w+\.)*[a-z]\w*|torch\.hub\.load"
    r"|transformers\.(\w+\.)*\w*Model\w*\.from_pretrained|transformers\.(\w+\.)*\w+For\w+\.from_pretrained"
)
_HEADS = (
    (re.compile(r"resnet(18|34)"), "fc", 512),
    (re.compile(r"(wide_)?resnet(50|101|152)(_2)?|resnext\d+_\w+"), "fc", 2048),
    (re.compile(r"densenet121"), "classifier", 1024),
    (re.compile(r"densenet169"), "classifier", 1664),
    (re.compile(r"densenet201"), "classifier", 1920),
)
"""Models of torchvision and timm by their last layer: its name, and the features that it gets."""
_VGG = re.compile(r"vgg(11|13|16|19)(_bn)?")
_VGG_LAYERS = {"11": (1, 1, 2, 2, 2), "13": (2, 2, 2, 2, 2), "16": (2, 2, 3, 3, 3), "19": (2, 2, 4, 4, 4)}
"""Convolutions of a VGG between its pooling layers."""
WHOLE, CUT = "public model", "public model without its head"
"""Names of the layers that such models are."""
_CLASSES = 1000
_HAS_WORDS = re.compile(r"CausalLM|LMHead|ConditionalGeneration|Seq2SeqLM|MaskedLM|PreTraining")
"""Classes of transformers that have a head of words; others may have one of classes."""
_HEAD_SHARE = 0.6
"""Part of the weights of a measured model that is no head of its classes, at least: of MobileNetV3 small."""


def make_public(name: str, positional: Sequence[Any], keywords: Mapping[str, Any]) -> Module | None:
    """Return the module that a function of a package makes; ``None`` where it is none that opsk knows.

    Where it is not known, the head of the classes may have any size, and a pooling layer be there or not.
    """
    word = _find_name(name, positional, keywords)
    if not isinstance(word, str) or not 2 < len(word) < MAX_NAME:
        return None
    if (model := find_measured(word)) is not None:
        return _make_measured(word, model, keywords)
    shape = public_model(word) if not name.startswith("torchvision.") else None
    if shape is None:
        return None
    whole, head = total_parameters(shape), shape.vocab * shape.hidden * (not shape.tied_embeddings)
    kind = name.rpartition(".")[0].rpartition(".")[2]
    low = whole if _HAS_WORDS.search(kind) else whole - head
    other = 2 * shape.hidden * shape.hidden + _CLASSES * shape.hidden
    return Module(word, {"weights": Parameter(Span(max(1, low - other), max(low, whole) + other))})


def make_features(name: str) -> Module | None:
    """Return the convolutions of a VGG of torchvision, which losses take apart; ``None`` for any other model."""
    match = _VGG.fullmatch(name)
    if match is None:
        return None
    parts: list[Any] = []
    width = 3
    for place, count in enumerate(_VGG_LAYERS[match[1]]):
        for _ in range(count):
            outer = min(512, 64 << place)
            parts.append(make_layer("Conv2d", [width, outer, 3], {"padding": 1}))
            parts += [make_layer("BatchNorm2d", [outer], {})] if match[2] else []
            parts.append(make_layer("ReLU", [True], {}))
            width = outer
        parts.append(make_layer("MaxPool2d", [2, 2], {}))
    return Module("Sequential", parts=parts)


def find_head(name: str) -> tuple[str, int] | None:
    """Return the name of the last layer of a model, and the features that it gets; ``None`` where that is not known."""
    rows = (row for row in _HEADS if row[0].fullmatch(name.partition(".")[0]))
    return next(((head, width) for _, head, width in rows), None)


def is_opaque(value: Module) -> bool:
    """Return whether the modules inside of a module are not known."""
    return value.definition is None and any(isinstance(part, Parameter) for part in value.attributes.values())


def cut_head(children: Children, ends: Sequence[Any]) -> Any:
    """Return the modules of a public model without those of its classes (``[:-1]``), where that is what is taken."""
    body, heads = children.owner.attributes["weights"], children.owner.attributes.keys() - {"weights"}
    is_cut = list(ends) == [None, -1, None] or (list(ends) == [None, -2, None] and heads == {"fc"})
    cut = (CUT, Arguments([ends[1]], {}))
    return [Module(children.owner.name, {"weights": body}, layer=cut)] if heads and is_cut else [OPEN]


def _find_name(name: str, positional: Sequence[Any], keywords: Mapping[str, Any]) -> Any:
    """Return the name of the model that a function makes; ``None`` for any other function."""
    if not _MAKERS.fullmatch(name):
        return None
    if name.startswith("torchvision."):
        return name.rpartition(".")[2]
    place = 1 if name == "torch.hub.load" else 0
    named = next((keywords[word] for word in _NAME_KEYWORDS if word in keywords), None)
    return positional[place] if len(positional) > place else named


def _make_measured(name: str, model: MeasuredModel, keywords: Mapping[str, Any]) -> Module:
    """Return a model of images, with the layer of its classes apart where that is known."""
    classes = keywords.get("num_classes", _CLASSES)
    for pattern, head, width in _HEADS:
        if pattern.fullmatch(name.partition(".")[0]):
            size = model.parameters - width * _CLASSES - _CLASSES
            parts: dict[Any, Any] = {"weights": Parameter(Span(size, size))}
            if classes != 0:
                parts[head] = make_layer("Linear", [width, classes if isinstance(classes, int) else DATA], {})
            return Module(name, parts, layer=(WHOLE, Arguments([classes], {})))
    low = round(_HEAD_SHARE * model.parameters)
    is_exact = "num_classes" not in keywords and not keywords.keys() - {"weights", "pretrained", "progress"}
    weights = Parameter(Span(model.parameters if is_exact else low, model.parameters))
    return Module(name, {"weights": weights}, layer=(WHOLE, Arguments([classes], {})))
