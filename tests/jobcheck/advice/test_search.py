"""What a job wastes: each finding on a job made to have it, its numbers against the cost model's own."""

from __future__ import annotations

import pytest

from opsk.costmodel.predict import predict
from opsk.costmodel.table import PlanTable
from opsk.costmodel.uncertainty.verdict import Verdict, compute_verdict
from opsk_jobcheck.advice.problems import apply_launcher_ranks
from opsk_jobcheck.advice.search import MAX_BUBBLE, Waste, WasteKind, find_waste
from opsk_jobcheck.advice.suggestions import MIN_GAIN, Question, find_best_plan, find_near_plans
from opsk_jobcheck.scripts.launchers.ranks import REQUESTED_GPUS
from opsk_jobcheck.scripts.script import read_script
from tests.fakes.launch_scripts import megatron_script
from tests.fakes.questions import CLUSTER, question_of

TP8_PP8 = "--tensor-model-parallel-size 8 --pipeline-model-parallel-size 8 --micro-batch-size 1 --sequence-parallel"
GOOD = f"{TP8_PP8} --use-distributed-optimizer --global-batch-size 128"
TP8_PP4 = (
    "--tensor-model-parallel-size 8 --pipeline-model-parallel-size 4 --micro-batch-size 1 --global-batch-size 1 "
    "--sequence-parallel --use-distributed-optimizer"
)
TP4_PP4 = TP8_PP4.replace("size 8", "size 4")
JOBS = {
    WasteKind.BUBBLE: (8, f"{TP8_PP8} --use-distributed-optimizer --global-batch-size 8"),
    WasteKind.SHARDING: (16, f"{TP8_PP8} --global-batch-size 128"),
    WasteKind.RECOMPUTE: (
        8,
        f"{GOOD} --recompute-granularity full --recompute-method uniform --recompute-num-layers 1",
    ),
    WasteKind.SEQUENCE_PARALLEL: (8, GOOD.replace(" --sequence-parallel", "")),
    WasteKind.TP_ACROSS_NODES: (
        8,
        GOOD.replace(" 8 --pipeline-model-parallel-size 8", " 16 --pipeline-model-parallel-size 4"),
    ),
    WasteKind.TOO_MANY_GPUS: (32, f"{TP8_PP8} --use-distributed-optimizer --global-batch-size 8"),
}


def asked(flags: str, *, nodes: int = 8) -> Question:
    """Return what a script for 70B on nodes of eight GPUs asks."""
    return question_of(read_script(megatron_script(flags, nodes=nodes), file="job.sh"))


def waste_of(question: Question) -> tuple[Waste, ...]:
    """Return what it wastes."""
    return find_waste(question, find_near_plans(question), find_best_plan(question))


@pytest.mark.parametrize("kind", JOBS)
def test_what_is_wasted_is_found(kind: WasteKind) -> None:
    nodes, flags = JOBS[kind]
    assert kind in {entry.kind for entry in waste_of(asked(flags, nodes=nodes))}


def test_memory_is_not_saved_where_most_of_it_is_free() -> None:
    """BERT takes 6 of 79 GiB."""
    script = "#!/bin/bash\n#SBATCH --gres=gpu:4\ntorchrun --nproc_per_node 4 run_glue.py --bf16 --max_seq_length 128 "
    script += "--model_name_or_path bert-base-cased --per_device_train_batch_size 32\n"
    assert waste_of(question_of(read_script(script, file="job.sh"))) == ()


@pytest.mark.parametrize("kind", JOBS)
def test_every_change_fits_and_holds_when_it_is_predicted_alone(kind: WasteKind) -> None:
    nodes, flags = JOBS[kind]
    question = asked(flags, nodes=nodes)
    for entry in waste_of(question):
        if entry.change is None:
            assert entry.advice
            continue
        again = predict(question.model, PlanTable.of([entry.change.plan]), CLUSTER)
        assert compute_verdict(float(again.memory.fit_probability[0])) is Verdict.FITS
        assert float(again.time.step_s.expected[0]) == pytest.approx(entry.change.step_s)
        assert entry.change.plan.global_batch == question.plan.global_batch
        if entry.kind is not WasteKind.TOO_MANY_GPUS:
            assert entry.change.step_ratio <= 1 + MIN_GAIN
            assert entry.change.plan.gpus == question.plan.gpus


