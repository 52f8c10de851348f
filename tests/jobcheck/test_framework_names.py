"""Every name that a reader, or the words of a script, can give a framework is known wherever names are looked up."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from opsk.frameworks.families import FAMILIES, NO_NAMES
from opsk.workload.completion import complete
from opsk.workload.model import StatedModel
from opsk.workload.plan import Plan, Sharding, Software, StatedPlan
from opsk.workload.workload import Workload
from opsk_jobcheck.advice.abilities import find_abilities, get_family, is_deepspeed
from opsk_jobcheck.advice.flags import build_flags
from opsk_jobcheck.scripts.bash.evaluate import run
from opsk_jobcheck.scripts.frameworks.registry import FRAMEWORKS, READERS
from opsk_jobcheck.scripts.launchers.programs import CONNECTIVITY, find_program

MODEL = StatedModel(experts=0, layers=32, hidden=4096, ffn=14336, heads=32, kv_heads=8, vocab=128256, seq=4096)
PLAN = StatedPlan(nodes=4, gpus_per_node=8, gpus=32, micro_batch=2, global_batch=128)
TRAINS = sorted(FRAMEWORKS - {CONNECTIVITY})
OWN_SPELLING = {"megatron-lm", "megatron-deepspeed", "megatron-bridge", "torchtitan"}
WITHOUT_WORDS = {
    *("olmo-core", "verl", "lightning", "pytorch-ddp", "pytorch-fsdp", "dit", "open_lm", "openrlhf"),
    *("xtuner", "oumi", "nemo-automodel", "ultralytics", "yolov5", "nnunet"),
}
"""Settings in the user's own Python, or as each program of its kind calls them: only what is stated is respelled."""
DATA_PARALLEL = {
    "deepspeed",
    "hf-trainer",
    "trl + accelerate",
    "openrlhf",
    "open_lm",
    "open-clip",
    "pytorch-ddp",
    "olmo",
}


def asked(framework: str) -> tuple[Workload, Plan]:
    """Return a job of a framework, and its plan with all that the framework takes by itself."""
    workload = Workload(framework=framework, model=MODEL, plan=PLAN)
    completion = complete(workload)
    assert completion.plan is not None, completion.missing
    return workload, completion.plan


@pytest.mark.parametrize("framework", TRAINS)
def test_a_job_of_each_framework_is_completed_and_bounded(framework: str) -> None:
    workload, plan = asked(framework)
    model = complete(workload).model
    assert model is not None or framework == "megatron-bridge"  # whose recipe decides on experts
    if model is not None:
        assert plan.sharding in find_abilities(workload, model, plan).limits.shardings


@pytest.mark.parametrize("framework", sorted(DATA_PARALLEL))
def test_what_only_splits_data_is_offered_nothing_else(framework: str) -> None:
    workload, plan = asked(framework)
    model = complete(workload).model
    assert model is not None
    limits = find_abilities(workload, model, plan).limits
    assert (limits.largest_tp, limits.largest_pp) == (1, 1)
    if framework in ("pytorch-ddp", "open-clip"):
        assert limits.shardings == {Sharding.NONE}


@pytest.mark.parametrize("framework", TRAINS)
def test_a_smaller_micro_batch_is_spelled_or_known_to_have_no_words(framework: str) -> None:
    workload, plan = asked(framework)
    flags = build_flags(workload, plan, replace(plan, micro_batch=1), model=complete(workload).model)
    has_words = FAMILIES[get_family(workload)].names is not NO_NAMES or framework in OWN_SPELLING
    assert has_words is (framework not in WITHOUT_WORDS)
    if has_words and framework != "megatron-bridge":
        assert any("1" in flag for flag in flags)


@pytest.mark.parametrize(
    ("framework", "software"),
    [
        ("bionemo", Software.MEGATRON_CORE),
        ("nemo", Software.MEGATRON_CORE),
        ("deepspeed", Software.DEEPSPEED),
        ("hf-trainer+deepspeed", Software.DEEPSPEED),
        ("openrlhf", Software.DEEPSPEED),
        ("hf-trainer", Software.PYTORCH),
        ("olmo", Software.PYTORCH),
        ("pytorch-ddp", Software.PYTORCH),
    ],
)
def test_the_software_below_a_framework_is_known(framework: str, software: Software) -> None:
    workload, plan = asked(framework)
    assert plan.software is software
    assert is_deepspeed(workload) is (software is Software.DEEPSPEED)


def test_the_table_lists_just_the_frameworks_that_readers_give() -> None:
    families = {get_family(Workload(framework=name)) for name in FRAMEWORKS}
    assert families - FAMILIES.keys() == {CONNECTIVITY}
    assert FAMILIES.keys() <= families


@pytest.mark.shared
def test_readers_give_only_the_names_that_they_list(shared: Path) -> None:
    for script in sorted((shared / "data" / "real" / "sbatch").glob("*")):
        if not script.is_file():
            continue
        for invocation in run(script.read_text(errors="replace"), given={}).invocations:
            matches = [(reader, reader.recognise(invocation)) for reader in READERS]
            for reader, match in matches:
                assert match is None or match.framework in reader.frameworks, (
                    match.framework,
                    find_program(invocation),
                )
