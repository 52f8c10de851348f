"""Do offsets multiply times and memory, and leave all else as it is?"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from opsk.costmodel.efficiency.cases import SoftwareOffset, find_offset
from opsk.costmodel.efficiency.efficiency import Efficiency
from opsk.costmodel.predict import predict, predict_one
from opsk.costmodel.table import PlanTable
from opsk.workload.plan import Plan, Software
from tests.fakes.training_runs import a100_cluster, gpt

MODEL = gpt(layers=24, hidden=2048, heads=16, seq=2048)
PLAN = Plan(tp=2, dp=4, micro_batch=1, global_batch=32, software=Software.PYTORCH)
PLAIN = Efficiency()
SLOW = replace(PLAIN, offset={"pytorch": SoftwareOffset(time_log=math.log(1.25), memory_log=math.log(1.1))})


def test_times_and_memory_of_the_family_are_multiplied() -> None:
    plain, slow = (predict_one(MODEL, PLAN, a100_cluster(), each) for each in (PLAIN, SLOW))
    assert slow.time.step_s.expected == pytest.approx(1.25 * plain.time.step_s.expected)
    assert slow.time.mfu.expected == pytest.approx(plain.time.mfu.expected / 1.25)
    assert sum(slow.time.components.values()) == pytest.approx(slow.time.step_s.expected)
    assert slow.memory.total_bytes.high == pytest.approx(1.1 * plain.memory.total_bytes.high)
    assert sum(slow.memory.components.values()) == pytest.approx(slow.memory.total_bytes.expected)
    assert slow.memory.fit_probability < plain.memory.fit_probability


def test_other_families_are_left_alone() -> None:
    plans = PlanTable.of([PLAN, replace(PLAN, software=Software.DEEPSPEED)])
    plain, slow = (predict(MODEL, plans, a100_cluster(), each).time.step_s.expected for each in (PLAIN, SLOW))
    assert np.asarray(slow / plain) == pytest.approx([1.25, 1.0])


def test_the_one_of_all_others_holds_where_a_family_has_none() -> None:
    both = {"": SoftwareOffset(time_log=0.1), "pytorch": SoftwareOffset(time_log=0.2)}
    assert find_offset(both, "pytorch") == both["pytorch"]
    assert find_offset(both, "deepspeed") == both[""]
    assert find_offset({}, "deepspeed") is None
