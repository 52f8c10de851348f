"""What a script leaves open is listed always, and widens the ranges only where it may be otherwise."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from opsk.costmodel.efficiency.cases import Case
from opsk.costmodel.efficiency.default import DEFAULT
from opsk.costmodel.efficiency.efficiency import Efficiency
from opsk.costmodel.uncertainty.case_spread import apply_case_spread
from opsk.hardware.catalog import cluster
from opsk.workload.completion import complete
from opsk.workload.defaults import Assumption
from opsk_jobcheck.advice.advice import Advice, find_guesses
from opsk_jobcheck.advice.adviser import Adviser
from opsk_jobcheck.scripts.script import read_script
from tests.fakes.launch_scripts import megatron_script

STATED = (
    "--tensor-model-parallel-size 8 --pipeline-model-parallel-size 8 --micro-batch-size 1 --global-batch-size 128 "
    "--sequence-parallel --use-distributed-optimizer"
)
COUNTED = {"plan.recompute", "plan.sharding", "plan.global_batch", "plan.precision", "plan.cp", "plan.ep"}
MANUAL_SETTINGS = (
    "#OPSK framework=megatron-lm layers=80 hidden=8192 heads=64 seq=8192 tp=8 pp=2 micro_batch=1 global_batch=128"
)


def guessed(script: str) -> set[str]:
    """Return the fields of a script that are guesses."""
    workload = read_script(script, file="job.sh")
    return set(find_guesses(workload, complete(workload).assumed))


def test_a_flag_that_a_whole_command_does_not_have_is_no_guess() -> None:
    assert guessed(megatron_script(STATED)).isdisjoint(COUNTED)


def test_a_word_of_which_nothing_is_known_may_hide_a_flag() -> None:
    assert guessed(megatron_script(f"{STATED} $(cat more.args)")) & COUNTED == {"plan.recompute"}


@pytest.mark.parametrize("flag", ["--rdzv-endpoint", "--data-path", "--save"])
def test_no_flag_hides_in_the_value_of_another(flag: str) -> None:
    script = megatron_script(f'{STATED} {flag} "$(scontrol show hostnames)"')
    assert guessed(script).isdisjoint(COUNTED)


def test_a_launcher_that_was_not_read_may_pass_anything() -> None:
    script = f"#!/bin/bash\n#SBATCH --nodes=8 --gpus-per-node=8\n{MANUAL_SETTINGS}\nsrun launch.sh\n"
    assert guessed(script) & COUNTED == {"plan.recompute", "plan.sharding", "plan.precision"}


def test_a_gpu_with_several_meanings_is_an_input_that_decides() -> None:
    workload = read_script(megatron_script(STATED), file="job.sh")
    assert list(find_guesses(workload, [Assumption(field="gpu", value="a100-sxm-80gb", why="")])) == ["cluster.gpu"]


def analysis(script: str, efficiency: Efficiency = DEFAULT) -> Advice:
    """Return the advice on a script."""
    adviser = Adviser(cluster=cluster("superpod-h100"), efficiency=efficiency, search=False)
    return adviser.advise(read_script(script, file="job.sh"))


def half_width(advice: Advice) -> float:
    """Return the upper end of the time's range over its middle."""
    assert advice.prediction is not None
    step = advice.prediction.time.step_s
    return float(step.high / step.expected)


def test_a_read_command_has_the_range_of_a_plan_with_every_input_stated() -> None:
    sigma = apply_case_spread(DEFAULT, (), Case(architecture="hopper", software="megatron-core")).spread.time_log_sigma
    advice = analysis(megatron_script(STATED))
    assert half_width(advice) == pytest.approx(math.exp(1.645 * sigma), rel=1e-3)  # 1.645 sigma hold 90 %
    assert {entry.field for entry in advice.assumed} >= {"plan.recompute", "plan.cp"}  # listed all the same


def test_software_that_was_never_measured_on_the_chip_is_told_and_widens() -> None:
    elsewhere = replace(DEFAULT, fitted=frozenset({Case(architecture="ampere", software="megatron-core")}))
    known, unknown = analysis(megatron_script(STATED)), analysis(megatron_script(STATED), elsewhere)
    assert "efficiency" not in {entry.field for entry in known.assumed}
    (note,) = (entry for entry in unknown.assumed if entry.field == "efficiency")
    assert note.value == "hopper/megatron-core"
    assert half_width(unknown) > half_width(known)
