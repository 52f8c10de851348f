from __future__ import annotations

import re

from opsk.costmodel.predict import predict
from opsk.costmodel.table import PlanTable
from opsk.planning.search.result import why_refused
from opsk.workload.plan import Plan
from tests.opsk.planning.search.small_requests import request


def why(gpu_bytes: float) -> tuple[str, float, dict[str, float]]:
    """Return the words, and the numbers that they are about."""
    asked = request(gpu_bytes=gpu_bytes)
    table = predict(asked.model, PlanTable.of([Plan(dp=8, global_batch=16)]), asked.cluster, asked.efficiency)
    components = {name: float(part[0]) for name, part in table.memory.components.items()}
    return why_refused(table.memory, asked.cluster), float(table.memory.needed_bytes.expected[0]), components


def test_what_lacks_is_needed_less_capacity():
    words, needed, _ = why(4 * 2**30)
    lacking = float(re.findall(r"([0-9.]+) GiB more than there is", words)[0])
    assert abs(lacking - (needed / 2**30 - 4)) <= 0.05 + 1e-9  # one decimal is shown


def test_the_two_largest_parts_are_named_in_order():
    words, _, components = why(4 * 2**30)
    largest = sorted(components, key=components.__getitem__, reverse=True)[:2]
    assert re.search(rf"\({largest[0]} [0-9.]+ [GM]iB, {largest[1]} [0-9.]+ [GM]iB\)", words)


def test_a_plan_that_only_just_fits_is_said_to_be_close():
    _, needed, _ = why(4 * 2**30)
    words, _, _ = why(needed * 1.001)
    assert "too close to be likely to run" in words
    assert "more than there is" not in words
