"""TITAN's experiment: GPT-3 175B on A100 nodes with 8, 4, 2 and 1 HDR HCAs.

SK Telecom's talk (OCP 2023) prints 32,209, 32,492, 37,105 and 50,368 ms an iteration: 1.00, 1.01, 1.15 and 1.56. It
states neither plan, batch nor number of GPUs. Assumed here: 128 GPUs, TP8 PP8 DP2, no ZeRO, micro-batches of one
sequence of 2,048, fp16, full recomputation, the settings of the Megatron-LM papers on the same hardware.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from opsk.costmodel.predict import predict
from opsk.costmodel.table import FloatColumn, PlanTable
from opsk.hardware import catalog
from opsk.workload.plan import Plan, Precision, Recompute, Software
from tests.fakes.training_runs import gpt

GPT3 = gpt(layers=96, hidden=12288, heads=96)
BATCHES = tuple(range(16, 257, 2))
PLAN = Plan(
    tp=8,
    pp=8,
    dp=2,
    global_batch=BATCHES[0],
    precision=Precision.FP16,
    recompute=Recompute.FULL,
    software=Software.MEGATRON,
)


@pytest.fixture(scope="module")
def step_s() -> FloatColumn:
    """Step times, one row for 8, 4, 2 and 1 HCAs, one column a batch [s]."""
    titan = catalog.cluster("titan")
    plans = PlanTable.of([replace(PLAN, global_batch=batch) for batch in BATCHES])
    return np.array(
        [
            predict(GPT3, plans, replace(titan, node=replace(titan.node, nics=nics))).time.step_s.expected
            for nics in (8, 4, 2, 1)
        ]
    )


def test_fewer_nics_are_slower_and_the_last_ones_matter_most(step_s: FloatColumn):
    # whatever the batch
    lost_s = np.diff(step_s, axis=0)
    assert (lost_s >= 0).all()
    assert (np.diff(lost_s, axis=0) > 0).all()
    # half of the NICs cost little, as the talk says of 4
    assert (step_s[1] / step_s[0] < 1.1).all()


def test_some_batch_gives_the_ratios_of_the_talk(step_s: FloatColumn):
    # in 1.00 to 1.05, 1.05 to 1.30 and 1.3 to 2.0 for 4, 2 and 1; the batch is free since it is not printed. The ring
    # of gradients and messages between stages alone need a batch of some 30 for that, whose step is far below 32 s:
    # what else crossed TITAN's NICs is not known
    four, two, one = step_s[1:] / step_s[0]
    matching = (four <= 1.05) & (two >= 1.05) & (two <= 1.30) & (one >= 1.3) & (one <= 2.0)
    assert matching.any(), dict(zip(BATCHES, zip(four, two, one, strict=True), strict=True))
