"""Makes the layers of ``torch.nn`` with their weights.

Source: ``torch/nn/modules`` of PyTorch 1.8 to 2.9.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from opsk_jobcheck.scripts.frameworks.own_models.values import (
    ANY_SIZE,
    NOTHING,
    OPEN,
    Choice,
    Module,
    Parameter,
    Shape,
    Span,
    Tensor,
    as_span,
)

MAX_COPIES = 512
_ONE = Span(1, 1)
_SIZES = (
    ("in_features", 0, "Linear"),
    ("out_features", 1, "Linear"),
    ("in_channels", 0, "Conv"),
    ("out_channels", 1, "Conv"),
    ("num_features", 0, "BatchNorm"),
    ("num_embeddings", 0, "Embedding"),
    ("embedding_dim", 1, "Embedding"),
    ("embed_dim", 0, "MultiheadAttention"),
)
"""Sizes that layers have as attributes: the place among their arguments, and which layers have them."""


@dataclass(frozen=True, slots=True)
class Arguments:
    """The arguments of a layer."""

    positional: Sequence[Any]
    keywords: Mapping[str, Any]

    def get(self, index: int, name: str, default: Any = None) -> Any:
        """Return an argument by its place or name."""
        if name in self.keywords:
            return self.keywords[name]
        return self.positional[index] if 0 <= index < len(self.positional) else default

    def size(self, index: int, name: str, default: Any = None) -> Span:
        """Return an argument that is a size."""
        return as_span(self.get(index, name, default))

    def switch(self, index: int, name: str, *, default: bool = True) -> Span:
        """Return 1 for an argument that is on, 0 for one that is off, and the span of both where it is not known."""
        value = self.get(index, name, default)
        return Span(int(value), int(value)) if isinstance(value, bool) else Span(0, 1)


Weights = Mapping[str, Span]
Rule = Callable[[Arguments], Weights]


def make_layer(name: str, positional: Sequence[Any], keywords: Mapping[str, Any]) -> Module | None:
    """Return a layer of ``torch.nn`` by the name of its class; ``None`` where it is not known."""
    given = Arguments(positional, keywords)
    if name in STACKS:
        return _make_stack(name, given)
    rule = LAYERS.get(name)
    if rule is None:
        is_plain = name in WITHOUT_WEIGHTS or name.endswith("Loss")
        return Module(name, layer=(name, given)) if is_plain else None
    attributes: dict[Any, Any] = {key: Parameter(size) for key, size in rule(given).items() if size != NOTHING}
    for size, place, layers in _SIZES:
        if name.startswith(layers) and (value := given.get(place, size)) is not None:
            attributes[size] = value
    weight = attributes.get("weight")
    if isinstance(weight, Parameter):
        weight.shape = _find_shape(name, given)
    return Module(name, attributes, layer=(name, given))


def _find_shape(name: str, given: Arguments) -> Shape | None:
    """Return the shape of the weight of a layer; ``None`` where it is not known."""
    if name == "Linear":
        sides = [given.get(1, "out_features"), given.get(0, "in_features")]
    elif name == "Embedding":
        sides = [given.get(0, "num_embeddings"), given.get(1, "embedding_dim")]
    elif name in ("Conv1d", "Conv2d", "Conv3d"):
        inner, groups = given.get(0, "in_channels"), given.get(6, "groups", 1)
        kernel = given.get(2, "kernel_size")
        is_known = isinstance(inner, int) and isinstance(groups, int) and groups > 0
        row = kernel if isinstance(kernel, list | tuple) else [kernel] * int(name[-2])
        sides = [given.get(1, "out_channels"), inner // groups if is_known else None, *row]
    elif name in ("BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "LayerNorm", "RMSNorm"):
        width = given.get(0, "num_features", given.keywords.get("normalized_shape"))
        sides = list(width) if isinstance(width, list | tuple) else [width]
    elif name == "PReLU":
        sides = [given.get(0, "num_parameters", 1)]
    else:
        return None
    return tuple(side if isinstance(side, int) else None for side in sides)


def make_container(name: str, positional: Sequence[Any]) -> Module | None:
    """Return a list of modules; ``None`` for anything else."""
    if name not in CONTAINERS:
        return None
    row = positional[0] if len(positional) == 1 else positional
    if isinstance(row, Module) and name != "Sequential":
        row = row.parts
    elif isinstance(row, Module):
        row = [row]
    if isinstance(row, dict):
        return Module(name, attributes=dict(row))
    if isinstance(row, list | tuple):
        is_named = name == "ModuleDict" and all(isinstance(part, tuple) and len(part) == 2 for part in row)
        return Module(name, dict(row)) if is_named else Module(name, parts=list(row))
    return Module(name) if not positional else Module(name, parts=[OPEN])


def copy_module(value: Any, made: dict[int, Any] | None = None) -> Any:
    """Return a copy of a module with weights of its own."""
    made = {} if made is None else made
    if id(value) in made:
        return made[id(value)]
    if isinstance(value, Choice):
        return Choice(tuple(copy_module(option, made) for option in value.options))
    if isinstance(value, list):
        return [copy_module(part, made) for part in value]
    if isinstance(value, Parameter):
        made[id(value)] = Parameter(value.size, value.shape, value.dtype, value.is_frozen)
    elif isinstance(value, Module):
        made[id(value)] = copy = Module(
            value.name, definition=value.definition, is_model=value.is_model, layer=value.layer
        )
        copy.attributes |= {key: copy_module(part, made) for key, part in value.attributes.items()}
        copy.parts += [copy_module(part, made) for part in value.parts]
    return made.get(id(value), value)


def _make_stack(name: str, given: Arguments) -> Module:
    """Return a stack of copies of one layer."""
    layer, count = given.get(0, STACKS[name]), given.get(1, "num_layers")
    norm = given.get(2, "norm")
    if not isinstance(layer, Module | Choice) or not isinstance(count, int) or not 0 <= count <= MAX_COPIES:
        return Module(name, parts=[OPEN])
    return Module(name, parts=[*(copy_module(layer) for _ in range(count)), norm])


def _multiply(value: Any, axes: int) -> Span:
    """Return the elements of a kernel, or of a shape."""
    if isinstance(value, tuple | list):
        result = _ONE
        for side in value:
            result *= as_span(side)
        return result
    side, result = as_span(value), _ONE
    for _ in range(axes):
        result *= side
    return result


def _divide(size: Span, count: Any) -> Span:
    """Return the part of the weights that a grouped convolution has."""
    if isinstance(count, int) and not isinstance(count, bool) and count > 0:
        return Span(size.low // count, None if size.high is None else size.high // count)
    return Span(1, size.high)


def _convolve(axes: int, *, is_lazy: bool = False) -> Rule:
    def rule(given: Arguments) -> Weights:
        shift = int(is_lazy)
        inner = ANY_SIZE if is_lazy else given.size(0, "in_channels")
        outer = given.size(1 - shift, "out_channels")
        weight = inner * outer * _multiply(given.get(2 - shift, "kernel_size"), axes)
        bias = given.switch(7 - shift, "bias")
        return {"weight": _divide(weight, given.get(6 - shift, "groups", 1)), "bias": outer * bias}

    return rule


def _linear(given: Arguments) -> Weights:
    outer = given.size(1, "out_features")
    return {"weight": given.size(0, "in_features") * outer, "bias": outer * given.switch(2, "bias")}


def _lazy_linear(given: Arguments) -> Weights:
    outer = given.size(0, "out_features")
    return {"weight": ANY_SIZE * outer, "bias": outer * given.switch(1, "bias")}


def _bilinear(given: Arguments) -> Weights:
    outer = given.size(2, "out_features")
    weight = given.size(0, "in1_features") * given.size(1, "in2_features") * outer
    return {"weight": weight, "bias": outer * given.switch(3, "bias")}


def _embed(given: Arguments) -> Weights:
    return {"weight": given.size(0, "num_embeddings") * given.size(1, "embedding_dim")}


def _normalise(place: int, name: str, *, affine: int, switch: str = "affine", default: bool = True) -> Rule:
    def rule(given: Arguments) -> Weights:
        width = _multiply(given.get(place, name), 1) * given.switch(affine, switch, default=default)
        return {"weight": width, "bias": width * given.switch(-1, "bias")}

    return rule


def _scale(given: Arguments) -> Weights:
    """Return the weights of a normalisation without a bias."""
    return {"weight": _multiply(given.get(0, "normalized_shape"), 1) * given.switch(2, "elementwise_affine")}


def _prelu(given: Arguments) -> Weights:
    return {"weight": given.size(0, "num_parameters", 1)}


def _recur(gates: int, *, is_cell: bool = False) -> Rule:
    def rule(given: Arguments) -> Weights:
        inner, hidden = given.size(0, "input_size"), given.size(1, "hidden_size")
        if "proj_size" in given.keywords:
            return {"weight": Span(0, None)}
        biases = hidden * Span(2, 2) * given.switch(2 if is_cell else -1 if gates == 1 else 3, "bias")
        count = Span(gates, gates)
        first = count * (hidden * (inner + hidden) + biases)
        if is_cell:
            return {"weight": first}
        sides = given.switch(6 if gates > 1 else -1, "bidirectional", default=False) + _ONE
        layers = given.size(2, "num_layers", 1)
        above = Span(max(0, layers.low - 1), None if layers.high is None else max(0, layers.high - 1))
        others = count * (hidden * (sides * hidden + hidden) + biases)
        return {"weight": sides * (first + above * others)}

    return rule


def _attention(width: Span, bias: Span, key: Span, value: Span) -> Span:
    """Return the weights of attention: three projections and that of the result."""
    return width * (width + width + key + value) + width * Span(4, 4) * bias


def _attend(given: Arguments) -> Weights:
    width, bias = given.size(0, "embed_dim"), given.switch(3, "bias")
    sides = [width if given.get(place, name) is None else given.size(place, name) for place, name in _SIDES]
    extra = width * Span(2, 2) * given.switch(4, "add_bias_kv", default=False)
    return {"weight": _attention(width, bias, *sides) + extra}


_SIDES = ((6, "kdim"), (7, "vdim"))


def _transformer_layer(attentions: int) -> Rule:
    def rule(given: Arguments) -> Weights:
        width, inner = given.size(0, "d_model"), given.size(2, "dim_feedforward", 2048)
        return {"weight": _count_transformer_layer(width, inner, given.switch(-1, "bias"), attentions)}

    return rule


def _count_transformer_layer(width: Span, inner: Span, bias: Span, attentions: int) -> Span:
    """Return the weights of a layer of a transformer."""
    norms = width * (_ONE + bias) * Span(attentions + 1, attentions + 1)
    feed = Span(2, 2) * width * inner + (inner + width) * bias
    return Span(attentions, attentions) * _attention(width, bias, width, width) + feed + norms


def _transformer(given: Arguments) -> Weights:
    width, inner = given.size(0, "d_model", 512), given.size(4, "dim_feedforward", 2048)
    bias, total = given.switch(-1, "bias"), NOTHING
    for attentions, place, name in ((1, 2, "num_encoder_layers"), (2, 3, "num_decoder_layers")):
        layers = given.size(place, name, 6)
        total += layers * _count_transformer_layer(width, inner, bias, attentions) + width * (_ONE + bias)
    return {"weight": total}


LAYERS: Mapping[str, Rule] = MappingProxyType(
    {
        **{f"Conv{axes}d": _convolve(axes) for axes in (1, 2, 3)},
        **{f"ConvTranspose{axes}d": _convolve(axes) for axes in (1, 2, 3)},
        **{f"LazyConv{axes}d": _convolve(axes, is_lazy=True) for axes in (1, 2, 3)},
        **{f"BatchNorm{axes}d": _normalise(0, "num_features", affine=3) for axes in (1, 2, 3)},
        **{f"InstanceNorm{axes}d": _normalise(0, "num_features", affine=3, default=False) for axes in (1, 2, 3)},
        "SyncBatchNorm": _normalise(0, "num_features", affine=3),
        "GroupNorm": _normalise(1, "num_channels", affine=3),
        "LayerNorm": _normalise(0, "normalized_shape", affine=2, switch="elementwise_affine"),
        "RMSNorm": _scale,
        "Linear": _linear,
        "LazyLinear": _lazy_linear,
        "Bilinear": _bilinear,
        "Embedding": _embed,
        "EmbeddingBag": _embed,
        "PReLU": _prelu,
        **{name: _recur(4, is_cell=name.endswith("Cell")) for name in ("LSTM", "LSTMCell")},
        **{name: _recur(3, is_cell=name.endswith("Cell")) for name in ("GRU", "GRUCell")},
        **{name: _recur(1, is_cell=name.endswith("Cell")) for name in ("RNN", "RNNCell")},
        "MultiheadAttention": _attend,
        "TransformerEncoderLayer": _transformer_layer(1),
        "TransformerDecoderLayer": _transformer_layer(2),
        "Transformer": _transformer,
    }
)
"""Layers that hold weights, by what these are."""
STACKS: Mapping[str, str] = MappingProxyType(
    {"TransformerEncoder": "encoder_layer", "TransformerDecoder": "decoder_layer"}
)
"""Layers that copy the one that they are given, by its argument."""
CONTAINERS = frozenset({"Sequential", "ModuleList", "ModuleDict", "ParameterList", "ParameterDict"})
WITHOUT_WEIGHTS = frozenset(
    {
        *("ReLU", "ReLU6", "LeakyReLU", "ELU", "SELU", "CELU", "GELU", "SiLU", "Mish", "Sigmoid", "Tanh", "GLU"),
        *("Softmax", "LogSoftmax", "Softplus", "Softsign", "Softmax2d", "Hardswish", "Hardsigmoid", "Hardtanh"),
        *("LogSigmoid", "Softmin", "Softshrink", "Hardshrink", "Tanhshrink", "Threshold", "RReLU", "Identity"),
        *("Flatten", "Unflatten", "Fold", "Unfold", "ChannelShuffle", "PixelShuffle", "PixelUnshuffle"),
        *("Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "AlphaDropout", "FeatureAlphaDropout"),
        *(f"{kind}Pool{axes}d" for kind in ("Max", "Avg", "AdaptiveAvg", "AdaptiveMax", "LP") for axes in (1, 2, 3)),
        *("MaxUnpool1d", "MaxUnpool2d", "MaxUnpool3d", "FractionalMaxPool2d"),
        *(
            f"{kind}Pad{axes}d"
            for kind in ("Zero", "Reflection", "Replication", "Constant", "Circular")
            for axes in (1, 2, 3)
        ),
        *("Upsample", "UpsamplingNearest2d", "UpsamplingBilinear2d", "PairwiseDistance", "CosineSimilarity"),
        *("LocalResponseNorm", "CrossMapLRN2d"),
    }
)
"""Modules without weights."""


def make_parameter(value: Any) -> Parameter:
    """Return a weight of the elements of a tensor."""
    is_known = isinstance(value, Tensor | Parameter)
    return Parameter(value.size, value.shape) if is_known else Parameter(ANY_SIZE)
