"""Follows models of Keras: their layers by the channels that each gets, as far as the text tells them."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from opsk_jobcheck.scripts.frameworks.own_models.copies import copy_module
from opsk_jobcheck.scripts.frameworks.own_models.files import Files
from opsk_jobcheck.scripts.frameworks.own_models.layers import Arguments, make_layer
from opsk_jobcheck.scripts.frameworks.own_models.machine import MAX_STEPS, LookUp
from opsk_jobcheck.scripts.frameworks.own_models.names import BUILTINS
from opsk_jobcheck.scripts.frameworks.own_models.public_parts import make_public
from opsk_jobcheck.scripts.frameworks.own_models.training.data_sets import DataSets
from opsk_jobcheck.scripts.frameworks.own_models.values import (
    DATA,
    OPEN,
    ClassValue,
    External,
    Frame,
    FunctionValue,
    Module,
    list_options,
)

_OF_KERAS = re.compile(r"(tensorflow\.(compat\.v[12]\.|python\.)?|tf_)?keras\.(\w+\.)*")
_MODELS = frozenset({"Sequential", "Model"})
_PUBLIC = re.compile(
    r"(?P<vgg>VGG(16|19))|(?P<resnet>ResNet(50|101|152))(V2)?|(?P<densenet>DenseNet(121|169|201))|EfficientNet(?P<b>B[0-7])"
    r"|(?P<inception>InceptionV3)|MobileNet(?P<mobile>V2|V3Small|V3Large)|EfficientNetV2(?P<v2>S|M|L)"
)
_CONVOLUTIONS = {
    **{f"{kind}{axes}D": f"Conv{axes}d" for kind in ("Conv", "Convolution", "SeparableConv") for axes in (1, 2, 3)},
    **{f"Conv{axes}DTranspose": f"ConvTranspose{axes}d" for axes in (1, 2, 3)},
}
_RECURRENT = {"LSTM": "LSTM", "GRU": "GRU", "SimpleRNN": "RNN", "CuDNNLSTM": "LSTM", "CuDNNGRU": "GRU"}
_NORMS = frozenset({"BatchNormalization", "LayerNormalization", "GroupNormalization", "UnitNormalization"})
_POOLS = re.compile(r"(Global)?(Max|Average)Pool(ing)?[123]D|Cropping[123]D")
_JOINS = frozenset({"Concatenate", "concatenate", "concat"})
_FORGETS = frozenset({"Flatten", "Reshape", "Permute", "Lambda", "RepeatVector", "Dot", "dot"})
"""Layers behind which the channels are others."""
_KEEPS = re.compile(
    r"\w*Dropout\w*|Activation|ReLU|LeakyReLU|PReLU|ELU|ThresholdedReLU|Softmax|Masking|ActivityRegularization|Gaussian\w+"
    r"|Add|Subtract|Multiply|Average|Maximum|Minimum|add|subtract|multiply|average|maximum|minimum|ZeroPadding[123]D"
    r"|Rescaling|Resizing|Random\w+|CenterCrop|Normalization|UpSampling[123]D|TimeDistributed|Bidirectional|Wrapper"
)
_WRAPS = frozenset({"TimeDistributed", "Bidirectional"})
_WEIGHTS = frozenset({"add_weight", "add_variable"})
_TRAINS = frozenset({"fit", "fit_generator", "train_on_batch", "compile"})
_LOADS = re.compile(r"flow(_from_\w+)?|\w+_from_directory|timeseries_dataset_from_array|fit|batch")
"""Methods and functions that are given a batch, and the size of images."""
_FOLLOWED = (FunctionValue, ClassValue)
_SIDES = ("target_size", "image_size", "input_shape", "shape", "batch_input_shape")


@dataclass(frozen=True, slots=True)
class Symbol:
    """What a layer of Keras puts out, with its channels; ``DATA`` where only the data tell them."""

    channels: Any = DATA


class KerasModels(DataSets):
    """Follows the layers of Keras; each that a program makes counts for any model that it trains.

    ``wired`` are the layers and models that were made, by their identity, with whether they were called.
    """

    def __init__(self, files: Files, settings: LookUp, max_steps: int = MAX_STEPS) -> None:
        super().__init__(files, settings, max_steps)
        self.keras_layers: list[Module] = []
        self.wired: dict[int, bool] = {}
        self.open_loops = 0
        self.has_lost_model = False

    def call_external(
        self, name: str, positional: list[Any], keywords: dict[str, Any], node: ast.Call, frame: Frame
    ) -> Any:
        """Return the result of a function of a package; of Keras, a layer or a model."""
        last = name.rpartition(".")[2]
        if not _OF_KERAS.match(name) and not (name.startswith("tensorflow.") and last == "concat"):
            return super().call_external(name, positional, keywords, node, frame)
        self._note_sizes(last, positional, keywords)
        if last in _MODELS:
            return self._make_model(last, positional)
        if last in ("Input", "InputLayer"):
            shape = keywords.get("shape", positional[0] if positional else DATA)
            return Symbol(shape[-1] if isinstance(shape, list | tuple) and shape else DATA)
        if ".applications." in name and last[:1].isupper():
            return self._make_application(last)
        if ".layers." not in f".{name}" and last != "concat":
            return super().call_external(name, positional, keywords, node, frame)
        if last in _WRAPS and positional and isinstance(positional[0], Module):
            return positional[0]
        if last[:1].islower():  # a function that a layer is called by
            return _join(last, positional)
        return self._make_keras(last, positional, keywords)

    def call(self, target: Any, positional: list[Any], keywords: dict[str, Any], node: ast.Call, frame: Frame) -> Any:
        """Return the result of a call; of a layer of Keras, what it puts out."""
        if isinstance(target, Module) and id(target) in self.wired:
            if self.wired[id(target)]:  # it runs again, and saves as much again
                self.keras_layers.append(copy_module(target, ())[0])
            self.wired[id(target)] = True
            given = positional[0] if positional else DATA
            return self._wire(target, given)
        result = super().call(target, positional, keywords, node, frame)
        if any(map(_holds_symbol, (*positional, *keywords.values()))) and not isinstance(target, _FOLLOWED):
            is_own = isinstance(target, Module) and target.definition is not None
            is_plain = isinstance(target, External) and target.name.startswith(("tensorflow.", "keras."))
            if is_plain and result in (DATA, OPEN):
                return Symbol()
            self.has_lost_model = self.has_lost_model or not (is_plain or is_own or _is_builtin(target))
        return result

    def call_method(
        self, owner: Any, name: str, positional: list[Any], keywords: dict[str, Any], node: ast.Call, frame: Frame
    ) -> Any:
        """Return the result of a method that is not the program's; what fits a model of Keras uses all its layers."""
        if _LOADS.fullmatch(name):
            self._note_sizes(name, positional, keywords)
        if isinstance(owner, Module) and name == "add" and id(owner) in self.wired and positional:
            self._append(owner, positional[0])
            return None
        if self.keras_layers and name in _TRAINS and all(isinstance(row, Module) for row in list_options(owner)):
            self.use(node, [Module("Sequential", parts=list(self.keras_layers))])
            self.has_lost_model = self.has_lost_model or self._adds_weights()
            return DATA
        return super().call_method(owner, name, positional, keywords, node, frame)

    def _repeat_unknown(self, statement: ast.For | ast.AsyncFor | ast.While, frame: Frame, item: Any) -> None:
        """Follow a loop that may run any number of times, and may make as many layers."""
        self.open_loops += 1
        try:
            super()._repeat_unknown(statement, frame, item)
        finally:
            self.open_loops -= 1

    def _adds_weights(self) -> bool:
        """Return whether layers of the program have weights of their own."""
        return any(
            name in _WEIGHTS for file in self.files.rows for calls in file.digest.calls.values() for name, _ in calls
        )

    def _make_model(self, name: str, positional: Sequence[Any]) -> Module:
        """Return a model of Keras, which gets its layers now or later."""
        model = Module("Sequential", {"channels": DATA})
        self.bear(model)
        self.wired[id(model)] = False
        rows = positional[0] if name == "Sequential" and positional else []
        for layer in rows if isinstance(rows, list | tuple) else [OPEN]:
            self._append(model, layer)
        if name == "Model":
            self.write_row(model.parts, list(self.keras_layers))
        return model

    def _append(self, model: Module, layer: Any) -> None:
        """Add a layer to a model that runs one after the other."""
        if isinstance(layer, Symbol):
            self.write(model.attributes, "channels", layer.channels)
        elif isinstance(layer, Module):
            result = self._wire(layer, Symbol(model.attributes.get("channels", DATA)))
            self.write(model.attributes, "channels", result.channels)
            self.write_row(model.parts, [*model.parts, layer])
        else:
            self.has_lost_model = True

    def _make_application(self, name: str) -> Module:
        """Return a public model that comes with Keras."""
        match = _PUBLIC.fullmatch(name)
        public = make_public("timm.create_model", [_name_public(match)], {}) if match is not None else None
        if public is None:
            self.has_lost_model = True
            public = Module("Identity", layer=("Identity", None))
        return self._note_layer(public)

    def _make_keras(self, name: str, positional: Sequence[Any], keywords: Mapping[str, Any]) -> Module:
        """Return a layer of Keras as the one of PyTorch that holds as many weights."""
        given = positional[0] if positional else DATA
        count = keywords.get("filters", keywords.get("units", given))
        kernel = keywords.get("kernel_size", positional[1] if len(positional) > 1 else DATA)
        made: Module | None
        if name in _CONVOLUTIONS:
            strides = keywords.get("strides", positional[2] if len(positional) > 2 else 1)
            made = make_layer(_CONVOLUTIONS[name], [DATA, count, kernel], {"stride": strides})
        elif name.startswith("DepthwiseConv"):
            kernel = keywords.get("kernel_size", given)
            made = make_layer("Conv2d", [DATA, DATA, kernel], {})
        elif name == "Dense":
            made = make_layer("Linear", [DATA, count], {})
        elif name in _RECURRENT:
            made = make_layer(_RECURRENT[name], [DATA, count], {"bidirectional": True})
        elif name == "Embedding":
            sizes = [
                keywords.get("input_dim", given),
                keywords.get("output_dim", positional[1] if len(positional) > 1 else DATA),
            ]
            made = make_layer("Embedding", sizes, {})
        elif name in _NORMS:
            made = make_layer("BatchNorm1d", [DATA], {})
        elif name == "MultiHeadAttention":
            made = _make_attention(keywords.get("num_heads", given), keywords.get("key_dim", kernel))
        elif _POOLS.fullmatch(name):
            made = make_layer("MaxPool2d" if "2D" in name and "Global" not in name else "Identity", [2], {})
        elif name in _FORGETS or name in _JOINS:
            made = make_layer("Flatten", [], {})
        elif _KEEPS.fullmatch(name):
            made = make_layer("Upsample" if name == "UpSampling2D" else "Identity", [], {})
        else:
            made = None
        if made is None or self.open_loops:
            self.has_lost_model = True
        made = self._note_layer(made or Module("Identity", layer=("Identity", None)))
        shape = keywords.get("input_shape", keywords.get("batch_input_shape"))
        if isinstance(shape, list | tuple) and shape:
            self._wire(made, Symbol(shape[-1]))
        return made

    def _note_layer(self, layer: Module) -> Module:
        """Note a layer that was made."""
        self.bear(layer)
        self.keras_layers.append(layer)
        self.wired[id(layer)] = False
        return layer

    def _wire(self, layer: Module, given: Any) -> Symbol:
        """Give a layer the channels that it gets; return what it puts out."""
        name = layer.layer[0] if layer.layer is not None else ""
        arguments = layer.layer[1] if layer.layer is not None else None
        if name == "Flatten":
            return _join("concatenate", [given]) if isinstance(given, list | tuple) else Symbol()
        inner = _find_channels(given)
        if not isinstance(arguments, Arguments) or name in ("Identity", "MaxPool2d", "Upsample"):
            return Symbol(inner if name in ("Identity", "MaxPool2d", "Upsample") else DATA)
        positional = list(arguments.positional)
        if name != "Embedding" and name != "MultiheadAttention" and (positional[0] is DATA or positional[0] == inner):
            known = make_layer(name, [inner, *positional[1:]], arguments.keywords)
            if known is not None and inner is not DATA:
                layer.layer, layer.attributes = known.layer, known.attributes
        if name.startswith("BatchNorm"):
            return Symbol(inner)
        outer: Any = positional[1] if len(positional) > 1 else DATA
        if not isinstance(outer, int):
            return Symbol()
        return Symbol(2 * outer if name in _RECURRENT.values() else outer)

    def _note_sizes(self, name: str, positional: Sequence[Any], keywords: Mapping[str, Any]) -> None:
        """Note the batch and the side of images that a function is given."""
        batch = keywords.get("batch_size", positional[0] if name == "batch" and positional else None)
        if isinstance(batch, int) and not isinstance(batch, bool) and batch > 0:
            self.batch_sizes.add(batch)
        for word in _SIDES:
            shape = keywords.get(word, positional[0] if word == "shape" and name == "Input" and positional else None)
            if (
                isinstance(shape, list | tuple)
                and len(shape) in (2, 3, 4)
                and (len(shape) > 2 or word.endswith("size"))
            ):
                rows = shape[-3:-1] if len(shape) > 2 else shape
                self.sides += [side for side in rows if isinstance(side, int) and side > 0]


