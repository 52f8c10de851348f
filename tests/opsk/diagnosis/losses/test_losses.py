"""Do the parts add up to the gap, whatever nodes are called, however ranks are numbered, whatever a second is?"""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsk.diagnosis.losses.losses import compute_losses
from opsk.diagnosis.losses.observation import (
    GpuActivity,
    HostActivity,
    MeasuredStep,
    Observation,
    OtherPlan,
    Pause,
    Prediction,
)
from opsk.diagnosis.losses.values import Cause
from tests.fakes.losing_causes import HURT, simulated
from tests.fakes.observed_jobs import observed

causes = st.lists(st.sampled_from(sorted(HURT)), max_size=3, unique=True)
seeds = st.integers(min_value=0, max_value=10_000)


@given(seed=seeds, hurt=causes)
def test_shares_add_up_to_the_gap(seed: int, hurt: list[str]) -> None:
    losses = compute_losses(observed(simulated(seed, *hurt)))
    assert losses.gap is not None
    assert losses.mean_step_s is not None
    assert losses.reachable_step_s is not None
    assert sum(finding.share for finding in losses.findings) == pytest.approx(losses.gap, abs=1e-9)
    assert losses.gap == pytest.approx(1 - losses.reachable_step_s / losses.mean_step_s, abs=1e-9)
    assert 0 <= losses.gap < 1
    assert all(0 < finding.share < 1 and 0 <= finding.confidence <= 1 for finding in losses.findings)


@given(seed=seeds, hurt=causes)
def test_names_of_nodes_and_numbers_of_ranks_decide_nothing(seed: int, hurt: list[str]) -> None:
    seen = observed(simulated(seed, *hurt))
    names = [host.node for host in seen.hosts]
    other = dict(zip(names, random.Random(seed).sample(names, len(names)), strict=True))
    gpus = [replace(gpu, node=other[gpu.node], rank=None) for gpu in seen.gpus]
    random.Random(seed).shuffle(gpus)
    moved = replace(
        seen,
        gpus=tuple(gpus),
        ports=tuple(replace(port, node=other[port.node]) for port in reversed(seen.ports)),
        hosts=tuple(replace(host, node=other[host.node]) for host in seen.hosts),
    )
    before, after = compute_losses(seen), compute_losses(moved)
    assert [each.cause for each in before.findings] == [each.cause for each in after.findings]
    assert [each.share for each in before.findings] == pytest.approx([each.share for each in after.findings])
    for one, two in zip(before.findings, after.findings, strict=True):
        node = one.where.partition(" ")[0]
        if node in other and "other" not in one.where:
            assert two.where.partition(" ")[0] == other[node]


@given(seed=seeds, hurt=causes, factor=st.sampled_from([1e-3, 0.25, 60.0, 1e3]))
def test_a_unit_of_time_decides_nothing(seed: int, hurt: list[str], factor: float) -> None:
    seen = observed(simulated(seed, *hurt))
    before, after = compute_losses(seen), compute_losses(scaled(seen, factor))
    assert [each.cause for each in before.findings] == [each.cause for each in after.findings]
    assert [each.share for each in before.findings] == pytest.approx([each.share for each in after.findings])
    assert before.gap == pytest.approx(after.gap)
    assert before.is_within_error == after.is_within_error


def scaled(seen: Observation, factor: float) -> Observation:
    """Return the same job in another unit of time."""
    predicted = seen.prediction
    assert predicted is not None
    return replace(
        seen,
        prediction=replace(
            predicted,
            low_s=factor * predicted.low_s,
            step_s=factor * predicted.step_s,
            high_s=factor * predicted.high_s,
            components={name: factor * seconds for name, seconds in predicted.components.items()},
            network={
                name: replace(axis, total_s=factor * axis.total_s, window_s=factor * axis.window_s)
                for name, axis in predicted.network.items()
            },
            others=tuple(replace(other, step_s=factor * other.step_s) for other in predicted.others),
        ),
        steps=tuple(
            replace(step, seconds=factor * step.seconds, at_s=None if step.at_s is None else factor * step.at_s)
            for step in seen.steps
        ),
    )


