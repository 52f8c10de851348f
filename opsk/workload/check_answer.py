"""Converts an answer of ``opsk check`` into a model and a plan for the cost model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter, ValidationError

from opsk.errors import OpskError
from opsk.workload.completion import Completion, complete
from opsk.workload.model import StatedModel
from opsk.workload.plan import StatedPlan
from opsk.workload.workload import Workload


def complete_answer(document: Mapping[str, Any]) -> Completion | None:
    """Return the workload of an answer with its framework's defaults; ``None`` where it has none or is invalid."""
    stated = document.get("workload")
    if not isinstance(stated, Mapping):
        return None
    try:
        return complete(
            Workload(
                framework=TypeAdapter(str).validate_python(stated.get("framework"), strict=True),
                model=TypeAdapter(StatedModel).validate_python(stated.get("model")),
                plan=TypeAdapter(StatedPlan).validate_python(stated.get("plan")),
            )
        )
    except (ValidationError, OpskError, ValueError):
        return None
