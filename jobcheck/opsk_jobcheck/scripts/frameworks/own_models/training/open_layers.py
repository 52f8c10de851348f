"""Adds up the layers of models of which some sizes only the data tell: each of these is taken to be one number."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from math import ceil, prod
from typing import Any

from opsk.costmodel.sizes.parameters import total_parameters
from opsk.workload.model import ModelShape
from opsk.workload.public_models.lookup import public_model
from opsk.workload.public_models.measured import Unit, find_measured
from opsk.workload.unstated.layer_limit import HEAD_WIDTH, PRODUCTS_OF_ATTENTION, LayerSums
from opsk_jobcheck.scripts.frameworks.own_models.layers import LAYERS, STACKS, Arguments
from opsk_jobcheck.scripts.frameworks.own_models.public_parts import CUT, WHOLE
from opsk_jobcheck.scripts.frameworks.own_models.training.input_side import find_input_side
from opsk_jobcheck.scripts.frameworks.own_models.training.layer_sums import (
    MAX_LAYERS,
    find_positions,
    find_width,
    get_layer_name,
    holds_layers,
    sum_rows,
)
from opsk_jobcheck.scripts.frameworks.own_models.training.model_classes import list_calls, list_classes
from opsk_jobcheck.scripts.frameworks.own_models.values import (
    ABSENT,
    DATA,
    OPEN,
    Choice,
    File,
    Module,
    Parameter,
    list_options,
)

MAX_NESTED = 64
_SIZES = {
    "Linear": ("in_features", "out_features"),
    "LazyLinear": ("out_features",),
    "Conv": ("in_channels", "out_channels"),
    "BatchNorm": ("num_features",),
    "InstanceNorm": ("num_features",),
    "LayerNorm": ("normalized_shape",),
    "Embedding": ("num_embeddings",),
    "LSTM": ("input_size",),
    "GRU": ("input_size",),
    "RNN": ("input_size",),
}
"""Sizes of layers that the data may tell, in the order of their arguments."""
CHANNELS = 1024
"""Channels of data at most: bands of a hyperspectral image are 220, electrodes of EEG 256."""
SQUARE = 1 << 12
"""A size of a layer at most where its other size is not known either."""
_NUMBERS = re.compile(
    r"(num|n|use|is|has|max|min|with|do)_\w+|\w*(dim|dims|size|sizes|len|length|num|count|channels|classes|class|mode|features"
    r"|shape|map|device|scale|name|type|idx|flag|rate|weight_decay|patches|config|configs|cfg|conf|hparams|args|opts?|params"
    r"|tokenizer|processor|vocab|vocabulary|logger|scheduler|dataset|dtype|score|path|dir|lr|seed|epochs?|steps?)"
)
"""Names of attributes that are no modules."""
_NO_WEIGHTS = re.compile(
    r"(Mean|Max|Min|Std|Var|Sum|Add|Mul|Median|Softmax|PowerMean|Degree\w*|Multi)Aggregation|Rearrange|Reduce|DropPath"
    r"|StochasticDepth|SumAggregation|(Global)?(Mean|Max|Sum|Avg)Pool(ing)?|Spectrogram|MelSpectrogram|LogmelFilterBank"
    r"|LabelEncoder|OneHotEncoder|\w*Scaler|\w*Tokenizer(Fast)?|Normal|Categorical|Bernoulli|Uniform|MultivariateNormal"
    r"|Independent|NTXentLoss|SupConLoss|TripletMarginLoss|Dice(CE|Focal)?Loss|FocalLoss|SSIM|MS_SSIM|SSIMLoss"
    r"|(Binary|Multiclass|Multilabel)?(Accuracy|F1Score|AUROC|Precision|Recall|JaccardIndex|ConfusionMatrix|AveragePrecision)"
    r"|Mean(SquaredError|AbsoluteError|Metric)|PeakSignalNoiseRatio|MetricCollection|R2Score"
    r"|SpecAugmentation|AmplitudeToDB|MelScale|MFCC|FrequencyMasking|TimeMasking|Resample"
)
"""Modules of packages that hold no weights, objects that are no modules among them."""
_OF_WIDTH, _OF_INNER = 20, 4
"""Numbers that a layer of a transformer saves for each of its width, and of its inner width, at most."""
_PARAMETER_FEATURES = 4
"""Numbers that are saved for each side of a weight that is in no layer."""
_LARGE = 1024
"""Elements of a weight of its own that is more than a token or a scale."""


_SUMMED = ("row_features", "map_features", "sequence_features", "products", "parameters", "pixel_bytes")
_SWITCHES = ("shrinks", "grows", "attends", "volumes", "has_public")
_LARGEST = ("channels", "width", "positions", "open_features", "side")
_NO_LAYERS = LayerSums(
    first="",
    channels=1,
    patch=0,
    row_features=0,
    map_features=0,
    width=0,
    positions=0,
    products=0,
    shrinks=False,
    grows=False,
    attends=False,
)
"""The sums of a module without layers, a loss above all."""


def sum_open_layers(models: Iterable[Any], files: Iterable[File], sizes: Sequence[int]) -> tuple[LayerSums, ...] | None:
    """Return the sums over all layers of models; ``None`` where a layer is not known, or a size that no data tell.

    Of a model that is one of several the largest counts.

    Parameters
    ----------
    sizes
        What each size that only the data tell is taken to be; the first alone counts where all are known.
    """
    models, files = list(models), list(files)
    calls = list_calls(list_classes(models, files), files)
    groups = list(_iterate_groups(models))
    results: list[LayerSums] = []
    for features in sizes:
        sums = _sum_groups(groups, calls, features)
        if sums is None:
            return None
        results.append(sums)
        if not sums.open_features:
            break
    return tuple(results)


_Rows = list[Module | Parameter | None]


def _iterate_groups(models: Sequence[Any]) -> Iterator[list[tuple[_Rows, int]]]:
    """Yield the layers and weights of each model, of every one that it may be, with the positions that it learns."""
    seen: set[int] = set()
    for model in models:
        group: list[tuple[_Rows, int]] = []
        after: set[int] = set()
        for option in list_options(model):
            inner = set(seen)
            rows = list(_iterate_parts([option], inner)) if option is not ABSENT else []
            after |= inner
            if rows:  # it was not counted
                group.append((rows, find_positions([option])))
        seen |= after
        if group:
            yield group


def _sum_groups(
    groups: Sequence[list[tuple[_Rows, int]]], calls: tuple[set[str], set[str]], features: int
) -> LayerSums | None:
    """Return the sums over models; of each group of options the largest counts."""
    total: LayerSums | None = None
    for group in groups:
        most: LayerSums | None = None
        for rows, positions in group:
            sums = _sum_parts(rows, calls, features)
            if sums is None:
                return None
            sums = replace(sums, positions=max(positions, sums.positions))
            most = sums if most is None else _join(most, sums, max)
        if most is not None:
            total = most if total is None else _join(total, most, sum)
    return total


def _join(first: LayerSums, second: LayerSums, combine: Callable[[tuple[int, int]], int]) -> LayerSums:
    """Return the sums over one of two models, or over both."""
    changes: dict[str, Any] = {name: combine((getattr(first, name), getattr(second, name))) for name in _SUMMED}
    changes |= {name: getattr(first, name) or getattr(second, name) for name in _SWITCHES}
    changes |= {name: max(getattr(first, name), getattr(second, name)) for name in _LARGEST}
    patch = first.patch if first.patch == second.patch else 0
    return replace(first if first.map_features else second, patch=patch, **changes)


def _sum_parts(rows: _Rows, calls: tuple[set[str], set[str]], features: int) -> LayerSums | None:
    """Return the sums over the layers and weights of one model; ``calls`` of its program, and of its classes alone."""
    names, own_names = calls
    if len(rows) > MAX_LAYERS or None in rows:
        return None
    modules = [row for row in rows if isinstance(row, Module)]
    public = [_measure(row) for row in modules if _is_public(row)]
    shapes = [shape for row in modules if (shape := _find_transformer(row)) is not None]
    layers = [_fill(row, features) for row in modules if not _is_public(row) and _find_transformer(row) is None]
    own = [_count_own(row, features) for row in rows if isinstance(row, Parameter)]
    weights = [_count_weights(row[0]) for row in layers]
    sums = sum_rows([row[0] for row in layers], (), names)
    if sums is None:
        is_loss = not any(weights) and None not in weights
        sums = _NO_LAYERS if is_loss else None
    if sums is None or None in weights or None in public:
        return None
    stated = [row for row in modules if not _is_public(row) and get_layer_name(row) in LAYERS]
    sums = replace(sums, width=find_width(stated) or sums.width) if stated else sums
    more = sum(row[1] for row in own)
    side = find_input_side(modules, own_names) if not (own or public or shapes) else 0
    sums = sums if not shapes else _add_transformers(sums, shapes)
    return replace(
        sums,
        side=side,
        has_public=bool(public or shapes),
        parameters=sum(row or 0 for row in weights)
        + sum(row[0] for row in (*own, *filter(None, public)))
        + sum(total_parameters(shape) for shape in shapes),
        pixel_bytes=sum(row[1] for row in filter(None, public)),
        open_features=features if any(row[1] for row in layers) or any(row[2] for row in own) else 0,
        map_features=sums.map_features + (more if sums.map_features else 0),
        row_features=sums.row_features + (0 if sums.map_features else more),
    )


def _find_transformer(module: Module) -> ModelShape | None:
    """Return the shape of a public transformer that a module is; ``None`` for any other module."""
    is_named = module.definition is None and module.layer is None and "weights" in module.attributes
    return public_model(module.name) if is_named else None


def _add_transformers(sums: LayerSums, shapes: Sequence[ModelShape]) -> LayerSums:
    """Return sums with the layers of public transformers, in fp32 and without a kernel that fuses attention."""
    saved = sum(shape.layers * (_OF_WIDTH * shape.hidden + _OF_INNER * shape.ffn) + shape.vocab for shape in shapes)
    widest = max(shapes, key=lambda shape: shape.heads)
    return replace(
        sums,
        first=sums.first or "Embedding",
        row_features=sums.row_features + saved,
        products=sums.products + PRODUCTS_OF_ATTENTION * sum(shape.layers for shape in shapes),
        positions=max(shape.seq if shape.learned_positions else 0 for shape in shapes),
        width=max(sums.width, HEAD_WIDTH * widest.heads),
        attends=True,
    )


def _is_public(module: Module) -> bool:
    """Return whether a module is a public model that was measured."""
    return module.layer is not None and module.layer[0] in (WHOLE, CUT)


def _measure(module: Module) -> tuple[int, int] | None:
    """Return the parameters of a public model, and what it saves for a pixel; ``None`` for one that reads no images."""
    model = find_measured(module.name)
    if model is None or model.unit is not Unit.PIXELS:
        return None
    return model.parameters, ceil(model.sample_fp32_bytes / model.size**2)


def _count_own(weight: Parameter, features: int) -> tuple[int, int, bool]:
    """Return the elements of a weight in no layer, what is saved with it, and whether the data tell its size."""
    if weight.size.high is not None:
        is_large = weight.size.high > _LARGE
        saved = _PARAMETER_FEATURES * sum(side or 0 for side in weight.shape or ()) if is_large else 0
        return weight.size.high, saved, False
    sides = [features if side is None else side for side in weight.shape or (None, CHANNELS)]
    return prod(sides), _PARAMETER_FEATURES * sum(sides), True


def _iterate_parts(values: Iterable[Any], seen: set[int], depth: int = 0) -> Iterator[Module | Parameter | None]:
    """Yield the layers and own weights of models once, in the order in which they are made; ``None`` for unknown."""
    for value in values:
        if isinstance(value, Module | Parameter):
            if id(value) in seen:
                continue
            seen.add(id(value))
        if value is OPEN or depth > MAX_NESTED:
            yield None
        elif isinstance(value, Parameter):
            yield value
        elif isinstance(value, Choice):
            yield from _iterate_parts((part for part in value.options if part is not ABSENT), seen, depth + 1)
        elif isinstance(value, Module) and value.is_model:
            yield from _iterate_module(value, seen, depth)


def _iterate_module(value: Module, seen: set[int], depth: int) -> Iterator[Module | Parameter | None]:
    """Yield the layers of a module, itself where it is one."""
    is_layer = value.layer is not None and value.name not in STACKS and get_layer_name(value) not in STACKS
    if is_layer:
        yield value
        if value.definition is None:
            own = (part for name, part in value.attributes.items() if name != "weights") if _is_public(value) else ()
            yield from _iterate_parts((part for part in own if isinstance(part, Module | Choice)), seen, depth + 1)
            return
    elif value.definition is None and not holds_layers(value):
        if _find_transformer(value) is not None:
            yield value
        elif not _NO_WEIGHTS.fullmatch(value.name):
            yield None  # a part of a package
        return
    for name, part in value.attributes.items():
        is_number = isinstance(name, str) and _NUMBERS.fullmatch(name)
        is_part = isinstance(part, Module | Parameter | Choice | list | tuple)
        if is_part or (part is OPEN and not is_number):
            inner = part if isinstance(part, list | tuple) else [part]
            yield from _iterate_parts(
                (row for row in inner if not isinstance(part, list) or row is not OPEN), seen, depth + 1
            )
    yield from _iterate_parts(value.parts, seen, depth + 1)


def _fill(layer: Module, features: int) -> tuple[Module, bool]:
    """Return a layer with a number for each size that the data tell, and whether there is one."""
    given = layer.layer[1] if layer.layer is not None else None
    name = get_layer_name(layer)
    names = next((row for start, row in _SIZES.items() if name.startswith(start)), ())
    if not isinstance(given, Arguments) or not names:
        return layer, False
    most = min(features, CHANNELS) if name.startswith("Conv") else features
    if sum(_is_open(given.get(place, size)) for place, size in enumerate(names)) > 1:
        most = min(features, SQUARE)  # two sizes of data, or of settings that are not at hand
    positional, keywords, is_open = list(given.positional), dict(given.keywords), False
    for place, size in enumerate(names):
        if size in keywords:
            keywords[size], was_open = _close(keywords[size], most)
        elif place < len(positional):
            positional[place], was_open = _close(positional[place], most)
        else:
            continue
        is_open = is_open or was_open
    return Module(layer.name, definition=layer.definition, layer=(name, Arguments(positional, keywords))), is_open


def _is_open(value: Any) -> bool:
    """Return whether only the data tell a size."""
    return any(option is DATA or option is OPEN for option in list_options(value))


def _close(value: Any, most: int) -> tuple[Any, bool]:
    """Return a size, ``most`` where the data tell it, and whether they do."""
    if value is DATA or value is OPEN:
        return most, True
    if isinstance(value, Choice):
        rows = [_close(option, most) for option in value.options if option is not ABSENT]
        numbers = [row[0] for row in rows if isinstance(row[0], int)]
        return (max(numbers), any(row[1] for row in rows)) if len(numbers) == len(rows) and rows else (value, False)
    if isinstance(value, float) and value.is_integer():
        return int(value), False
    if isinstance(value, list | tuple):
        closed = [_close(part, most) for part in value]
        return type(value)(row[0] for row in closed), any(row[1] for row in closed)
    return value, False


def _count_weights(layer: Module) -> int | None:
    """Return the weights of a layer, at most; ``None`` where they are not known."""
    rule = LAYERS.get(get_layer_name(layer))
    given = layer.layer[1] if layer.layer is not None else None
    if rule is None or not isinstance(given, Arguments):
        return 0
    sizes = [size.high for size in rule(given).values()]
    return None if None in sizes else sum(size or 0 for size in sizes)
