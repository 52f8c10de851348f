"""From a script to advice: verdicts, reasons, ways out that work when they are written into the script."""

from __future__ import annotations

from pathlib import Path

import pytest

from opsk.errors import InputError
from opsk.fabric.design import rail_optimized_fabric
from opsk.fabric.rails import Rails, find_rails
from opsk.hardware.catalog import cluster
from opsk.workload.advice_record import Verdict
from opsk_jobcheck.advice.advice import Advice
from opsk_jobcheck.advice.adviser import Adviser
from opsk_jobcheck.advice.search import WasteKind
from opsk_jobcheck.advice.suggestions import MIN_GAIN
from opsk_jobcheck.scripts.script import read_script
from tests.fakes.launch_scripts import megatron_script, with_flags

SUPERPOD = Adviser(cluster=cluster("superpod-h100"), cluster_from="test")
PLAN = "--tensor-model-parallel-size 8 --pipeline-model-parallel-size 8 --micro-batch-size 1 --global-batch-size 128"
FITS = f"{PLAN} --sequence-parallel --use-distributed-optimizer"


@pytest.fixture(scope="module")
def rails() -> Rails:
    """Sixteen nodes of 8 HCAs, two scalable units of eight."""
    return find_rails(rail_optimized_fabric(nodes=16, hcas=8, leaves=16, spines=4))


def analysis(script: str, adviser: Adviser = SUPERPOD) -> Advice:
    """Return the advice on a script."""
    return adviser.advise(read_script(script, file="job.sh"))


def test_a_job_that_fits() -> None:
    advice = analysis(megatron_script(FITS))
    assert (advice.verdict, advice.why_unknown) == (Verdict.FITS, ())
    assert advice.best is not None
    assert all(entry.step_ratio <= 1 - MIN_GAIN for entry in advice.suggestions)


def test_a_job_that_runs_out_of_memory_gets_ways_out() -> None:
    advice = analysis(megatron_script("--micro-batch-size 4 --global-batch-size 256"))
    assert advice.verdict is Verdict.OOM
    assert len(advice.suggestions) >= 2


def test_ways_out_of_the_example_work_when_written_into_it(root: Path) -> None:
    script = (root / "examples/llama3-70b-megatron.sbatch").read_text()
    last = '--data-path /data/corpus_text_document"'
    assert last in script
    advice = analysis(script)
    assert advice.verdict is Verdict.OOM
    assert len(advice.suggestions) >= 2
    for suggestion in advice.suggestions:
        flags = " ".join(suggestion.flags)
        changed = analysis(script.replace(last, f'{last[:-1]} {flags}"'))
        assert changed.verdict is Verdict.FITS
        assert changed.completion.plan == suggestion.plan
        assert changed.prediction is not None
        assert float(changed.prediction.time.step_s.expected) == pytest.approx(suggestion.step_s)


@pytest.mark.parametrize(
    "flags",
    [
        "--tensor-model-parallel-size 4 --pipeline-model-parallel-size 2 --micro-batch-size 2",
        "--tensor-model-parallel-size 4 --pipeline-model-parallel-size 2 --micro-batch-size 2 --recompute-activations",
        "--tensor-model-parallel-size 2 --pipeline-model-parallel-size 4 --micro-batch-size 2 --global-batch-size 128"
        " --num-layers-per-virtual-pipeline-stage 5",
        "--tensor-model-parallel-size 8 --pipeline-model-parallel-size 1 --micro-batch-size 4 --deepspeed",
    ],
)
def test_ways_out_work_whatever_the_script_already_says(flags: str) -> None:
    script = megatron_script(flags)
    advice = analysis(script)
    assert advice.verdict is Verdict.OOM
    assert advice.suggestions
    for suggestion in advice.suggestions:
        changed = analysis(with_flags(script, suggestion.flags))
        assert changed.completion.plan == suggestion.plan
        assert changed.verdict is Verdict.FITS


@pytest.mark.parametrize("batch", ["--per_device_train_batch_size 1 --gradient_accumulation_steps 2",
                                   "--per_device_train_batch_size 2"])  # fmt: skip