TEN_PERCENT = Prediction(low_s=9.0, step_s=10.0, high_s=11.0, mfu=0.4)


def steps(*seconds: float) -> tuple[MeasuredStep, ...]:
    return tuple(MeasuredStep(iteration=number, seconds=each) for number, each in enumerate(seconds))


def test_too_few_steps_say_nothing() -> None:
    losses = compute_losses(Observation(prediction=TEN_PERCENT, steps=steps(12, 12)))
    assert (losses.gap, losses.findings, losses.expected_step_s) == (None, (), 10.0)


def test_as_fast_as_predicted_is_no_gap() -> None:
    losses = compute_losses(Observation(prediction=TEN_PERCENT, steps=steps(*[10.0] * 10)))
    assert (losses.gap, losses.findings, losses.is_within_error) == (0, (), True)
    assert losses.measured_mfu == pytest.approx(0.4)


def test_a_gap_without_evidence_is_unknown_and_said_to_be() -> None:
    """12.5 s for 10: a fifth of the time, beyond the 11 s that the prediction's error allows."""
    losses = compute_losses(Observation(prediction=TEN_PERCENT, steps=steps(*[12.5] * 10)))
    assert losses.gap == pytest.approx(0.2)
    assert not losses.is_within_error
    assert [each.cause for each in losses.findings] == [Cause.UNKNOWN]
    assert "nothing that is observed explains it" in losses.findings[0].text
    assert losses.measured_mfu == pytest.approx(0.4 * 10 / 12.5)


def test_a_gap_within_the_error_is_nobodys_fault() -> None:
    losses = compute_losses(Observation(prediction=TEN_PERCENT, steps=steps(*[10.5] * 10)))
    assert losses.is_within_error
    assert "nothing to blame" in losses.findings[0].text


def test_the_slow_gpu_is_the_one_that_is_active_for_longer() -> None:
    """All others wait in a collective: busy too, but with few multiprocessors at work."""
    gpus = [GpuActivity(node=f"n{gpu // 8}", index=gpu % 8, busy=0.99, sm_active=0.6) for gpu in range(32)]
    gpus[13] = replace(gpus[13], sm_active=0.75)
    losses = compute_losses(Observation(prediction=TEN_PERCENT, steps=steps(*[12.5] * 10), gpus=tuple(gpus)))
    assert (losses.findings[0].cause, losses.findings[0].where) == (Cause.STRAGGLER, "n1 gpu 5")


def test_a_gpu_without_kernels_while_others_spin_is_slow_and_one_less_active_is_not() -> None:
    gpus = [GpuActivity(node=f"n{gpu // 8}", index=gpu % 8, busy=0.98, sm_active=0.6) for gpu in range(32)]
    starved = [*gpus[:-1], replace(gpus[-1], busy=0.8)]
    lazy = [*gpus[:-1], replace(gpus[-1], sm_active=0.45)]
    for given_gpus, expected in ((starved, [Cause.STRAGGLER]), (lazy, [])):
        losses = compute_losses(Observation(steps=steps(*[12.5] * 10), gpus=tuple(given_gpus)))
        assert [each.cause for each in losses.findings] == expected


def test_idle_gpus_are_not_blamed_on_input_where_hosts_are_at_rest() -> None:
    gpus = tuple(GpuActivity(node="n0", index=gpu, busy=0.7) for gpu in range(8))
    seen = Observation(prediction=TEN_PERCENT, steps=steps(*[12.5] * 10), gpus=gpus)
    resting = replace(seen, hosts=(HostActivity(node="n0", cpu_busy=0.2, io_stalled=0.0),))
    starved = replace(seen, hosts=(HostActivity(node="n0", cpu_busy=0.2, io_stalled=0.5),))
    assert compute_losses(resting).findings[0].cause is Cause.UNKNOWN
    assert compute_losses(starved).findings[0].cause is Cause.DATA_LOADING
    unwatched = compute_losses(seen).findings[0]
    assert (unwatched.cause, unwatched.confidence) == (Cause.DATA_LOADING, 0.5)


