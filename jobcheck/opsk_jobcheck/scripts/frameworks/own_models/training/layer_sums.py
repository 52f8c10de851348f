"""Adds up the sizes of the layers of models, for a limit on what they save where their forward pass is not followed."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any

from opsk.workload.unstated.layer_limit import ATTENTION, LayerSums
from opsk_jobcheck.scripts.frameworks.own_models.layers import CONTAINERS, LAYERS, STACKS, Arguments
from opsk_jobcheck.scripts.frameworks.own_models.public_parts import CUT, WHOLE
from opsk_jobcheck.scripts.frameworks.own_models.values import ABSENT, OPEN, Choice, File, Module, Parameter

MAX_LAYERS = 4096
_NORMS = ("BatchNorm", "InstanceNorm", "SyncBatchNorm", "GroupNorm", "LayerNorm", "RMSNorm")
_DOWN = ("MaxPool2d", "AvgPool2d", "FractionalMaxPool2d", "PixelUnshuffle")
_UP = ("ConvTranspose1d", "ConvTranspose2d", "Upsample", "UpsamplingNearest2d", "UpsamplingBilinear2d", "PixelShuffle")
REPEATS = frozenset({"functional_call", "odeint", "odeint_adjoint", "jvp", "vjp", "hessian", "jacobian"})
"""Functions with which a step goes forward any number of times."""
_TWICE = REPEATS | {"grad"}
"""Those with which it goes backward twice, too."""
_ATTENDS = frozenset({"bmm", "matmul", "einsum", "baddbmm", "scaled_dot_product_attention"})
"""Functions that multiply places with each other."""
_NO_PASS = re.compile(
    r"__(?!call__)\w+__|_{0,2}(init|reset|make|build|create|get|inpaint)(_|$)|generate|_?(predict|infer|sampl|decod\w*_greedy|beam|test|valid|eval|fit|train|configure)"
)
"""Methods that make a module, use it after its training, or hold the loop around a step."""
_NO_GRADIENT = re.compile(r"(no_grad|inference_mode)\b")
_HEADS = re.compile(r"(?i)head|^nh$")
"""Names of the number of heads."""
_SAVES_NOTHING = frozenset(
    {
        *(
            "unsqueeze",
            "squeeze",
            "view",
            "reshape",
            "expand",
            "size",
            "dim",
            "append",
            "len",
            "range",
            "int",
            "float",
            "min",
        ),
        *(
            "max",
            "permute",
            "transpose",
            "detach",
            "item",
            "print",
            "isinstance",
            "zip",
            "enumerate",
            "list",
            "tuple",
            "chunk",
        ),
    }
)
"""Functions and methods that save nothing for the backward pass."""
_MAKES_LAYERS = frozenset({*CONTAINERS, *STACKS, *LAYERS})
_POSITIONS = re.compile(r"(?i)(^|_)(w?pe|pos)(_|$)|pos(ition(al|s)?)?_?emb|emb\w*_pos")
"""Names of learned positions."""
_SEQUENCES = ("Conv1d", "ConvTranspose1d", "LSTM", "GRU", "RNN")
_VOLUMES = ("Conv3d", "ConvTranspose3d")
_SAVED = 3
"""Tensors of the size of a layer's output that are saved at most: for a norm, an activation, and a product."""


def sum_layers(models: Iterable[Any], files: Iterable[File]) -> LayerSums | None:
    """Return the sums over all layers of models; ``None`` where a layer, or one of its sizes, is not known.

    Parameters
    ----------
    files
        The text of the program.
    """
    models = list(models)
    rows = list(_iterate_layers(models, set()))
    if not rows or None in rows or len(rows) > MAX_LAYERS:
        return None
    names = {name for file in files for calls in file.digest.calls.values() for name, _ in calls}
    sums = sum_rows([row for row in rows if row is not None], models, names)
    has_longer = any(get_layer_name(row) == "ConvTranspose1d" for row in rows if row is not None)
    return None if sums is None or sums.volumes or has_longer else sums


