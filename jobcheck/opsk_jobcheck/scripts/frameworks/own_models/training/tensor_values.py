"""Follows what programs do with tensors: operators, methods, indexes, and functions of PyTorch."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from opsk_jobcheck.scripts.frameworks.own_models.builtin_calls import multiply_sizes
from opsk_jobcheck.scripts.frameworks.own_models.calls import Calls
from opsk_jobcheck.scripts.frameworks.own_models.layers import Arguments
from opsk_jobcheck.scripts.frameworks.own_models.operations import elements, indexing, matrices, patterns, recurrent
from opsk_jobcheck.scripts.frameworks.own_models.operations.axes import turn, unbind
from opsk_jobcheck.scripts.frameworks.own_models.operations.registry import CREATIONS, OPERATIONS
from opsk_jobcheck.scripts.frameworks.own_models.operations.results import as_int, as_tensor, is_tensor, multiply
from opsk_jobcheck.scripts.frameworks.own_models.packages import TENSORS
from opsk_jobcheck.scripts.frameworks.own_models.statements import iterate
from opsk_jobcheck.scripts.frameworks.own_models.tensors.tape import Tape
from opsk_jobcheck.scripts.frameworks.own_models.values import (
    ABSENT,
    ANY_SIZE,
    DATA,
    Choice,
    External,
    Frame,
    Module,
    Parameter,
    Tensor,
    list_options,
)

_OPERATORS: dict[type[ast.operator], str] = {
    **{ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div", ast.Pow: "pow", ast.FloorDiv: "floor_divide"},
    **{ast.Mod: "fmod"},
}
_FUNCTIONS = ("torch.", "torch.nn.functional.", "torch.special.", "torch.linalg.")
_ONLY_NUMBERS = frozenset({"item", "tolist", "numpy", "stride", "data_ptr", "element_size", "is_contiguous", "storage"})
_IN_PLACE = frozenset({"zero_", "fill_", "normal_", "uniform_", "copy_", "random_", "bernoulli_", "trunc_normal_"})
_PLAIN = frozenset({"data", "grad_fn", "real", "H"})
MAX_DEPTH_OF_ROWS = 3


class TensorValues(Calls):
    """Follows operations on tensors."""

    @property
    def notes(self) -> Tape:
        """The tape of the training step; outside of one, where nothing is saved, one that is empty."""
        return self.tape if self.tape is not None else Tape(saves=False)

    def combine(self, operator: ast.operator, left: Any, right: Any) -> Any:
        """Return the result of an operator."""
        if self.tape is not None and any(is_tensor(option) for x in (left, right) for option in list_options(x)):
            left, right = _join_options(self.tape, left), _join_options(self.tape, right)
        if self._computes(left, right):
            if isinstance(operator, ast.MatMult):
                return self._strip(
                    matrices.matmul(self.notes, as_tensor(self.notes, left), as_tensor(self.notes, right))
                )
            if (name := _OPERATORS.get(type(operator))) is not None:
                return self._strip(elements.combine(self.notes, name, left, right))
        return super().combine(operator, left, right)

    def _computes(self, *values: Any) -> bool:
        """Return whether an operation is computed: in a training step any on tensors, else one of known shapes."""
        rows = [value for value in values if isinstance(value, Tensor | Parameter)]
        if self.tape is not None:
            return bool(rows)
        return (
            bool(rows)
            and all(is_tensor(value) or isinstance(value, int | float) for value in values)
            and all(row.shape is not None for row in rows)
        )

    def _strip(self, value: Any) -> Any:
        """Return what an operation gives; outside of a training step tensors have no memory."""
        if self.tape is not None:
            return value
        if isinstance(value, list | tuple):
            return type(value)(self._strip(part) for part in value)
        if not isinstance(value, Tensor):
            return value
        return replace(value, storage=None, size=ANY_SIZE if value.shape is None else value.size)

    def _assign_again(self, statement: ast.AugAssign, frame: Frame) -> None:
        before = self.evaluate(statement.target, frame) if self.tape is not None else None
        super()._assign_again(statement, frame)
        if isinstance(before, Tensor) and self.tape is not None:
            after = self.evaluate(statement.target, frame)
            if isinstance(after, Tensor) and after.dtype == before.dtype:
                self.assign(statement.target, elements.put_in_place(self.tape, before, after), frame)

    def compare(self, operator: ast.cmpop, left: Any, right: Any) -> Any:
        """Return the result of a comparison; of tensors, one for each element."""
        if self.tape is None or not (is_tensor(left) or is_tensor(right)):
            return super().compare(operator, left, right)
        if isinstance(operator, ast.Is | ast.IsNot) and (left is None or right is None):
            return isinstance(operator, ast.IsNot)
        if isinstance(operator, ast.Is | ast.IsNot | ast.In | ast.NotIn):
            return super().compare(operator, left, right)
        return OPERATIONS["eq"](self.tape, Arguments([left, right], {}))

    def apply_sign(self, operator: ast.unaryop, value: Any) -> Any:
        """Return the result of an operator on one value."""
        if isinstance(operator, ast.Not) or not is_tensor(value) or not self._computes(value):
            return super().apply_sign(operator, value)
        rule = OPERATIONS["bitwise_not" if isinstance(operator, ast.Invert) else "neg"]
        return self._strip(rule(self.notes, Arguments([value], {})))

    # ---- indexes

    def take_part(self, owner: Any, part: ast.expr, frame: Frame) -> Any:
        """Return a part of a value."""
        if isinstance(owner, Tensor | Parameter) and (self.tape is not None or owner.shape is not None):
            items = part.elts if isinstance(part, ast.Tuple) else [part]
            tensor = as_tensor(self.notes, owner)
            return self._strip(
                indexing.index(self.notes, tensor, [self._evaluate_index(item, frame) for item in items])
            )
        return super().take_part(owner, part, frame)

    def _evaluate_index(self, node: ast.expr, frame: Frame) -> Any:
        if isinstance(node, ast.Slice):
            ends = (node.lower, node.upper, node.step)
            return indexing.Part(*(None if end is None else self.evaluate(end, frame) for end in ends))
        if isinstance(node, ast.Constant) and node.value is Ellipsis:
            return indexing.Dots()
        return self.evaluate(node, frame)

    def assign(self, target: ast.expr, value: Any, frame: Frame) -> None:
        """Set what a target names; an item of a tensor leaves a tensor under its name."""
        if isinstance(target, ast.Subscript) and self.tape is not None:
            owner = self.evaluate(target.value, frame)
            if isinstance(owner, Tensor):
                self._evaluate_index(target.slice, frame)
                if is_tensor(value) and isinstance(target.value, ast.Name | ast.Attribute):
                    self.assign(target.value, indexing.put(owner, as_tensor(self.tape, value)), frame)
                return
        if isinstance(value, Tensor) and isinstance(target, ast.Tuple | ast.List) and self.tape is not None:
            rows = unbind(value)
            value = rows if rows is not None else DATA
        if isinstance(value, Module) and isinstance(target, ast.Tuple | ast.List) and self.tape is not None:
            value = iterate(value) or DATA
        super().assign(target, value, frame)

    # ---- attributes and calls

    def get(self, owner: Any, name: str, frame: Frame) -> Any:
        """Return an attribute of a value."""
        if isinstance(owner, Tensor | Parameter):
            known = self._get_of_tensor(owner, name)
            return super().get(owner, name, frame) if known is ABSENT else known
        return super().get(owner, name, frame)

    def _get_of_tensor(self, owner: Tensor | Parameter, name: str) -> Any:
        tensor = as_tensor(self.notes, owner)
        if name == "shape":
            return DATA if tensor.shape is None else tuple(DATA if side is None else side for side in tensor.shape)
        if name == "ndim":
            return DATA if tensor.shape is None else len(tensor.shape)
        if name == "dtype":
            return External(f"torch.{tensor.dtype}") if tensor.dtype else DATA
        if name in ("T", "mT"):
            return self._strip(turn(tensor))
        if name == "requires_grad":
            return tensor.has_gradient
        if name == "is_cuda":
            return True
        return owner if name in _PLAIN else ABSENT

    def call_torch(self, name: str, positional: list[Any], keywords: dict[str, Any]) -> Any:
        """Return the result of a function of PyTorch or einops; ``ABSENT`` for one that is not computed."""
        last = name.rpartition(".")[2]
        rule = patterns.RULES.get(name) or recurrent.RULES.get(name)
        if rule is None and name.startswith(_FUNCTIONS) and name.rpartition(".")[0] + "." in _FUNCTIONS:
            rule = OPERATIONS.get(last)
        if name in patterns.LAYERS:
            return Module(name, layer=(patterns.LAYERS[name], Arguments(positional, keywords)))
        if rule is None or "?" in keywords:
            return ABSENT
        rows = [*positional, *keywords.values()]
        first = rows[0] if rows else None
        parts = first if isinstance(first, list | tuple) else rows[:1]
        if self.tape is None and last not in CREATIONS and not self._computes(*parts):
            return ABSENT
        if last in CREATIONS and last.endswith("_like") and not any(map(is_tensor, rows)):
            return ABSENT
        self._count_parts(rows)
        result = rule(self.notes, Arguments(positional, keywords))
        self._count_parts([result])
        if self.tape is None and TENSORS.fullmatch(name) and isinstance(result, Tensor):
            size = multiply_sizes(positional[:1] if last == "full" else positional, keywords)
            return replace(result, size=size, storage=None)
        return self._strip(result)

    def call_of_tensor(
        self, owner: Tensor | Parameter, name: str, positional: list[Any], keywords: dict[str, Any]
    ) -> Any:
        """Return the result of a method of a tensor; ``ABSENT`` for one that is not computed."""
        tape = self.notes
        tensor = as_tensor(tape, owner)
        if name == "size":
            return self._get_size(tensor, positional[0] if positional else keywords.get("dim"))
        if name in ("dim", "ndimension"):
            return DATA if tensor.shape is None else len(tensor.shape)
        if name in ("numel", "nelement"):
            total = multiply(tensor.shape) if tensor.shape is not None else None
            return DATA if total is None else total
        if name in _ONLY_NUMBERS:
            return DATA
        if name in _IN_PLACE:
            values = [as_tensor(tape, value) for value in positional if is_tensor(value)]
            return self._strip(indexing.put(tensor, values[0]) if values else tensor)
        if name == "requires_grad_":
            return self._strip(replace(tensor, has_gradient=not positional or positional[0] is True))
        is_function = name in CREATIONS - {"bernoulli"} and not name.startswith("new_")
        if (rule := OPERATIONS.get(name)) is None or is_function:
            return ABSENT
        result = rule(tape, Arguments([owner, *positional], keywords))
        self._count_parts([result])
        return self._strip(result)

    def _count_parts(self, values: Sequence[Any]) -> None:
        """Count steps for what an operation reads or makes of many parts."""
        self.steps += sum(len(value) for value in values if isinstance(value, list | tuple))
        self.take_step()

    def _get_size(self, tensor: Tensor, value: Any) -> Any:
        if tensor.shape is None:
            return DATA
        if value is None:
            return tuple(DATA if side is None else side for side in tensor.shape)
        axis = as_int(value)
        if axis is None or not -len(tensor.shape) <= axis < len(tensor.shape):
            return DATA
        side = tensor.shape[axis]
        return DATA if side is None else side


def _join_options(tape: Tape, value: Any) -> Any:
    """Return one value for one of several: a number for numbers, else a tensor."""
    if not isinstance(value, Choice):
        return value
    is_number = all(isinstance(option, int | float) for option in value.options)
    return value.options[0] if is_number else as_tensor(tape, value)


def list_tensors(value: Any, depth: int = 0) -> list[Tensor]:
    """Return the tensors in a value, in lists and tables too."""
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, Choice):
        value = list(list_options(value))
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple) and depth < MAX_DEPTH_OF_ROWS and len(value) <= 512:
        return [tensor for part in value for tensor in list_tensors(part, depth + 1)]
    return []
