"""Jobs that train one of several models, or one whose name tells its size alone: they fit with the largest of them."""

from __future__ import annotations

import pytest

from opsk.hardware.catalog import cluster
from opsk.workload.advice_record import Verdict
from opsk_jobcheck.advice.advice import Advice
from opsk_jobcheck.advice.adviser import Adviser
from opsk_jobcheck.scripts.script import read_script

ADVISER = Adviser(cluster=cluster("superpod-a100"))
SCRIPT = "#!/bin/bash\n#SBATCH --gres=gpu:1\npython train.py --kind $1\n"
PROGRAM = (
    "import argparse\nfrom transformers import AutoModelForCausalLM, Trainer, TrainingArguments\n"
    "p = argparse.ArgumentParser()\np.add_argument('--kind')\nargs = p.parse_args()\n"
    "{choice}\n"
    "a = TrainingArguments('out', per_device_train_batch_size={batch}, bf16=True)\n{more}"
    "model = AutoModelForCausalLM.from_pretrained({name})\n"
    "rows = tokenizer(texts, truncation=True, max_length=512)\n"
    "Trainer(model=model, args=a, train_dataset=rows).train()\n"
)
BRANCHES = "if args.kind == 'x':\n    base = '{first}'\nelse:\n    base = '{second}'"
TABLE = "base = {{'x': '{first}', 'y': '{second}'}}[args.kind]"
SMALL, MIDDLE, LARGE = "Qwen/Qwen2.5-0.5B", "HuggingFaceTB/SmolLM2-360M", "Qwen/Qwen2.5-7B"


def advise(choice: str, name: str = "base", batch: int = 4, more: str = "") -> Advice:
    source = PROGRAM.format(choice=choice, name=name, batch=batch, more=more)
    return ADVISER.advise(read_script(SCRIPT, file="job.sh", files={"train.py": source}))


@pytest.mark.parametrize("text", [BRANCHES, TABLE])
def test_a_job_fits_where_it_does_with_the_largest_model_that_it_may_load(text: str) -> None:
    advice = advise(text.format(first=MIDDLE, second=SMALL))
    assert (advice.verdict, advice.is_limit) == (Verdict.FITS, True)
    assert [entry.value for entry in advice.assumed if entry.field == "model.name"] == [SMALL]


@pytest.mark.parametrize("second", [LARGE, "our-lab/story"])
def test_a_job_that_may_load_a_model_that_does_not_fit_or_is_unknown_gets_no_verdict(second: str) -> None:
    assert advise(BRANCHES.format(first=MIDDLE, second=second)).verdict is Verdict.UNKNOWN


def test_two_models_that_a_program_loads_both_are_no_choice() -> None:
    more = "teacher = AutoModelForCausalLM.from_pretrained('HuggingFaceTB/SmolLM2-360M')\n"
    assert advise(BRANCHES.format(first=MIDDLE, second=SMALL), more=more).verdict is Verdict.UNKNOWN


def test_calls_in_branches_of_one_test_load_one_model() -> None:
    choice = (
        "if args.kind == 'x':\n    model = AutoModelForCausalLM.from_pretrained('Qwen/Qwen2.5-0.5B')\n"
        "else:\n    model = AutoModelForCausalLM.from_pretrained('HuggingFaceTB/SmolLM2-360M')\n"
    )
    source = PROGRAM.replace("model = AutoModelForCausalLM.from_pretrained({name})\n", "")
    text = source.format(choice=choice, batch=4, more="")
    assert ADVISER.advise(read_script(SCRIPT, file="job.sh", files={"train.py": text})).verdict is Verdict.FITS


def test_a_model_of_a_size_that_reads_images_gets_no_verdict() -> None:
    source = PROGRAM.format(choice="", name="'our-lab/Story-350M'", batch=2, more="").replace(
        "CausalLM", "ImageTextToText"
    )
    assert ADVISER.advise(read_script(SCRIPT, file="job.sh", files={"train.py": source})).verdict is Verdict.UNKNOWN


@pytest.mark.parametrize(
    ("name", "batch", "verdict"),
    [
        ("our-lab/Story-350M", 2, Verdict.FITS),
        ("our-lab/Story-350M", 256, Verdict.UNKNOWN),
        ("our-lab/Story-7B", 1, Verdict.UNKNOWN),  # 7 B trained as a whole: never said to run out
        ("our-lab/Story", 1, Verdict.UNKNOWN),
    ],
)
def test_a_model_of_a_size_fits_where_those_do_that_are_as_large(name: str, batch: int, verdict: Verdict) -> None:
    advice = advise("", f"'{name}'", batch)
    assert advice.verdict is verdict
    assert any("by its name" in entry.why for entry in advice.assumed) is (verdict is Verdict.FITS)


@pytest.mark.parametrize(("name", "is_known"), [("our-lab/newsBERTo", True), ("our-lab/newsBERT-xl", False)])
def test_a_job_fits_where_it_does_with_the_largest_model_of_the_family(name: str, *, is_known: bool) -> None:
    advice = advise("", name=f"'{name}'")
    assert (advice.verdict is Verdict.FITS) is is_known
    if is_known:
        assert advice.is_limit
        chosen = next(entry for entry in advice.assumed if entry.field == "model.name")
        assert chosen.why == f"the largest of the family after which {name} is named"


def test_a_job_of_several_models_fits_where_it_does_with_the_largest_that_all_of_them_may_be() -> None:
    words = (
        "algorithm.adv_estimator=gae data.train_batch_size=64 data.max_prompt_length=256 data.max_response_length=512"
        " actor_rollout_ref.model.path=/models/Story0.5B critic.model.path=/models/Story0.5B"
        " actor_rollout_ref.actor.ppo_mini_batch_size=8 actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=1"
        " critic.ppo_micro_batch_size_per_gpu=1 actor_rollout_ref.rollout.gpu_memory_utilization=0.4"
        " actor_rollout_ref.rollout.name=vllm actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=1"
        " trainer.nnodes=1 trainer.n_gpus_per_node=1"
    )
    script = f"#!/bin/bash\n#SBATCH --gres=gpu:1\npython3 -m verl.trainer.main_ppo {words}\n"
    advice = ADVISER.advise(read_script(script, file="job.sh"))
    assert (advice.verdict, advice.is_limit) == (Verdict.FITS, True)