def sum_rows(rows: Iterable[Module], models: Iterable[Any], names: Collection[str]) -> LayerSums | None:
    """Return the sums over layers of models; ``None`` where one of their sizes is not known.

    Parameters
    ----------
    names
        The functions that their program calls.
    """
    layers = [row for row in rows if row.layer is not None]
    features = [_count_features(layer) for layer in layers]
    if None in features:
        return None
    weighted = [
        layer for layer in layers if get_layer_name(layer) in LAYERS and not get_layer_name(layer).startswith(_NORMS)
    ]
    if not weighted:
        return None
    first = weighted[0]
    return LayerSums(
        first=get_layer_name(first),
        channels=read_size(first, 0, "in_channels") or 1,
        patch=_find_patch(first),
        row_features=sum(row or 0 for layer, row in zip(layers, features, strict=True) if _is_of_rows(layer)),
        map_features=sum(row or 0 for layer, row in zip(layers, features, strict=True) if not _is_of_rows(layer)),
        width=find_width(weighted),
        positions=find_positions(models),
        products=sum(get_layer_name(layer) == "Linear" or get_layer_name(layer) in ATTENTION for layer in weighted),
        shrinks=any(map(_shrinks, layers)),
        grows=any(get_layer_name(layer) in _UP for layer in layers)
        or "interpolate" in names
        or "pixel_shuffle" in names,
        attends=not _ATTENDS.isdisjoint(names) or any(get_layer_name(layer) in ATTENTION for layer in layers),
        sequence_features=sum(
            row or 0
            for layer, row in zip(layers, features, strict=True)
            if get_layer_name(layer).startswith(_SEQUENCES)
        ),
        volumes=any(get_layer_name(layer).startswith(_VOLUMES) for layer in layers),
    )


def runs_layers_once(files: Iterable[File]) -> bool:
    """Return whether modules run each of their layers once on each sample, as far as the text of a program says.

    None repeats a layer in a loop, takes the parts of a sample (frames, views) for samples, or goes backward twice.
    """
    for file in files:
        classes = (node for row in file.nodes.values() for node in row if isinstance(node, ast.ClassDef))
        if not repeat_no_layer(classes) or find_calls([file], _TWICE):
            return False
    return True


def repeat_no_layer(classes: Iterable[ast.ClassDef], *, may_join: bool = False) -> bool:
    """Return whether no module of some classes repeats a layer in a loop, or takes parts of a sample for samples.

    Parameters
    ----------
    may_join
        Whether one may join the parts of a sample with the samples of a batch.
    """
    return not any(_repeats_layers(node, may_join=may_join) for node in classes)


@lru_cache(maxsize=512)
def _repeats_layers(node: ast.ClassDef, *, may_join: bool) -> bool:
    """Return whether a class is a module that repeats a layer, or takes parts of a sample for samples."""
    return _is_module(node) and any(_repeats(method, may_join=may_join) for method in _list_passes(node))


def _list_passes(node: ast.ClassDef) -> list[ast.stmt]:
    """Return the methods of a class that may be part of a forward pass: those that make layers are none."""
    methods = {part.name: part for part in node.body if isinstance(part, ast.FunctionDef)}
    calls = {name: _list_calls(method) for name, method in methods.items()}
    reached: set[str] = set()
    waiting: list[str] = [name for name in ("forward", "__call__") if name in methods]
    while waiting:
        name = waiting.pop()
        if name not in reached:
            reached.add(name)
            waiting += [other for other in calls[name] if other in methods]
    return [method for name, method in methods.items() if name in reached or not calls[name] & _MAKES_LAYERS]


def _list_calls(method: ast.FunctionDef) -> set[str]:
    """Return the names of what a method calls."""
    functions = [node.func for node in ast.walk(method) if isinstance(node, ast.Call)]
    return {getattr(function, "attr", getattr(function, "id", "")) for function in functions}


def find_calls(files: Iterable[File], names: Collection[str]) -> bool:
    """Return whether files call any function of some names."""
    return any(name in names for file in files for calls in file.digest.calls.values() for name, _ in calls)


def _is_module(node: ast.ClassDef) -> bool:
    """Return whether a class may be a module: it has a forward pass, or what has is made of it."""
    return any(isinstance(part, ast.FunctionDef) and part.name in ("forward", "__call__") for part in node.body)


