"""Computes operations by elements: functions of one tensor, of two that are broadcast, and dropout."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from opsk_jobcheck.scripts.frameworks.own_models.layers import Arguments
from opsk_jobcheck.scripts.frameworks.own_models.operations.results import (
    FLOATS,
    Rule,
    as_tensor,
    cast,
    cast_down,
    cast_up,
    get_axis,
    is_tensor,
    make,
    make_like,
    make_unknown,
    promote,
    save_other,
    save_result,
)
from opsk_jobcheck.scripts.frameworks.own_models.tensors.tape import Tape
from opsk_jobcheck.scripts.frameworks.own_models.tensors.tensors import broadcast
from opsk_jobcheck.scripts.frameworks.own_models.values import DATA, Tensor

OF_RESULT = frozenset(
    {
        *("relu", "sigmoid", "tanh", "exp", "sqrt", "rsqrt", "reciprocal", "softmax", "log_softmax", "expm1", "tan"),
        *("softmin", "rrelu"),
    }
)
"""Functions that save their result."""
OF_INPUT = frozenset(
    {
        *("gelu", "silu", "mish", "softplus", "leaky_relu", "hardtanh", "relu6", "hardswish", "hardsigmoid", "elu"),
        *("celu", "selu", "logsigmoid", "abs", "log", "log2", "log10", "log1p", "sin", "cos", "erf", "square", "clamp"),
        *("clamp_min", "clamp_max", "clip", "softshrink", "hardshrink", "threshold", "sinh", "cosh", "atan", "asin"),
        *("acos", "erfinv", "asinh", "acosh", "atanh", "nan_to_num", "cumprod", "logit", "sinc"),
    }
)
"""Functions that save what they read."""
OF_NEITHER = frozenset({"neg", "negative", "cumsum", "round", "floor", "ceil", "sign", "trunc", "frac", "positive"})
"""Functions that save nothing."""
OF_TRUTHS = frozenset(
    {
        *("isnan", "isinf", "isfinite", "logical_not", "bitwise_not", "eq", "ne", "gt", "lt", "ge", "le", "isclose"),
        *(
            "logical_and",
            "logical_or",
            "logical_xor",
            "bitwise_and",
            "bitwise_or",
            "bool",
            "greater",
            "less",
            "not_equal",
        ),
    }
)
"""Functions whose result is true or false."""
IN_FULL = frozenset(
    {
        *("acos", "asin", "cosh", "erfinv", "exp", "expm1", "log", "log10", "log1p", "log2", "log_softmax", "pow"),
        *("reciprocal", "rsqrt", "sinh", "softmax", "softmin", "softplus", "tan", "cumprod", "cumsum", "square"),
    }
)
"""Functions that autocast computes in 32 bits."""


def apply(tape: Tape, name: str, value: Tensor) -> Tensor:
    """Return a function of the elements of a tensor."""
    name = name.rstrip("_") or name
    tensor = cast_up(tape, value) if name in IN_FULL else value
    dtype = (
        tensor.dtype if tensor.dtype in FLOATS or name in (*OF_NEITHER, "abs", "clamp", "square", "relu") else "float32"
    )
    result = make_like(tape, tensor, [tensor], dtype)
    if not result.has_gradient:
        return result
    if name in OF_RESULT:
        tape.save(result)
    elif name not in OF_NEITHER:
        tape.save(tensor)
    return result


def dropout(tape: Tape, tensor: Tensor, rate: Any, training: Any = True) -> Tensor:
    """Return a tensor after dropout, which saves a mask of one byte for each element."""
    if training is False or rate in (0, 0.0):
        return tensor
    result = make_like(tape, tensor)
    if result.has_gradient:
        is_sure = training is True and isinstance(rate, int | float)
        tape.save(make(tape, tensor.shape, "bool"), is_sure=is_sure)
    return result


def _apply(name: str) -> Rule:
    def rule(tape: Tape, given: Arguments) -> Any:
        tensor = as_tensor(tape, given.get(0, "input"))
        result = apply(tape, name, tensor)
        if (
            "dtype" in given.keywords
            and name in ("softmax", "log_softmax", "cumsum")
            and (kind := get_dtype(given.keywords["dtype"]))
        ):
            result = save_result(tape, make_like(tape, tensor, [tensor], kind))
        if given.keywords.get("inplace") is True or name.endswith("_"):
            return put_in_place(tape, tensor, result)
        return result

    return rule


def get_dtype(value: Any) -> str:
    """Return the type that a value names (``torch.float16``); empty for any other value."""
    name = getattr(value, "name", "") if not isinstance(value, str) else value
    last = name.rpartition(".")[2] if isinstance(name, str) else ""
    known = {"float": "float32", "half": "float16", "long": "int64", "int": "int32", "double": "float64"}
    last = known.get(last, last)
    is_type = last in known.values() or last in ("bfloat16", "bool", "uint8", "int8", "int16", "complex64")
    return last if is_type else ""


def put_in_place(tape: Tape, tensor: Tensor, result: Tensor) -> Tensor:
    """Return the result of an operation in the memory of a tensor, where it was saved if the result was."""
    if result.storage is not None and tensor.storage is not None:
        tape.replace_storage(result.storage, tensor.storage)
    return replace(result, storage=tensor.storage, strides=tensor.strides)


def _truth(tape: Tape, given: Arguments) -> Any:
    shapes = [as_tensor(tape, value).shape for value in given.positional if is_tensor(value)]
    return make(tape, broadcast(shapes), "bool")


def combine(tape: Tape, name: str, one: Any, other: Any) -> Tensor:
    """Return an operation by elements of two values, of which at least one is a tensor."""
    if name in ("mul", "div") and is_tensor(one) and as_tensor(tape, one).shape == () and other is DATA:
        other = 1.0  # a loss over a number of steps
    first, second = as_tensor(tape, one), as_tensor(tape, other)
    if name == "pow" and tape.autocast:
        first, second = cast_up(tape, first), cast_up(tape, second)
    dtype = _find_type(name, one, other, first, second)
    shape = broadcast([first.shape, second.shape])
    whole = next((row for row in (first, second) if row.shape == shape and shape is not None), None)
    inputs = [
        row for row, value in ((first, one), (second, other)) if is_tensor(value) or value is None or _is_open(value)
    ]
    result = make_like(tape, whole, inputs, dtype) if whole is not None else make(tape, shape, dtype, inputs)
    if not result.has_gradient:
        return result
    if name in ("mul", "maximum", "minimum", "fmod", "atan2", "max", "min"):
        save_other(tape, first, second)
        if name != "mul":
            save_other(tape, second, first)
    elif name == "div":
        tape.save(second)
        if second.has_gradient:
            tape.save(first)
    elif name == "pow":
        tape.save(first)
        tape.save(second)
        if second.has_gradient:
            tape.save(result)
    return result


def _is_open(value: Any) -> bool:
    return not isinstance(value, bool | int | float)


def _find_type(name: str, one: Any, other: Any, first: Tensor, second: Tensor) -> str:
    """Return the type of the result of an operation of two values; a number does not widen a tensor of its kind."""
    rows = [(one, first), (other, second)]
    wide = [row for value, row in rows if not isinstance(value, bool | int | float)]
    dtype = promote(*wide) if wide else "float32"
    is_float = any(isinstance(value, float) for value, _ in rows)
    if dtype and dtype not in FLOATS and (is_float or name == "div"):
        return "float32"
    return dtype


def _combine(name: str) -> Rule:
    base = name.rstrip("_")

    def rule(tape: Tape, given: Arguments) -> Any:
        other = given.get(1, "other", given.keywords.get("exponent"))
        if given.get(0, "input") is None or other is None:
            return make_unknown(tape)
        result = combine(tape, _ALIASES.get(base, base), given.get(0, "input"), other)
        first = given.get(0, "input")
        return put_in_place(tape, as_tensor(tape, first), result) if name.endswith("_") else result

    return rule


_ALIASES = {
    "multiply": "mul",
    "subtract": "sub",
    "divide": "div",
    "true_divide": "div",
    "rsub": "sub",
    "remainder": "fmod",
}


def _where(tape: Tape, given: Arguments) -> Any:
    if len(given.positional) + len(given.keywords) < 3:
        return make_unknown(tape)
    test = as_tensor(tape, given.get(0, "condition"))
    values = [given.get(1, "input", given.keywords.get("self")), given.get(2, "other")]
    rows = [as_tensor(tape, value) for value in values]
    dtype = _find_type("where", *values, *rows)
    result = make(tape, broadcast([test.shape, *(row.shape for row in rows)]), dtype, rows)
    if result.has_gradient:
        tape.save(test)
    return result


def _mask(tape: Tape, given: Arguments) -> Any:
    tensor, mask = as_tensor(tape, given.get(0, "input")), as_tensor(tape, given.get(1, "mask"))
    result = make(tape, broadcast([tensor.shape, mask.shape]), tensor.dtype, [tensor])
    if result.has_gradient:
        tape.save(mask)
    return result


def _mask_in_place(tape: Tape, given: Arguments) -> Any:
    tensor = as_tensor(tape, given.get(0, "input"))
    if tensor.has_gradient:
        tape.save(as_tensor(tape, given.get(1, "mask")))
    return tensor


def _three(tape: Tape, given: Arguments) -> Any:
    """Return ``addcmul`` and ``lerp``, which save all that they read."""
    rows = [as_tensor(tape, value) for value in given.positional[:3]]
    result = make(tape, broadcast([row.shape for row in rows]), promote(*rows), rows)
    if result.has_gradient:
        for row in rows:
            tape.save(row)
    return result


def _dropout(tape: Tape, given: Arguments) -> Any:
    tensor = as_tensor(tape, given.get(0, "input"))
    return dropout(tape, tensor, given.get(1, "p", 0.5), given.get(2, "training", True))


def drop_channels(tape: Tape, tensor: Tensor, rate: Any, training: Any = True) -> Tensor:
    """Return a tensor after dropout of whole channels: a factor for each of them is saved."""
    if training is False or rate in (0, 0.0):
        return tensor
    result = make_like(tape, tensor)
    if result.has_gradient:
        shape = tensor.shape[:2] + (1,) * (len(tensor.shape) - 2) if tensor.shape is not None else None
        tape.save(make(tape, shape, tensor.dtype))
    return result


def _drop_channels(tape: Tape, given: Arguments) -> Any:
    tensor = as_tensor(tape, given.get(0, "input"))
    return drop_channels(tape, tensor, given.get(1, "p", 0.5), given.get(2, "training", True))


def gate(tape: Tape, tensor: Tensor, value: Any = -1) -> Tensor:
    """Return one half of a tensor times the sigmoid of the other."""
    axis = get_axis(tensor.shape, value) if tensor.shape is not None else None
    shape = None
    if tensor.shape is not None and axis is not None:
        side = tensor.shape[axis]
        shape = (*tensor.shape[:axis], None if side is None else side // 2, *tensor.shape[axis + 1 :])
    result = make(tape, shape, tensor.dtype, [tensor])
    if result.has_gradient:
        tape.save(tensor)
    return result


def _gate(tape: Tape, given: Arguments) -> Any:
    return gate(tape, as_tensor(tape, given.get(0, "input")), given.get(1, "dim", -1))


def parametric_relu(tape: Tape, tensor: Tensor, weight: Tensor) -> Tensor:
    """Return a tensor whose negative elements are scaled by a weight."""
    rows = cast_down(tape, tensor), cast_down(tape, weight)
    result = make_like(tape, rows[0], rows)
    if result.has_gradient:
        tape.save(rows[0])
        tape.save(rows[1])
    return result


def _parametric_relu(tape: Tape, given: Arguments) -> Any:
    return parametric_relu(tape, as_tensor(tape, given.get(0, "input")), as_tensor(tape, given.get(1, "weight")))


def convert(tape: Tape, tensor: Tensor, values: Sequence[Any]) -> Tensor:
    """Return a tensor in the type that one of several values names, or that a tensor among them has."""
    for value in values:
        if is_tensor(value):
            return cast(tape, tensor, as_tensor(tape, value).dtype)
        if dtype := get_dtype(value):
            return cast(tape, tensor, dtype)
    return tensor


def _convert(tape: Tape, given: Arguments) -> Any:
    tensor = as_tensor(tape, given.get(0, "input"))
    return convert(tape, tensor, [*given.positional[1:], given.keywords.get("dtype")])


def _convert_to(dtype: str) -> Rule:
    return lambda tape, given: cast(tape, as_tensor(tape, given.get(0, "input")), dtype)


_TWO = ("add", "sub", "mul", "div", "pow", "maximum", "minimum", "fmod", "atan2", "remainder", "floor_divide")
RULES: dict[str, Rule] = {
    **{name: _apply(name) for name in (*OF_RESULT, *OF_INPUT, *OF_NEITHER)},
    **{f"{name}_": _apply(f"{name}_") for name in (*OF_RESULT, *OF_INPUT, *OF_NEITHER)},
    **dict.fromkeys(OF_TRUTHS, _truth),
    **{name: _combine(name) for name in (*_TWO, "multiply", "subtract", "divide", "true_divide")},
    **{f"{name}_": _combine(f"{name}_") for name in _TWO},
    **{"where": _where, "masked_fill": _mask, "masked_fill_": _mask_in_place, "addcmul": _three, "lerp": _three},
    **{"dropout": _dropout, "alpha_dropout": _dropout, "dropout1d": _drop_channels, "dropout2d": _drop_channels},
    **{
        "dropout3d": _drop_channels,
        "glu": _gate,
        "prelu": _parametric_relu,
        "to": _convert,
        "type": _convert,
        "astype": _convert,
    },
    **{
        "type_as": _convert,
        "float": _convert_to("float32"),
        "half": _convert_to("float16"),
        "long": _convert_to("int64"),
    },
    **{"bfloat16": _convert_to("bfloat16"), "double": _convert_to("float64"), "int": _convert_to("int32")},
    **{"byte": _convert_to("uint8"), "short": _convert_to("int16")},
}
