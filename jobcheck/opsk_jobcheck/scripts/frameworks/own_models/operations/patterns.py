"""Computes what einops does: axes that are named in a pattern are taken apart, put in order, and joined."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from opsk_jobcheck.scripts.frameworks.own_models.layers import Arguments
from opsk_jobcheck.scripts.frameworks.own_models.operations.axes import expand, permute, reshape, unsqueeze
from opsk_jobcheck.scripts.frameworks.own_models.operations.reductions import reduce
from opsk_jobcheck.scripts.frameworks.own_models.operations.results import Rule, as_int, as_tensor, make, multiply
from opsk_jobcheck.scripts.frameworks.own_models.tensors.tape import Tape
from opsk_jobcheck.scripts.frameworks.own_models.values import Tensor

_GROUP = re.compile(r"\([^()]*\)|\.\.\.|[^\s()]+")
_Groups = list[list[str]]


def _parse(side: str, open_axes: int) -> _Groups:
    """Return the names on one side of a pattern, those in parentheses together; ``...`` are axes of their own."""
    groups: _Groups = []
    for word in _GROUP.findall(side):
        if word == "...":
            groups += [[f".{index}"] for index in range(open_axes)]
        else:
            groups.append([name for name in word.strip("()").split() if name != "1"])
    return groups


def _measure(groups: _Groups, shape: Sequence[int | None], sizes: dict[str, int | None]) -> None:
    """Set the sizes of the names of a tensor: of those joined, one may follow from the others."""
    for group, side in zip(groups, shape, strict=True):
        unknown = [name for name in group if sizes.get(name) is None]
        rest = multiply([sizes[name] for name in group if name not in unknown])
        if len(unknown) == 1 and side is not None and rest:
            sizes[unknown[0]] = side // rest
        for name in unknown:
            sizes.setdefault(name, None)


def arrange(tape: Tape, tensor: Tensor, pattern: Any, given: Mapping[str, Any], *, kind: str = "rearrange") -> Tensor:
    """Return a tensor as a pattern says: rearranged, repeated along new names, or reduced along those that vanish."""
    left, arrow, right = pattern.partition("->") if isinstance(pattern, str) else ("", "", "")
    words = _GROUP.findall(left)
    if tensor.shape is None or not arrow or words.count("...") > 1:
        return make(tape, None, tensor.dtype, [tensor])
    open_axes = len(tensor.shape) - len([word for word in words if word != "..."])
    groups = _parse(left, max(0, open_axes))
    if len(groups) != len(tensor.shape):
        return make(tape, None, tensor.dtype, [tensor])
    sizes: dict[str, int | None] = {name: as_int(value) for name, value in given.items()}
    _measure(groups, tensor.shape, sizes)
    target = _parse(right, max(0, open_axes))
    names = [name for group in groups for name in group]
    result = reshape(tape, tensor, [sizes[name] for name in names])
    order = [name for group in target for name in group]
    gone = [name for name in names if name not in order]
    if gone:
        result = reduce(tape, "mean" if kind == "reduce" else "sum", result, [names.index(name) for name in gone])
        names = [name for name in names if name in order]
    for name in order:
        if name not in names:
            result = unsqueeze(result, len(names))
            names.append(name)
            result = expand(result, [*[-1] * (len(names) - 1), sizes.get(name, 1)])
    result = permute(result, [names.index(name) for name in order])
    return reshape(tape, result, [multiply([sizes.get(name, 1) for name in group]) for group in target])


def _arrange(kind: str) -> Rule:
    def rule(tape: Tape, given: Arguments) -> Any:
        value = given.get(0, "tensor")
        if isinstance(value, list | tuple):
            return make(tape, None, "", [as_tensor(tape, row) for row in value])
        return arrange(tape, as_tensor(tape, value), given.get(1, "pattern"), given.keywords, kind=kind)

    return rule


RULES: Mapping[str, Rule] = {f"einops.{kind}": _arrange(kind) for kind in ("rearrange", "repeat", "reduce")}
LAYERS: Mapping[str, str] = {f"einops.layers.torch.{kind.title()}": kind for kind in ("rearrange", "reduce")}
