"""What a Slurm record tells of a running job."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsk.costmodel.efficiency.default import DEFAULT
from opsk.costmodel.sizes.parameters import count_parameters
from opsk.costmodel.sizes.pipeline import build_stages
from opsk.costmodel.sizes.shape import build_shape
from opsk.costmodel.sizes.shares import compute_shares
from opsk.costmodel.table import PlanTable
from opsk.hardware.catalog import cluster
from opsk.planning.interference import load
from opsk.planning.interference.load import reconstruct_job
from opsk.workload.advice_record import AdviceRecord, Verdict
from opsk.workload.plan import Plan

SIZES = st.integers(1, 64)
AMOUNTS = st.floats(0, 1e300)


def record(**changes: object) -> AdviceRecord:
    values: dict[str, object] = {
        "verdict": Verdict.FITS, "tp": 8, "pp": 2, "dp": 4, "step_s": 20.0, "tokens_per_s_per_gpu": 819.2,
        "tflops": 400.0,
    }  # fmt: skip
    return AdviceRecord(**(values | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize("parameters", [1e9, 8e9, 70e9, 405e9])
def test_the_stand_in_has_the_size_that_the_speeds_imply(parameters: float) -> None:
    """tokens/s = FLOP/s over 6 FLOP a parameter; rounding to heads and layers leaves a tenth, embeddings one more."""
    entry = record(tflops=400.0, tokens_per_s_per_gpu=400e12 / 6 / parameters, tp=1, pp=1)
    model = load._stand_in(entry, 1, 1, [])
    table = PlanTable.of([Plan(tp=1, dp=1, global_batch=1)])
    shape = build_shape(model)
    shares = compute_shares(shape, table)
    counted = count_parameters(shape, shares, build_stages(shape, shares))
    embeddings = 2 * model.vocab * model.hidden
    assert float(counted.dense.max()) - embeddings == pytest.approx(parameters, rel=0.15)


def test_the_batch_follows_from_tokens_a_step() -> None:
    """819.2 tokens/s x 64 GPUs x 20 s = 2^20 tokens: 128 sequences of 8192, 32 for each of four replicas."""
    found = reconstruct_job(record(), 64, 8, None, DEFAULT)
    assert found is not None
    assert found.shape.plan.global_batch == 128


def test_on_a_known_cluster_the_step_is_the_recorded_one() -> None:
    found = reconstruct_job(record(), 64, 8, cluster("superpod-h100"), DEFAULT)
    assert found is not None
    assert found.shape.step.least_s == pytest.approx(20.0)
    assert found.guessed == ()


def test_without_a_cluster_the_links_come_on_top() -> None:
    found = reconstruct_job(record(), 64, 8, None, DEFAULT)
    assert found is not None
    assert found.shape.step.least_s == 20.0
    assert found.guessed == ("how much communication its computation hides",)


def test_what_is_guessed_is_said() -> None:
    found = reconstruct_job(record(step_s=None, tokens_per_s_per_gpu=None, tflops=None), 64, 8, None, DEFAULT)
    assert found is not None
    assert len(found.guessed) == 3


@pytest.mark.parametrize("changes", [{"tp": None}, {"dp": None}, {"dp": 5}, {"ep": 3}])
def test_a_record_without_a_plan_of_the_jobs_size_is_none(changes: dict[str, object]) -> None:
    assert reconstruct_job(record(**changes), 64, 8, None, DEFAULT) is None


@given(st.builds(record, tp=SIZES, pp=SIZES, dp=SIZES, step_s=AMOUNTS, tokens_per_s_per_gpu=AMOUNTS, tflops=AMOUNTS))
def test_no_record_can_do_harm(entry: AdviceRecord) -> None:
    """Whoever may write the comment may write anything."""
    gpus = (entry.tp or 1) * (entry.pp or 1) * (entry.dp or 1)
    found = reconstruct_job(entry, gpus, 8, cluster("superpod-h100"), DEFAULT)
    assert found is None or found.shape.plan.gpus == gpus