def _holds_symbol(value: Any) -> bool:
    """Return whether a value is what a layer puts out, or a row of such."""
    rows = value if isinstance(value, list | tuple) else [value]
    return any(isinstance(option, Symbol) for row in rows for option in list_options(row))


def _is_builtin(target: Any) -> bool:
    """Return whether a function is one of Python."""
    return isinstance(target, External) and target.name in BUILTINS


def _make_attention(heads: Any, width: Any) -> Module | None:
    """Return a layer of attention; ``None`` where its width is not known."""
    both = [row for row in (heads, width) if isinstance(row, int)]
    return make_layer("MultiheadAttention", [both[0] * both[1], both[0]], {}) if len(both) == 2 else None


def _find_channels(value: Any) -> Any:
    """Return the channels of what a layer gets; the most of several."""
    rows = [option.channels for option in list_options(value) if isinstance(option, Symbol)]
    known = [row for row in rows if isinstance(row, int)]
    return max(known) if known and len(known) == len(list_options(value)) else DATA


def _join(name: str, positional: Sequence[Any]) -> Symbol:
    """Return what a function makes of one or several results."""
    rows = positional[0] if positional else DATA
    channels = [_find_channels(row) for row in rows] if isinstance(rows, list | tuple) else [_find_channels(rows)]
    if name in _JOINS:
        return Symbol(sum(channels) if all(isinstance(row, int) for row in channels) else DATA)
    return Symbol(channels[0] if channels else DATA)


def _name_public(match: re.Match[str]) -> str:
    """Return the name that a model of Keras has in PyTorch."""
    parts = match.groupdict()
    if parts["b"]:
        return f"efficientnet_{parts['b'].lower()}"
    if parts["v2"]:
        return f"efficientnet_v2_{parts['v2'].lower()}"
    if parts["mobile"]:
        return {"V2": "mobilenet_v2", "V3Small": "mobilenet_v3_small"}.get(parts["mobile"], "mobilenet_v3_large")
    if parts["inception"]:
        return "inception_v3"
    return (parts["vgg"] or parts["resnet"] or parts["densenet"]).lower()