def test_what_is_told_of_data_loading_is_what_it_was_seen_by() -> None:
    """GPUs that a sampling monitor never sees idle, and steps that are long now and then, are no idle GPUs."""
    long = {3, 8, 10, 21, 22, 33}
    lines = [MeasuredStep(iteration=at, seconds=20.0 if at in long else 10.0) for at in range(40)]
    busy = tuple(GpuActivity(node="n0", index=gpu, busy=1.0) for gpu in range(8))
    starved = (HostActivity(node="n0", cpu_stalled=0.5),)
    seen = Observation(prediction=TEN_PERCENT, steps=tuple(lines), gpus=busy, hosts=starved)
    (found,) = (each for each in compute_losses(seen).findings if each.cause is Cause.DATA_LOADING)
    assert found.text == (
        "6 steps at no regular distance are long, which takes 13% of the time while on their hosts tasks wait for a "
        "processor for 50% of the time"
    )
    both = replace(seen, gpus=tuple(replace(gpu, busy=0.6) for gpu in busy))
    (found,) = (each for each in compute_losses(both).findings if each.cause is Cause.DATA_LOADING)
    assert found.text.startswith("GPUs stand without work for 27% of the time, 6 steps at no regular distance are long")


def test_one_long_step_on_a_busy_host_is_less_sure_than_many() -> None:
    busy = tuple(GpuActivity(node="n0", index=gpu, busy=1.0) for gpu in range(8))
    starved = (HostActivity(node="n0", cpu_stalled=0.5),)
    sure = []
    for long in ({21: 40.0}, {3: 20.0, 8: 20.0, 10: 20.0, 21: 20.0, 22: 20.0, 33: 20.0}):
        lines = tuple(MeasuredStep(iteration=at, seconds=long.get(at, 10.0)) for at in range(40))
        seen = Observation(prediction=TEN_PERCENT, steps=lines, gpus=busy, hosts=starved)
        sure += [each.confidence for each in compute_losses(seen).findings if each.cause is Cause.DATA_LOADING]
    assert sure == [0.6, 0.9]


def test_checkpoints_between_lines_count_without_moving_the_median() -> None:
    """Forty steps of 10 s and four pauses of 30 s: 13 s a step in the mean, 3 of them checkpoints."""
    lines, now = [], 0.0
    for step in range(40):
        now += 10.0 + (30.0 if step % 10 == 5 else 0.0)
        lines.append(MeasuredStep(iteration=step, seconds=10.0, at_s=now))
    losses = compute_losses(Observation(prediction=TEN_PERCENT, steps=tuple(lines)))
    assert losses.measured_step_s == 10.0
    assert losses.mean_step_s == pytest.approx(13.0)
    assert losses.findings[0].cause is Cause.CHECKPOINTING
    assert losses.findings[0].share == pytest.approx(3 / 13)
    assert losses.findings[0].numbers["period_steps"] == 10


def test_checkpoints_that_only_the_log_times_are_added() -> None:
    told = tuple(Pause(iteration=step, seconds=30.0) for step in range(5, 40, 10))
    losses = compute_losses(Observation(prediction=TEN_PERCENT, steps=steps(*[10.0] * 40), checkpoints=told))
    assert losses.mean_step_s == pytest.approx(13.0)
    assert losses.findings[0].confidence == 0.95


def test_validations_are_no_checkpoints() -> None:
    lines = steps(*(40.0 if step % 10 == 5 else 10.0 for step in range(40)))
    tested = tuple(Pause(iteration=step) for step in range(5, 40, 10))
    losses = compute_losses(Observation(prediction=TEN_PERCENT, steps=lines, validations=tested))
    assert [each.cause for each in losses.findings] == [Cause.UNKNOWN]


