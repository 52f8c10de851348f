"""Lists the functions of PyTorch, and the methods of its tensors, that are computed."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from opsk_jobcheck.scripts.frameworks.own_models.operations import (
    attention,
    axis_rules,
    creation,
    elements,
    indexing,
    losses,
    matrices,
    norms,
    reductions,
    windows,
)
from opsk_jobcheck.scripts.frameworks.own_models.operations.results import Rule

OPERATIONS: Mapping[str, Rule] = MappingProxyType(
    {
        **axis_rules.RULES,
        **elements.RULES,
        **matrices.RULES,
        **reductions.RULES,
        **norms.RULES,
        **windows.RULES,
        **losses.RULES,
        **creation.RULES,
        **indexing.RULES,
        **attention.RULES,
    }
)
"""Rules by the last part of a name: ``torch.matmul``, ``torch.nn.functional.relu``, ``Tensor.view``."""
CREATIONS = frozenset(creation.RULES)
"""Functions that need no tensor to make one."""