def test_weights_that_a_suggestion_shards_take_what_the_trainer_takes_then(batch: str) -> None:
    # under FSDP accelerate adds up the gradients of several micro-batches whole (no_sync): 52 GB of a 13B
    command = f"run_clm.py --model_name_or_path meta-llama/Llama-2-13b-hf {batch} --bf16 --block_size 4096 --do_train"
    launch = "srun torchrun --nnodes 2 --nproc_per_node 8 --rdzv_backend c10d --rdzv_endpoint n0:29500"
    script = f"#!/bin/bash\n#SBATCH --nodes=2 --gpus-per-node=8\n{launch} {command} --gradient_checkpointing\n"
    suggestions = analysis(script).suggestions
    assert suggestions
    for suggestion in suggestions:
        changed = analysis(with_flags(script, suggestion.flags))
        assert changed.prediction is not None
        assert changed.prediction.memory.total_bytes.expected == pytest.approx(suggestion.memory_bytes)


def test_without_a_cluster_nothing_is_predicted() -> None:
    advice = analysis(megatron_script(FITS), Adviser())
    assert (advice.verdict, advice.prediction) == (Verdict.UNKNOWN, None)
    assert "--cluster" in advice.why_unknown[0]


def test_what_is_missing_is_named_with_the_reader_s_reason() -> None:
    advice = analysis(megatron_script("--micro-batch-size $1 --global-batch-size 128"))
    assert advice.verdict is Verdict.UNKNOWN
    assert len(advice.why_unknown) == 1
    assert advice.why_unknown[0].startswith("micro_batch: ")


def test_a_gpu_that_nobody_knows_is_a_reason_not_an_error() -> None:
    script = megatron_script(FITS).replace("#SBATCH --gpus-per-node=8", "#SBATCH --gres=gpu:h900:8")
    advice = analysis(script)
    assert (advice.verdict, advice.is_gpu_known) == (Verdict.UNKNOWN, False)
    assert "h900" in advice.why_unknown[0]


def test_the_gpu_that_the_job_asks_for_counts() -> None:
    script = megatron_script(FITS).replace("#SBATCH --gpus-per-node=8", "#SBATCH --gres=gpu:b200:8")
    advice = analysis(script)
    assert advice.cluster is not None
    assert advice.cluster.node.gpu.name.startswith("b200")


def test_a_gpu_name_with_several_meanings_is_the_cluster_s_own_or_assumed() -> None:
    script = megatron_script(FITS).replace("#SBATCH --gpus-per-node=8", "#SBATCH --gres=gpu:a100:8")
    own = analysis(script, Adviser(cluster=cluster("titan")))
    assert all(entry.field != "gpu" for entry in own.assumed)
    other = analysis(script)
    assert [entry.value for entry in other.assumed if entry.field == "gpu"] == ["a100-sxm-80gb"]


def test_a_plan_that_is_not_the_gpu_count_is_one_problem_with_its_line() -> None:
    advice = analysis(megatron_script(PLAN.replace("size 8 --pipe", "size 6 --pipe")))
    assert advice.verdict is Verdict.UNKNOWN
    gpus = [problem for problem in advice.problems if "64 GPUs are not a multiple" in problem.what]
    assert [(problem.file, problem.line, bool(problem.hint)) for problem in gpus] == [("job.sh", 4, True)]


@pytest.mark.parametrize(
    "name",
    ["num-layers", "hidden-size", "num-attention-heads", "seq-length", "micro-batch-size", "global-batch-size",
     "tensor-model-parallel-size", "pipeline-model-parallel-size", "context-parallel-size", "vocab-size",
     "ffn-hidden-size", "num-experts", "expert-model-parallel-size", "kv-channels", "num-query-groups"],
)  # fmt: skip
@pytest.mark.parametrize("size", [1, 7, 999_999_937, 10**9])
def test_absurd_sizes_give_an_answer(name: str, size: int) -> None:
    advice = analysis(megatron_script(f"{FITS} --{name} {size}"))
    assert advice.verdict in (Verdict.OOM, Verdict.UNKNOWN, Verdict.FITS, Verdict.TIGHT)
    assert (advice.prediction is None) == bool(advice.why_unknown)


def test_the_most_gpus_there_may_be_give_an_answer() -> None:
    script = megatron_script(PLAN.replace("size 128", f"size {1 << 21}"), nodes=1 << 21)
    assert analysis(script).verdict in (Verdict.FITS, Verdict.TIGHT, Verdict.OOM)


