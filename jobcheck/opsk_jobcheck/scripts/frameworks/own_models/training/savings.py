"""Names what makes a training step save less than the operations of its forward pass do."""

from __future__ import annotations

import re

from opsk_jobcheck.scripts.frameworks.own_models.files import Files
from opsk_jobcheck.scripts.frameworks.own_models.operations.elements import get_dtype
from opsk_jobcheck.scripts.frameworks.own_models.values import Choice, External, Module, Parameter

SAVES_LESS = re.compile(
    r"DataParallel|checkpoint_wrapper|apply_activation_checkpointing|compile|script|trace|save_on_cpu|saved_tensors_hooks"
    r"|gradient_checkpointing_enable|enable_gradient_checkpointing|set_grad_checkpointing|checkpoint_sequential|optimize"
)
"""Functions that split batches, compute parts again, fuse operations, or move what is saved away from the GPU."""
_CASTS = {"half": "float16", "bfloat16": "bfloat16", "double": "float64", "float": "float32"}
MAX_DEPTH = 64


def may_freeze(files: Files) -> bool:
    """Return whether a program may have weights that are not trained."""
    return any(
        "requires_grad" in file.digest.changed
        or any(("requires_grad_", False) in calls for calls in file.digest.calls.values())
        for file in files.rows
    )


def find_type(name: str, positional: list[object], keywords: dict[str, object]) -> str | None:
    """Return the type to which a method casts a module; ``None`` for none, and nothing where it is not known."""
    if name in _CASTS:
        return _CASTS[name]
    values = [*positional, *(value for key, value in keywords.items() if key == "dtype")]
    if name == "to" and (kinds := [get_dtype(value) for value in values if isinstance(value, External)]) and any(kinds):
        return next(kind for kind in kinds if kind)
    return "" if name == "to" and "dtype" in keywords else None


def list_weights(value: object, depth: int = 0) -> list[Parameter]:
    """Return the weights of a module."""
    if isinstance(value, Parameter):
        return [value]
    if isinstance(value, Choice):
        return [weight for option in value.options for weight in list_weights(option, depth + 1)]
    if not isinstance(value, Module) or depth > MAX_DEPTH:
        return []
    return [weight for part in (*value.attributes.values(), *value.parts) for weight in list_weights(part, depth + 1)]