def _repeats(method: ast.stmt, *, may_join: bool) -> bool:
    """Return whether a method repeats what it calls a number of times, or joins the first two axes of a tensor."""
    if not isinstance(method, ast.FunctionDef) or _NO_PASS.match(method.name):
        return False
    if any(_NO_GRADIENT.search(ast.unparse(row)) for row in method.decorator_list):
        return False
    for node in ast.walk(method):
        if isinstance(node, ast.While | ast.For) and (isinstance(node, ast.While) or _counts(node)) and _computes(node):
            return True
        if may_join or not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        first = node.args[0] if node.args else None
        if node.func.attr in ("view", "reshape") and _joins_samples(first):
            return True
        if node.func.attr == "flatten" and [getattr(part, "value", None) for part in node.args] == [0, 1]:
            return True
        if node.func.attr in ("rearrange", "unfold"):
            return True
    return False


def _joins_samples(size: ast.expr | None) -> bool:
    """Return whether the first size of a view is a product; one with the heads of attention takes no more places."""
    if not isinstance(size, ast.BinOp) or not isinstance(size.op, ast.Mult):
        return False
    names = (getattr(part, "attr", getattr(part, "id", "")) for part in ast.walk(size))
    return not any(_HEADS.search(name) for name in names)


def _computes(loop: ast.For | ast.While) -> bool:
    """Return whether a loop may call a layer, or save what it computes; one that only adds axes does neither."""
    for statement in loop.body:
        for node in ast.walk(statement):
            if isinstance(node, ast.BinOp | ast.AugAssign | ast.Lambda):
                return True
            if isinstance(node, ast.Call):
                function = node.func
                name = getattr(function, "attr", getattr(function, "id", ""))
                if name not in _SAVES_NOTHING or not isinstance(function, ast.Attribute | ast.Name):
                    return True
    return False


def _counts(loop: ast.For) -> bool:
    """Return whether a loop runs over numbers that choose nothing: it repeats what it calls."""
    if not (isinstance(loop.iter, ast.Call) and getattr(loop.iter.func, "id", "") == "range"):
        return False
    number = getattr(loop.target, "id", "")
    chosen = [node.slice for node in ast.walk(loop) if isinstance(node, ast.Subscript)]
    return not any(isinstance(node, ast.Name) and node.id == number for part in chosen for node in ast.walk(part))


def find_positions(values: Iterable[Any], name: str = "", depth: int = 0) -> int:
    """Return how many tokens models have learned positions for, the largest number of several; 0 for none."""
    most = 0
    for value in values:
        if isinstance(value, Choice):
            most = max(most, find_positions(value.options, name, depth + 1))
        elif isinstance(value, Parameter) and _POSITIONS.search(name) and value.shape and len(value.shape) in (2, 3):
            most = max(most, value.shape[-2] or 0)
        elif isinstance(value, Module) and value.is_model and depth < MAX_LAYERS // 64:
            if get_layer_name(value) == "Embedding" and value.definition is None:
                most = max(most, (read_size(value, 0, "num_embeddings") or 0) if _POSITIONS.search(name) else 0)
                continue
            for key, part in value.attributes.items():
                named = key if isinstance(key, str) and not (key == "weight" and name) else name
                most = max(most, find_positions([part], named, depth + 1))
            most = max(most, find_positions(value.parts, name, depth + 1))
    return most


def _iterate_layers(values: Iterable[Any], seen: set[int], depth: int = 0) -> Iterator[Module | None]:
    """Yield the layers of models once, in the order in which they are made; ``None`` for what is not known."""
    for value in values:
        if isinstance(value, Module):
            if id(value) in seen:
                continue
            seen.add(id(value))
        if value is OPEN or depth > MAX_LAYERS // 64:
            yield None
        elif isinstance(value, Choice):
            options = [option for option in value.options if option is not ABSENT]
            yield from _iterate_layers(options, seen, depth + 1)
        elif isinstance(value, Module) and value.is_model:
            name = value.name
            if value.layer is not None and value.layer[0] in (WHOLE, CUT):
                yield None  # a public model, of which no layer is known
            elif value.layer is not None and value.definition is None and name not in STACKS:
                yield value
            elif value.definition is None and name not in CONTAINERS and name not in STACKS:
                yield None  # a part of a package
            else:
                parts = [part for part in (*value.attributes.values(), *value.parts) if _may_hold(part)]
                yield from _iterate_layers(parts, seen, depth + 1)


def _may_hold(part: Any) -> bool:
    """Return whether a value may be a module."""
    return part is OPEN or isinstance(part, Module) or (isinstance(part, Choice) and any(map(_may_hold, part.options)))


def holds_layers(value: Module) -> bool:
    """Return whether a module of PyTorch is a list or a stack of others."""
    return value.name in CONTAINERS or value.name in STACKS