def test_without_a_search_there_is_the_verdict_alone() -> None:
    quick = analysis(megatron_script("--micro-batch-size 4"), Adviser(cluster=SUPERPOD.cluster, search=False))
    assert (quick.verdict, quick.suggestions, quick.best, quick.is_searched) == (Verdict.OOM, (), None, False)


def test_ranks_are_placed_on_the_fabric(rails: Rails) -> None:
    advice = analysis(megatron_script(FITS), Adviser(cluster=SUPERPOD.cluster, rails=rails))
    assert advice.placement.placement is not None
    assert len(advice.placement.placement.nodes) == 8


def test_a_fabric_that_is_too_small_is_a_reason(rails: Rails) -> None:
    script = megatron_script(FITS.replace("batch-size 128", "batch-size 1024"), nodes=32)
    advice = analysis(script, Adviser(cluster=SUPERPOD.cluster, rails=rails))
    assert advice.verdict is Verdict.FITS
    assert advice.placement.why_not == "the job needs 32 nodes, the fabric has 16"


def test_no_fabric_is_a_reason() -> None:
    assert "--fabric" in analysis(megatron_script(FITS)).placement.why_not


def test_a_recipe_whose_trainable_part_is_unknown_is_unknown_and_never_oom() -> None:
    too_large = "--micro-batch-size 4 --global-batch-size 256"
    assert analysis(megatron_script(too_large)).verdict is Verdict.OOM
    for words in ("--freeze-LM", "--lora-rank 16", "--export-kd-teacher-load /ckpt", "--load_in_4bit"):
        advice = analysis(megatron_script(f"{too_large} {words}"))
        assert (advice.verdict, advice.prediction) == (Verdict.UNKNOWN, None)
        assert words.split()[0] in advice.why_unknown[0]


def test_reasons_of_the_same_kind_are_one() -> None:
    advice = analysis("#!/bin/bash\n#SBATCH --nodes=2 --gpus-per-node=8\nsrun torchrun some_thing/train.py\n")
    assert any(reason.startswith("layers, hidden, heads") for reason in advice.why_unknown)


def test_a_batch_that_does_not_divide_is_told_with_what_comes_of_the_next_one() -> None:
    flags = "--micro-batch-size 1 --global-batch-size 100 --tensor-model-parallel-size 8 --use-distributed-optimizer"
    advice = analysis(megatron_script(flags))
    assert advice.verdict is Verdict.UNKNOWN
    (found,) = advice.waste
    # 64 GPUs / TP 8 = DP 8: the next multiple of 8 after 100
    assert (found.kind, found.advice[:23]) == (WasteKind.BATCH, "--global-batch-size 104")
    assert "GiB per GPU" in found.advice


def test_fewer_ranks_than_gpus_are_predicted_as_they_run() -> None:
    script = megatron_script(f"{PLAN.replace('size 8 --pipe', 'size 4 --pipe')}").replace(
        "srun python", "srun torchrun --nnodes 8 --nproc-per-node 4"
    )
    advice = analysis(script)
    assert advice.completion.plan is not None
    assert advice.completion.plan.gpus == 32
    (idle,) = [entry for entry in advice.waste if entry.kind is WasteKind.IDLE_GPUS]
    assert idle.cost_share == pytest.approx(0.5)


def test_more_ranks_than_gpus_are_a_problem() -> None:
    script = megatron_script(PLAN).replace("srun python", "srun torchrun --nnodes 16 --nproc-per-node 8")
    assert any("starts 128 ranks" in problem.what for problem in analysis(script).problems)


def test_suggestions_come_greatest_effect_first_and_once() -> None:
    for flags in (PLAN, f"{FITS} --recompute-activations", "--micro-batch-size 4 --global-batch-size 256"):
        advice = analysis(megatron_script(flags))
        plans = [entry.plan for entry in advice.suggestions]
        assert len(set(plans)) == len(plans)
        assert [entry.step_ratio for entry in advice.suggestions] == sorted(e.step_ratio for e in advice.suggestions)


def test_a_search_that_fails_leaves_the_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: object) -> None:
        raise InputError("a number is too large")

    monkeypatch.setattr("opsk_jobcheck.advice.search.find_best_plan", fails)
    advice = analysis(megatron_script(FITS))
    assert (advice.verdict, advice.is_searched, advice.suggestions) == (Verdict.FITS, False, ())
