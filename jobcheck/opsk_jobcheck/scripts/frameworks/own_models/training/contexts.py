"""Follows blocks that compute no gradients, or in another type."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import Any

from opsk_jobcheck.scripts.frameworks.own_models.machine import Flow
from opsk_jobcheck.scripts.frameworks.own_models.operations.elements import get_dtype
from opsk_jobcheck.scripts.frameworks.own_models.training.tensor_values import TensorValues
from opsk_jobcheck.scripts.frameworks.own_models.values import DATA, OPEN, External, Frame, Partial, list_options

WITHOUT_GRADIENTS = ("no_grad", "inference_mode")


class Contexts(TensorValues):
    """Follows what ``with`` enters."""

    def _follow_block(self, statement: ast.stmt, frame: Frame) -> Flow:
        if self.tape is None or not isinstance(statement, ast.With | ast.AsyncWith):
            return super()._follow_block(statement, frame)
        saves, autocast = self.tape.saves, self.tape.autocast
        types = [autocast]
        for item in statement.items:
            types = self._enter(item.context_expr, frame) or types
        try:
            return self._follow_as(types, lambda: super(Contexts, self)._follow_block(statement, frame))
        finally:
            self.notes.saves, self.notes.autocast = saves, autocast

    def _follow_as(self, types: Sequence[str], action: Callable[[], Flow]) -> Flow:
        """Follow statements under autocast in a type; where it is not known whether in one, either way."""

        def follow(kind: str) -> Flow:
            self.notes.autocast = kind
            return action()

        if len(types) == 1:
            return follow(types[0])
        return self.branch(lambda: follow(types[0]), lambda: follow(types[1]))

    def _enter(self, node: ast.expr, frame: Frame) -> list[str]:
        """Follow the beginning of ``with torch.no_grad():`` and its like; return the types that autocast may have."""
        if self.tape is None:
            return []
        if not isinstance(node, ast.Call):
            return self._enter_value(self.evaluate(node, frame))
        function = self.evaluate(node.func, frame)
        name = function.name.rpartition(".")[2] if isinstance(function, External) else getattr(node.func, "attr", "")
        positional, keywords = self._evaluate_arguments(node, frame)
        if name in WITHOUT_GRADIENTS or (name == "set_grad_enabled" and positional == [False]):
            self.tape.saves = False
        elif name == "enable_grad":
            self.tape.saves = True
        if name == "autocast" and not isinstance(
            function, External
        ):  # of accelerate or Lightning: if any was asked for
            return ["", "float16"]
        return list_autocast(positional, keywords) if name == "autocast" else []

    def _enter_value(self, value: Any) -> list[str]:
        """Return the types that autocast may have by a value that was made before (``with ctx:``)."""
        types: list[str] = []
        for option in list_options(value):
            is_autocast = isinstance(option, Partial) and getattr(option.function, "name", "").endswith("autocast")
            if is_autocast:
                types += list_autocast(option.positional, dict(option.keywords))
            else:
                types += [self.notes.autocast, *(["float16"] if option is DATA or option is OPEN else [])]
        return sorted(set(types))[:2]


def list_autocast(positional: Sequence[Any], keywords: dict[str, Any]) -> list[str]:
    """Return the types in which autocast may compute by its arguments; 16-bit types are alike in memory."""
    enabled = keywords.get("enabled", next((value for value in positional if isinstance(value, bool)), True))
    if enabled is False:
        return [""]
    named = [get_dtype(value) for value in (keywords.get("dtype"), *positional) if isinstance(value, External)]
    kind = next((kind for kind in named if kind), "float16")
    return [kind] if enabled is True else ["", kind]
