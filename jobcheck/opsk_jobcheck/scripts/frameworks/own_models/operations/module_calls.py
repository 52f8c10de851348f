"""Computes what the layers of ``torch.nn`` return for tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from opsk_jobcheck.scripts.frameworks.own_models.layers import Arguments
from opsk_jobcheck.scripts.frameworks.own_models.operations import elements, norms, windows
from opsk_jobcheck.scripts.frameworks.own_models.operations.attention import (
    run_heads,
    run_transformer,
    run_transformer_layer,
)
from opsk_jobcheck.scripts.frameworks.own_models.operations.axes import flatten
from opsk_jobcheck.scripts.frameworks.own_models.operations.indexing import embed
from opsk_jobcheck.scripts.frameworks.own_models.operations.matrices import linear
from opsk_jobcheck.scripts.frameworks.own_models.operations.recurrent import run_cell, run_recurrent
from opsk_jobcheck.scripts.frameworks.own_models.operations.registry import OPERATIONS
from opsk_jobcheck.scripts.frameworks.own_models.operations.results import Rule, as_int, as_sizes, as_tensor
from opsk_jobcheck.scripts.frameworks.own_models.tensors.tape import Tape
from opsk_jobcheck.scripts.frameworks.own_models.values import Module, Tensor

LayerRule = Callable[[Tape, Arguments, Module, Arguments], Any]
"""Computes a layer from the arguments that it was made with, itself, and the arguments of its call."""


def _weight(tape: Tape, module: Module) -> Tensor:
    return as_tensor(tape, module.attributes.get("weight"))


def _one(tape: Tape, inputs: Arguments) -> Tensor:
    """Return the tensor that a layer reads."""
    return as_tensor(tape, inputs.get(0, "input", next(iter(inputs.keywords.values()), None)))


def _linear(tape: Tape, layer: Arguments, module: Module, inputs: Arguments) -> Any:
    place = 0 if module.name.startswith("Lazy") else 1
    return linear(tape, _one(tape, inputs), _weight(tape, module), as_int(layer.get(place, "out_features")))


def _embed(tape: Tape, layer: Arguments, module: Module, inputs: Arguments) -> Any:
    return embed(tape, _one(tape, inputs), _weight(tape, module), as_int(layer.get(1, "embedding_dim")))


def _convolve(axes: int, *, is_transposed: bool = False) -> LayerRule:
    compute = windows.convolve_transposed if is_transposed else windows.convolve

    def rule(tape: Tape, layer: Arguments, module: Module, inputs: Arguments) -> Any:
        count = 1 if module.name.startswith("Lazy") else 2
        width = as_int(layer.get(count - 1, "out_channels"))
        return compute(tape, _one(tape, inputs), _weight(tape, module), width, windows.shift(layer, count), axes)

    return rule


def _pool(name: str, axes: int) -> LayerRule:
    return lambda tape, layer, module, inputs: windows.pool(tape, name, _one(tape, inputs), layer, axes)


def _pool_to(name: str, axes: int) -> LayerRule:
    return lambda tape, layer, module, inputs: windows.pool_to(
        tape, name, _one(tape, inputs), layer.get(0, "output_size"), axes
    )


def _resize(tape: Tape, layer: Arguments, module: Module, inputs: Arguments) -> Any:
    return windows.resize(tape, _one(tape, inputs), layer.get(0, "size"), layer.get(1, "scale_factor"))


def _pad(axes: int) -> LayerRule:
    def rule(tape: Tape, layer: Arguments, module: Module, inputs: Arguments) -> Any:
        value = layer.get(0, "padding")
        return windows.pad_edges(tape, _one(tape, inputs), [value] * 2 * axes if isinstance(value, int) else value)

    return rule


def _normalise(tape: Tape, layer: Arguments, module: Module, inputs: Arguments) -> Any:
    tensor, name = _one(tape, inputs), module.name
    affine = "weight" in module.attributes
    if name == "GroupNorm":
        return norms.normalise_groups(tape, tensor, as_int(layer.get(0, "num_groups")), affine=affine)
    if name in ("LayerNorm", "RMSNorm"):
        sizes = as_sizes(layer.get(0, "normalized_shape"))
        compute = norms.normalise_layer if name == "LayerNorm" else norms.normalise_root
        return compute(tape, tensor, 1 if sizes is None else len(sizes), affine=affine)
    compute_all = norms.normalise_instances if name.startswith("Instance") else norms.normalise_batch
    return compute_all(tape, tensor, affine=affine)


def _apply(name: str, *, places: int = 0) -> LayerRule:
    """Return the rule of a layer that is a function of the tensor it reads."""
    known = OPERATIONS[name]

    def rule(tape: Tape, layer: Arguments, module: Module, inputs: Arguments) -> Any:
        keywords = {"inplace": True} if layer.get(places, "inplace") is True else {}
        return known(tape, Arguments([_one(tape, inputs)], keywords))

    return rule


def _drop(tape: Tape, layer: Arguments, module: Module, inputs: Arguments) -> Any:
    compute = elements.drop_channels if module.name[-2:] in ("1d", "2d", "3d") else elements.dropout
    return compute(tape, _one(tape, inputs), layer.get(0, "p", 0.5))


def _gate(tape: Tape, layer: Arguments, module: Module, inputs: Arguments) -> Any:
    return elements.gate(tape, _one(tape, inputs), layer.get(0, "dim", -1))


def _parametric(tape: Tape, layer: Arguments, module: Module, inputs: Arguments) -> Any:
    return elements.parametric_relu(tape, _one(tape, inputs), _weight(tape, module))


def _flatten(tape: Tape, layer: Arguments, module: Module, inputs: Arguments) -> Any:
    return flatten(tape, _one(tape, inputs), layer.get(0, "start_dim", 1), layer.get(1, "end_dim", -1))


def _unflatten(tape: Tape, layer: Arguments, module: Module, inputs: Arguments) -> Any:
    return OPERATIONS["unflatten"](tape, Arguments([_one(tape, inputs), *layer.positional], layer.keywords))


def _pass(tape: Tape, layer: Arguments, module: Module, inputs: Arguments) -> Any:
    return inputs.get(0, "input")


def _shuffle(tape: Tape, layer: Arguments, module: Module, inputs: Arguments) -> Any:
    is_inverse = module.name == "PixelUnshuffle"
    name = "downscale_factor" if is_inverse else "upscale_factor"
    return windows.shuffle(tape, _one(tape, inputs), layer.get(0, name), is_inverse=is_inverse)


def _unfold(tape: Tape, layer: Arguments, module: Module, inputs: Arguments) -> Any:
    return windows.unfold(tape, _one(tape, inputs), layer)


def _lose(rule: Rule) -> LayerRule:
    """Return the rule of a loss."""

    def compute(tape: Tape, layer: Arguments, module: Module, inputs: Arguments) -> Any:
        return rule(tape, Arguments(inputs.positional, {**layer.keywords, **inputs.keywords}))

    return compute


_FUNCTIONS = {
    **{"ReLU": "relu", "ReLU6": "relu6", "ELU": "elu", "SELU": "selu", "CELU": "celu", "SiLU": "silu", "Mish": "mish"},
    **{"GELU": "gelu", "Sigmoid": "sigmoid", "Tanh": "tanh", "Softmax": "softmax", "LogSoftmax": "log_softmax"},
    **{"Softplus": "softplus", "Softmax2d": "softmax", "Hardswish": "hardswish", "Hardsigmoid": "hardsigmoid"},
    **{"Hardtanh": "hardtanh", "LogSigmoid": "logsigmoid", "Softmin": "softmin", "LeakyReLU": "leaky_relu"},
}
_PLACES = {
    "ELU": 1,
    "CELU": 1,
    "LeakyReLU": 1,
    "Hardtanh": 2,
    "GELU": -1,
    "Softmax": -1,
    "LogSoftmax": -1,
    "Softplus": -1,
}
"""Where ``inplace`` is among the arguments of a layer, where it is not the first."""
_LOSSES = {
    **{"CrossEntropyLoss": "cross_entropy", "NLLLoss": "nll_loss", "MSELoss": "mse_loss", "L1Loss": "l1_loss"},
    **{"SmoothL1Loss": "smooth_l1_loss", "HuberLoss": "huber_loss", "BCELoss": "binary_cross_entropy"},
    **{"BCEWithLogitsLoss": "binary_cross_entropy_with_logits", "KLDivLoss": "kl_div"},
    **{"CosineSimilarity": "cosine_similarity", "PairwiseDistance": "pairwise_distance"},
}
_AXES = (1, 2, 3)
LAYER_RULES: Mapping[str, LayerRule] = MappingProxyType(
    {
        **{"Linear": _linear, "LazyLinear": _linear, "Embedding": _embed, "Identity": _pass, "GLU": _gate},
        **{f"{lazy}Conv{axes}d": _convolve(axes) for axes in _AXES for lazy in ("", "Lazy")},
        **{f"ConvTranspose{axes}d": _convolve(axes, is_transposed=True) for axes in _AXES},
        **{f"{kind}Norm{axes}d": _normalise for axes in _AXES for kind in ("Batch", "Instance")},
        **{"SyncBatchNorm": _normalise, "GroupNorm": _normalise, "LayerNorm": _normalise, "RMSNorm": _normalise},
        **{f"{kind}Pool{axes}d": _pool(kind.lower(), axes) for axes in _AXES for kind in ("Max", "Avg")},
        **{f"Adaptive{kind}Pool{axes}d": _pool_to(kind.lower(), axes) for axes in _AXES for kind in ("Max", "Avg")},
        **{"Upsample": _resize, "UpsamplingNearest2d": _resize, "UpsamplingBilinear2d": _resize, "PReLU": _parametric},
        **{
            f"{kind}Pad{axes}d": _pad(axes)
            for axes in _AXES
            for kind in ("Zero", "Reflection", "Replication", "Constant", "Circular")
        },
        **{name: _apply(function, places=_PLACES.get(name, 0)) for name, function in _FUNCTIONS.items()},
        **dict.fromkeys(("Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "AlphaDropout"), _drop),
        **{"Flatten": _flatten, "Unflatten": _unflatten, "PixelShuffle": _shuffle, "PixelUnshuffle": _shuffle},
        **{"Unfold": _unfold, "MultiheadAttention": run_heads, "Transformer": run_transformer},
        **{"TransformerEncoderLayer": run_transformer_layer, "TransformerDecoderLayer": run_transformer_layer},
        **dict.fromkeys(("LSTM", "GRU", "RNN"), run_recurrent),
        **dict.fromkeys(("LSTMCell", "GRUCell", "RNNCell"), run_cell),
        **{name: _lose(OPERATIONS[function]) for name, function in _LOSSES.items()},
    }
)
