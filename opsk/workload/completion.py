"""Which framework defaults turn a stated workload into one that can be predicted?

What a script leaves open is filled with the framework's own default and listed, so that a reader of the advice sees
what was assumed and why. What has no default (the number of layers, say) stays missing, and no prediction is made.
"""

from __future__ import annotations

from dataclasses import dataclass

from opsk.workload.model import ModelShape
from opsk.workload.plan import Plan
from opsk.workload.workload import Problem


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumption:
    """A value that nobody stated: dotted ``field``, the ``value`` taken, and ``why`` that one."""

    field: str
    value: object
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """A workload made ready for the cost model.

    ``model`` and ``plan`` are ``None`` when ``missing`` (dotted field names without which nothing can be predicted) or
    ``problems`` (rules that the stated values break) stand in the way.
    """

    model: ModelShape | None
    plan: Plan | None
    assumed: tuple[Assumption, ...] = ()
    missing: tuple[str, ...] = ()
    problems: tuple[Problem, ...] = ()