def test_findings_come_greatest_cost_first() -> None:
    for nodes, flags in JOBS.values():
        costs = [entry.cost_share or 0 for entry in waste_of(asked(flags, nodes=nodes))]
        assert costs == sorted(costs, reverse=True)


def test_a_plan_without_fault_wastes_nothing() -> None:
    assert waste_of(asked(GOOD)) == ()


def test_a_bubble_costs_its_share_of_the_step() -> None:
    question = asked(JOBS[WasteKind.BUBBLE][1])
    (bubble,) = [entry for entry in waste_of(question) if entry.kind is WasteKind.BUBBLE]
    time = question.prediction.time
    assert bubble.cost_share == pytest.approx(float(time.components["bubble"] / time.step_s.expected))
    assert bubble.cost_share is not None
    assert bubble.cost_share > MAX_BUBBLE


@pytest.mark.parametrize(("flags", "nodes", "advice"), [(TP8_PP4, 4, "a larger global batch"), (TP4_PP4, 2, "")])
def test_a_larger_batch_is_advised_only_where_it_is_predicted_to_fit(flags: str, nodes: int, advice: str) -> None:
    """One micro-batch in four stages, on 32 GPUs and on 16, which do not hold the model at all."""
    (bubble,) = [entry for entry in waste_of(asked(flags, nodes=nodes)) if entry.kind is WasteKind.BUBBLE]
    assert (bubble.change, bubble.advice) == (None, advice)


def test_half_of_the_gpus_are_named_with_what_is_lost_and_saved() -> None:
    nodes, flags = JOBS[WasteKind.TOO_MANY_GPUS]
    (half,) = [entry for entry in waste_of(asked(flags, nodes=nodes)) if entry.kind is WasteKind.TOO_MANY_GPUS]
    assert half.change is not None
    assert half.change.flags[0] == f"--nodes={nodes // 2}"
    # n GPUs for t seconds against n / 2 for t * ratio
    assert half.cost_share == pytest.approx(1 - half.change.step_ratio / 2)


def test_gpus_without_a_rank_are_idle() -> None:
    read = read_script(
        megatron_script(GOOD, nodes=16).replace("srun python", "srun torchrun --nnodes 16 --nproc-per-node 4"),
        file="job.sh",
    )
    workload = apply_launcher_ranks(read)
    assert (workload.plan.gpus, workload.plan.gpus_per_node, dict(workload.options)[REQUESTED_GPUS]) == (64, 4, "128")
    (idle,) = [entry for entry in waste_of(question_of(workload)) if entry.kind is WasteKind.IDLE_GPUS]
    assert idle.cost_share == pytest.approx(0.5)
    assert "64 of the 128 GPUs" in idle.what


@pytest.mark.parametrize(
    ("launcher", "nodes", "per_node", "gpus"),
    [
        ("torchrun --nnodes 2 --nproc-per-node 8", 2, 8, 16),
        ("accelerate launch --num_machines 1 --num_processes 4", 1, 4, 4),
        ("accelerate launch --num_processes 32", None, None, 32),
    ],
)
def test_ranks_lie_on_the_nodes_that_the_launcher_is_told_of(
    launcher: str, nodes: int | None, per_node: int | None, gpus: int
) -> None:
    """Sixteen ranks on eight nodes are not two on each."""
    read = read_script(megatron_script(GOOD, nodes=8).replace("srun python", f"srun {launcher}"), file="job.sh")
    plan = apply_launcher_ranks(read).plan
    assert (plan.nodes, plan.gpus_per_node, plan.gpus) == (nodes, per_node, gpus)


def test_as_many_ranks_as_gpus_change_nothing() -> None:
    read = read_script(
        megatron_script(GOOD).replace("srun python", "srun torchrun --nnodes 8 --nproc-per-node 8"), file="job.sh"
    )
    assert apply_launcher_ranks(read) is read
