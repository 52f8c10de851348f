"""Finds the one or two values that a script must state for a verdict, with an example of each."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from opsk.workload.completion import Completion
from opsk.workload.model import StatedModel
from opsk.workload.plan import StatedPlan
from opsk.workload.public_models.lookup import public_model
from opsk.workload.workload import Evidence, Workload
from opsk_jobcheck.scripts.frameworks.own_program.program import OWN_PROGRAMS
from opsk_jobcheck.scripts.sbatch.statements import Statements, apply_statements

MAX_REQUESTED = 2
"""A user can add a line with two values; nobody answers a longer list."""
USUAL_LENGTH, MAX_EXAMPLE_LENGTH = 2048, 4096
_SHAPE = frozenset({"model.layers", "model.hidden", "model.heads"})
_BATCH = re.compile(r"(\d{1,7}) may be the batch of ")
_STEPS = 8
"""Steps of accumulation in an example of a global batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingValue:
    """A value that the script does not state: its dotted ``field``, and an example of it for this job."""

    field: str
    example: int | str

    @property
    def statement(self) -> str:
        """The words of an ``#OPSK`` line that state the example."""
        return f"{self.field.partition('.')[2]}={self.example}"


def find_missing_values(workload: Workload, completion: Completion) -> tuple[MissingValue, ...]:
    """Return the missing values of a workload with examples; none where there are more than a user would state.

    Of a program that no reader knows, none is a part of the shape: its model may have no such value, as one without
    attention has no heads.
    """
    names = sorted(completion.missing, key=lambda name: name.startswith("plan."))
    if workload.framework in OWN_PROGRAMS and not _SHAPE.isdisjoint(names):
        return ()
    if not names or len(names) > MAX_REQUESTED or not all(name in _EXAMPLES for name in names):
        return ()
    return tuple(MissingValue(field=name, example=_EXAMPLES[name](workload)) for name in names)


def state_values(workload: Workload, values: tuple[MissingValue, ...]) -> Workload:
    """Return the workload as it is with an ``#OPSK`` line that states these values."""

    def select(prefix: str) -> dict[str, int | str]:
        return {value.field.removeprefix(prefix): value.example for value in values if value.field.startswith(prefix)}

    evidence = tuple(
        Evidence(field=value.field, value=value.example, file="", line=0, text=value.statement) for value in values
    )
    statements = Statements(
        model=StatedModel(**select("model.")),  # type: ignore[arg-type]
        plan=StatedPlan(**select("plan.")),  # type: ignore[arg-type]
        evidence=evidence,
    )
    return apply_statements(workload, statements)


def _example_length(workload: Workload) -> int:
    """Return the length that a public model was trained with, as far as a fine-tuning run would use it."""
    shape = public_model(workload.model.name or "")
    return min(shape.seq, MAX_EXAMPLE_LENGTH) if shape is not None and shape.seq else USUAL_LENGTH


def _example_micro_batch(workload: Workload) -> int:
    """Return the batch that the script names, where it may be that of one GPU."""
    reason = next((entry.why for entry in workload.unknown if entry.field == "plan.micro_batch"), "")
    named = _BATCH.search(reason)
    return max(1, int(named[1])) if named else 1


def _example_global_batch(workload: Workload) -> int:
    """Return a batch of a few micro-batches on each replica."""
    plan = workload.plan
    gpus = plan.gpus or (plan.nodes or 1) * (plan.gpus_per_node or 1)
    replicas = plan.dp or max(1, gpus // ((plan.tp or 1) * (plan.pp or 1) * (plan.cp or 1)))
    return (plan.micro_batch or 1) * replicas * _STEPS


def _example_gpus(workload: Workload) -> int:
    """Return the GPUs of the nodes, eight each where the script does not say."""
    return (workload.plan.nodes or 1) * (workload.plan.gpus_per_node or 8)


def _example_heads(workload: Workload) -> int:
    """Return heads of the usual width."""
    return max(1, (workload.model.hidden or 4096) // 128)


_EXAMPLES: Mapping[str, Callable[[Workload], int | str]] = {
    "model.layers": lambda _: 32,
    "model.hidden": lambda workload: (workload.model.heads or 32) * 128,
    "model.heads": _example_heads,
    "model.seq": _example_length,
    "model.vocab": lambda _: 32000,
    "plan.micro_batch": _example_micro_batch,
    "plan.global_batch": _example_global_batch,
    "plan.nodes": lambda _: 1,
    "plan.gpus_per_node": lambda _: 8,
    "plan.gpus": _example_gpus,
    "plan.tp": lambda _: 1,
    "plan.pp": lambda _: 1,
    "plan.cp": lambda _: 1,
    "plan.ep": lambda _: 1,
    "plan.dp": lambda workload: workload.plan.gpus or 1,
}
"""An example of each value that a user can state, from what else the script says."""
