"""Checkpoints: sizes against published ones, intervals against papers and against a search, what failures cost."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsk.costmodel.estimates.checkpoint import (
    GPU_HOURS_BETWEEN_FAILURES,
    CheckpointOptions,
    best_interval_s,
    checkpoint_bytes,
    compute_checkpoint,
    lost_fraction,
)
from opsk.costmodel.sizes.parameters import total_parameters
from opsk.errors import InputError
from opsk.hardware.catalog import cluster as catalogue_cluster
from opsk.hardware.spec import ClusterSpec
from opsk.workload.model import ModelShape
from opsk.workload.plan import Optimizer, Plan, Precision, States
from tests.fakes.training_runs import gpt

PLAN = Plan(global_batch=1)


@pytest.mark.parametrize(
    ("changes", "bytes_per_parameter"),
    [
        ({}, 14.0),
        ({"states": States.MIXED_16BIT_GRADIENTS}, 14.0),
        ({"states": States.AUTOCAST}, 12.0),
        ({"states": States.PURE_16BIT}, 6.0),
        ({"precision": Precision.FP32}, 12.0),
        ({"optimizer": Optimizer.SGD}, 10.0),
        ({"optimizer": Optimizer.ADAFACTOR}, 6.0),
        # weights 2 and half of 12
        ({"frozen_fraction": 0.5}, 8.0),
    ],
)
def test_gradients_are_not_written_and_the_rest_is(
    gpt3: ModelShape, changes: dict[str, object], bytes_per_parameter: float
):
    plan = replace(PLAN, **changes)  # type: ignore[arg-type]
    assert checkpoint_bytes(gpt3, plan) / total_parameters(gpt3) == pytest.approx(bytes_per_parameter)


def test_published_sizes_are_met():
    """GPT-1T 13.8 TB (Narayanan et al. 2021, section 5.10), BLOOM-176B 2.3 TB (its model card); both from memory.

    The units of neither are certain (TB or TiB), so 8 % are allowed.
    """
    trillion = gpt(layers=128, hidden=25600, heads=160)
    bloom = gpt(layers=70, hidden=14336, heads=112, vocab=250880)
    assert checkpoint_bytes(trillion, PLAN) == pytest.approx(13.8e12, rel=0.08)
    assert checkpoint_bytes(bloom, PLAN) == pytest.approx(2.3e12, rel=0.08)


def test_of_lora_only_the_adapters_are_written(llama3_8b: ModelShape):
    # a layer of k inputs and n outputs has r (k + n): q, o 4096 + 4096; k, v 4096 + 1024; three of 4096 + 14336
    adapters = 16 * 32 * (2 * 8192 + 2 * 5120 + 3 * 18432)
    assert checkpoint_bytes(llama3_8b, replace(PLAN, lora_rank=16)) == pytest.approx(14 * adapters)


def test_writing_takes_the_slower_of_file_system_and_nodes(gpt3: ModelShape):
    cluster = catalogue_cluster("superpod-h100")
    plan = Plan(tp=8, pp=8, dp=2, global_batch=64)
    size = checkpoint_bytes(gpt3, plan)
    slow = compute_checkpoint(gpt3, plan, cluster, CheckpointOptions(write_bytes_per_s=10e9))
    assert slow.write_s == slow.stall_s == pytest.approx(size / 10e9)
    fast = compute_checkpoint(gpt3, plan, cluster, CheckpointOptions(write_bytes_per_s=1e15))
    # 16 nodes, 2 storage ports of 50 GB/s each, of which 80 % are reached
    assert fast.write_s == pytest.approx(size / (16 * 2 * 50e9 * 0.8))
    stated = compute_checkpoint(gpt3, plan, cluster, CheckpointOptions(node_write_bytes_per_s=1e9))
    assert stated.write_s == pytest.approx(size / 16e9)


def test_an_asynchronous_checkpoint_stalls_for_its_copy_alone(gpt3: ModelShape, cluster: ClusterSpec):
    plan = Plan(tp=8, pp=8, dp=2, global_batch=64)
    options = CheckpointOptions(write_bytes_per_s=10e9, asynchronous=True)
    behind = compute_checkpoint(gpt3, plan, cluster, options)
    aside = compute_checkpoint(gpt3, plan, cluster, replace(options, asynchronous=False))
    # 128 GPUs copy their shares at 80 % of 32 GB/s
    assert behind.stall_s == pytest.approx(behind.size_bytes / 128 / (0.8 * 32e9))
    assert behind.write_s == aside.write_s
    assert behind.lost_fraction < aside.lost_fraction
    # the next one cannot start before this one is written
    assert behind.best_interval_s >= behind.write_s


def test_failures_come_as_often_as_llama_3_had_them():
    # 419 in 54 days on 16,384 GPUs: one in 3.09 hours
    hours = GPU_HOURS_BETWEEN_FAILURES / 16_384
    assert hours == pytest.approx(3.09, abs=0.005)


def test_the_best_interval_is_that_of_young_and_daly():
    # 60 s and 3 h: sqrt(2 x 60 x 10800) = 1138.4; x (1 + sqrt(60/21600)/3 + 60/21600/9) - 60 = 1098.8
    assert math.sqrt(2 * 60 * 10_800) == pytest.approx(1138.4, abs=0.1)
    assert best_interval_s(60, 10_800) == pytest.approx(1098.8, abs=0.1)
    # where writing takes longer than the machine holds, one checkpoint for each failure
    assert best_interval_s(30_000, 10_800) == 10_800


@given(stall=st.floats(0.1, 600), mtbf=st.floats(3600, 3e6), restart=st.floats(1, 3600))
def test_no_other_interval_loses_less(stall: float, mtbf: float, restart: float):
    """Daly's interval is an expansion: within 0.1 % of the least loss of a search over 400 intervals."""
    found = lost_fraction(best_interval_s(stall, mtbf), stall, mtbf, restart)
    searched = min(lost_fraction(stall * 1.05**step, stall, mtbf, restart) for step in range(400))
    assert 0 < found < 1
    assert found <= searched + 1e-3


def test_the_loss_is_that_of_its_first_order_where_failures_are_rare():
    # 10 / 1000 + (1000 + 10) / 2e7 + 60 / 1e7, to first order: writing over the interval and itself
    assert lost_fraction(1000, 10, 1e7, 60) == pytest.approx(10 / 1010 + 1010 / 2e7 + 60 / 1e7, rel=1e-2)
    # never ending work loses everything, and does not overflow
    assert lost_fraction(1e9, 1, 1, 1) == 1


def test_every_impossible_option_is_named():
    with pytest.raises(InputError) as caught:
        CheckpointOptions(write_bytes_per_s=-1.0, interval_s=math.nan, mtbf_s=math.inf, restart_s=0.0)
    for name in ("write_bytes_per_s is -1.0", "interval_s is nan", "mtbf_s is inf", "restart_s is 0.0"):
        assert name in caught.value.message


@pytest.mark.parametrize("rate", [5e-324, 1e-7, 1e19])
def test_a_rate_with_which_no_time_is_a_finite_number_is_refused(rate: float) -> None:
    with pytest.raises(InputError, match="node_write_bytes_per_s"):
        CheckpointOptions(node_write_bytes_per_s=rate)