def get_layer_name(layer: Module) -> str:
    """Return the name of the layer of PyTorch."""
    return layer.layer[0] if layer.layer is not None else layer.name


def _get_arguments(layer: Module) -> Arguments:
    """Return what a layer is made with."""
    given = layer.layer[1] if layer.layer is not None else None
    return given if isinstance(given, Arguments) else Arguments((), {})


def read_argument(layer: Module, place: int, name: str, default: Any) -> Any:
    """Return an argument of a layer."""
    return _get_arguments(layer).get(place, name, default)


def read_size(layer: Module, place: int, name: str, default: int | None = None) -> int | None:
    """Return an argument that is a number."""
    value = _get_arguments(layer).get(place, name, default)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _count_features(layer: Module) -> int | None:
    """Return the numbers that a layer and what follows it save for each place; ``None`` where they are not known."""
    name = get_layer_name(layer)
    if name.startswith(("Conv", "ConvTranspose")):
        sizes = [read_size(layer, 0, "in_channels"), read_size(layer, 1, "out_channels")]
    elif name == "Linear":
        sizes = [read_size(layer, 0, "in_features"), read_size(layer, 1, "out_features")]
    elif name == "Embedding":
        sizes = [0, read_size(layer, 1, "embedding_dim")]
    elif name in ("LSTM", "GRU", "RNN"):
        return _count_recurrent(layer)
    elif name in ATTENTION:
        width = _read_width(layer)
        inner = read_size(layer, 2, "dim_feedforward", 2048) if name != "MultiheadAttention" else 0
        return None if width is None or inner is None else (2 * _SAVED + 2) * (4 * width + inner)
    elif name in LAYERS and not name.startswith((*_NORMS, "PReLU")):
        return None
    else:
        return 0
    inner, outer = sizes
    return None if inner is None or outer is None else inner + _SAVED * outer


def _read_width(layer: Module) -> int | None:
    """Return the width of the tokens of a layer with attention."""
    return read_size(layer, 0, "embed_dim" if get_layer_name(layer) == "MultiheadAttention" else "d_model")


def _count_recurrent(layer: Module) -> int | None:
    """Return the numbers that a recurrent layer saves for each step: gates, states and results of all its parts."""
    sizes = [
        read_size(layer, 0, "input_size"),
        read_size(layer, 1, "hidden_size"),
        read_size(layer, 2, "num_layers", 1),
    ]
    if None in sizes:
        return None
    inner, hidden, layers = (size or 0 for size in sizes)
    return inner + layers * 2 * 12 * hidden


def find_width(layers: Sequence[Module]) -> int:
    """Return the width of tokens: that of the first embedding or patches, else the widest input of a product."""
    first = layers[0]
    made = read_size(first, 1, "embedding_dim" if get_layer_name(first) == "Embedding" else "out_channels")
    if get_layer_name(first) in ("Embedding", "Conv2d") and made:
        return made
    inner = [read_size(layer, 0, "in_features") or 0 for layer in layers]
    attended = [_read_width(layer) or 0 for layer in layers if get_layer_name(layer) in ATTENTION]
    return max((*inner, *attended), default=0)


def _is_of_rows(layer: Module) -> bool:
    """Return whether a layer works on tokens or rows, and not on places of an image."""
    return get_layer_name(layer) in ("Conv1d", "ConvTranspose1d") or not get_layer_name(layer).startswith("Conv")


def _find_patch(layer: Module) -> int:
    """Return the side of the patches that a first layer cuts an image into; 0 for a layer that does not."""
    given = _get_arguments(layer)
    kernel, stride = given.get(2, "kernel_size"), given.get(3, "stride", 1)
    kernel = kernel[0] if isinstance(kernel, list | tuple) and kernel else kernel
    stride = stride[0] if isinstance(stride, list | tuple) and stride else stride
    return kernel if get_layer_name(layer) == "Conv2d" and isinstance(kernel, int) and kernel == stride > 1 else 0


def _shrinks(layer: Module) -> bool:
    """Return whether a layer puts out fewer places than it gets."""
    if get_layer_name(layer) in _DOWN:
        return True
    stride = _get_arguments(layer).get(3, "stride", 1)
    stride = stride[0] if isinstance(stride, list | tuple) and stride else stride
    return get_layer_name(layer) == "Conv2d" and isinstance(stride, int) and stride > 1