def test_a_better_plan_is_named_only_beyond_the_error() -> None:
    for other_s, expected in ((9.5, []), (7.0, [Cause.WRONG_PLAN])):
        predicted = replace(TEN_PERCENT, others=(OtherPlan(what="TP 8 → 4", step_s=other_s),))
        losses = compute_losses(Observation(prediction=predicted, steps=steps(*[10.0] * 10)))
        assert [each.cause for each in losses.findings] == expected
    assert losses.gap == pytest.approx(0.3)


def test_a_plan_that_may_not_fit_is_no_better_plan() -> None:
    predicted = replace(TEN_PERCENT, others=(OtherPlan(what="no recompute", step_s=6.0, fit_probability=0.5),))
    assert compute_losses(Observation(prediction=predicted, steps=steps(*[10.0] * 10))).findings == ()


def test_two_causes_that_slow_the_slowest_gpu_share_what_the_worse_one_takes() -> None:
    """One GPU a quarter slower by heat, another a tenth slower: together a quarter, of which the lesser has 5 %."""
    gpus = [GpuActivity(node=f"n{gpu // 8}", index=gpu % 8, clock=0.8) for gpu in range(32)]
    gpus[3] = replace(gpus[3], clock=0.64, throttled={"sw_thermal_slowdown": 0.6})
    gpus[20] = replace(gpus[20], clock=0.8 / 1.1)
    predicted = replace(TEN_PERCENT, components={"compute": 8.0, "dp": 2.0})
    losses = compute_losses(Observation(prediction=predicted, steps=steps(*[12.0] * 10), gpus=tuple(gpus)))
    found = {each.cause: each.share * 12.0 for each in losses.findings}
    assert found == pytest.approx({Cause.THERMAL_CAP: 1.6, Cause.STRAGGLER: 0.4})


def test_values_that_are_no_numbers_are_not_known() -> None:
    nan = float("nan")
    gpus = tuple(
        GpuActivity(node="n0", index=gpu, busy=nan, clock=nan, throttled={"sw_thermal_slowdown": nan})
        for gpu in range(8)
    )
    predicted = Prediction(low_s=nan, step_s=10.0, high_s=nan)
    seen = Observation(prediction=predicted, steps=steps(nan, float("inf"), *[12.5] * 10), gpus=gpus)
    losses = compute_losses(seen)
    assert losses.gap == pytest.approx(0.2)
    assert [each.cause for each in losses.findings] == [Cause.UNKNOWN]
    assert compute_losses(replace(seen, prediction=Prediction(low_s=0, step_s=nan, high_s=0))).expected_step_s is None


def test_a_gpu_that_is_busy_while_all_others_have_no_kernel_is_slow_and_input_is_not_to_blame() -> None:
    """As collectives that block instead of polling have it; nobody watches the hosts."""
    gpus = [GpuActivity(node=f"n{gpu // 8}", index=gpu % 8, busy=0.8) for gpu in range(32)]
    gpus[9] = replace(gpus[9], busy=0.99)
    losses = compute_losses(Observation(prediction=TEN_PERCENT, steps=steps(*[12.5] * 10), gpus=tuple(gpus)))
    assert losses.findings[0].cause is Cause.STRAGGLER
    assert losses.findings[0].where == "n1 gpu 1"
    assert losses.findings[0].share == pytest.approx(0.19, abs=0.02)
    assert Cause.DATA_LOADING not in {each.cause for each in losses.findings}


def test_heat_counts_by_its_time_where_nobody_tells_the_clock() -> None:
    """Half of the time at a clock that is a quarter lower: a seventh more time for its work."""
    gpus = [GpuActivity(node="n0", index=gpu) for gpu in range(8)]
    gpus[2] = replace(gpus[2], throttled={"hw_thermal_slowdown": 0.5})
    predicted = replace(TEN_PERCENT, components={"compute": 8.0, "dp": 2.0})
    losses = compute_losses(Observation(prediction=predicted, steps=steps(*[12.5] * 10), gpus=tuple(gpus)))
    assert (losses.findings[0].cause, losses.findings[0].where) == (Cause.THERMAL_CAP, "n0 gpu 2")
    assert losses.findings[0].share == pytest.approx(8.0 / 7 / 12.5)
