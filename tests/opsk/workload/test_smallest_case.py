"""The smallest memory of a job: 8 bytes a parameter where weights, gradients and Adam's two moments have 16 bits."""

from __future__ import annotations

import pytest

from opsk.workload.model import StatedModel
from opsk.workload.plan import Recompute, StatedPlan
from opsk.workload.smallest_case import CHECKED, find_smallest_case
from opsk.workload.workload import Unknown, Workload


def workload(framework: str = "hf-trainer", *, unknown: tuple[str, ...] = ("model.seq",), **options: str) -> Workload:
    """Return a job on 8 GPUs; options by name, underscores for dots."""
    named = {name.replace("_", "."): value for name, value in options.items()}
    return Workload(
        framework=framework,
        model=StatedModel(name="llama-2-13b"),
        plan=StatedPlan(nodes=1, gpus_per_node=8, gpus=8),
        options=tuple({CHECKED: "true", **named}.items()),
        unknown=tuple(Unknown(field=field, why="it is computed", file="job.sh") for field in unknown),
    )


def test_what_only_adds_to_memory_is_as_small_as_it_may_be() -> None:
    found = find_smallest_case(workload(unknown=("model.seq", "plan.micro_batch", "plan.precision")))
    assert found is not None
    plan = found[0].plan
    assert plan is not None
    assert (plan.micro_batch, plan.recompute, plan.states.value) == (1, Recompute.FULL, "pure-16bit")


@pytest.mark.parametrize(
    "case",
    [
        workload("trl"),  # not a framework that states all that lowers memory
        workload(unknown=("plan.sharding",)),
        workload(unknown=("model.layers",)),
        workload(trainable="unknown: part of the model is frozen"),
        workload(adapters="lora"),
        workload(roles_method="dpo"),
    ],
)
def test_nothing_follows_where_something_may_lower_the_memory(case: Workload) -> None:
    assert find_smallest_case(case) is None
