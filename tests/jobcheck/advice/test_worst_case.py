"""Jobs whose scripts leave values open: they fit where even the largest case does, and never run out by one."""

from __future__ import annotations

import pytest

from opsk.hardware.catalog import cluster
from opsk.workload.advice_record import Verdict
from opsk_jobcheck.advice.advice import Advice
from opsk_jobcheck.advice.adviser import Adviser
from opsk_jobcheck.advice.rendering.document import document, record, render_stored_document
from opsk_jobcheck.advice.rendering.terminal import Detail, lines, short_lines
from opsk_jobcheck.scripts.script import read_script

ADVISER = Adviser(cluster=cluster("superpod-a100"))
NER = "#!/bin/bash\n#SBATCH --gres=gpu:1\npython run_ner.py --model_name_or_path {model} --do_train\n"
TRAINER = (
    "from transformers import AutoModelForCausalLM, Trainer, TrainingArguments\n"
    "config = BitsAndBytesConfig(load_in_4bit=True)\n"
    "model = AutoModelForCausalLM.from_pretrained('{model}', quantization_config=config)\n"
    "{more}a = TrainingArguments('out', per_device_train_batch_size=1, bf16=True)\nmax_seq_length = 512\n"
    "Trainer(model=model, args=a).train()\n"
)


def advise(script: str, source: str = "") -> Advice:
    return ADVISER.advise(read_script(script, file="job.sh", files={"train.py": source} if source else {}))


def advise_program(model: str, more: str = "") -> Advice:
    script = "#!/bin/bash\n#SBATCH --gres=gpu:1\npython train.py\n"
    return advise(script, TRAINER.format(model=model, more=more))


def test_a_text_is_at_most_as_long_as_the_learned_positions_of_the_model() -> None:
    advice = advise(NER.format(model="xlm-roberta-base"))
    assert advice.verdict is Verdict.FITS
    assert advice.is_limit
    # 512 of the 514 positions of its config.json are tokens
    assert [entry.value for entry in advice.assumed if entry.field == "model.seq"] == [512]
    said = lines(advice)
    assert any("at most" in row and "fits" in row for row in said)
    assert not any("TFLOP/s" in row for row in lines(advice, Detail.LONG))
    assert "at most" in short_lines(advice)[1]


@pytest.mark.parametrize(
    "model",
    [
        "meta-llama/Llama-3.1-8B",  # rotated positions: there is no largest length
        "someone/unknown",
    ],
)
def test_a_length_without_a_limit_gives_no_verdict(model: str) -> None:
    assert advise(NER.format(model=model)).verdict is Verdict.UNKNOWN


def test_several_texts_in_a_sample_give_no_verdict() -> None:
    """``run_swag.py`` of transformers joins the choices of a sample to one batch."""
    assert advise(NER.format(model="xlm-roberta-base").replace("run_ner", "run_swag")).verdict is Verdict.UNKNOWN


def test_adapters_of_unknown_rank_take_no_more_than_training_the_whole_model() -> None:
    more = "model = get_peft_model(model, make_config())\n"
    advice = advise_program("Qwen/Qwen2.5-0.5B", more)
    assert (advice.verdict, advice.is_limit) == (Verdict.FITS, True)
    assert [entry.value for entry in advice.assumed if entry.field == "trainable"] == ["all"]


@pytest.mark.parametrize(
    ("model", "more"),
    [
        ("meta-llama/Llama-3.1-8B", "model = get_peft_model(model, make_config())\n"),  # 8 B trained as a whole: no
        ("Qwen/Qwen2.5-0.5B", "teacher = AutoModel.from_pretrained('Qwen/Qwen2.5-7B')\n"),
        ("Qwen/Qwen2.5-0.5B", "loss = contrastive(model)\n"),
    ],
)
def test_what_has_no_small_limit_gives_no_verdict(model: str, more: str) -> None:
    assert advise_program(model, more).verdict is Verdict.UNKNOWN


def test_the_document_says_that_it_is_a_limit_and_no_prediction_is_stored() -> None:
    """A limit is no prediction that a measurement could be compared with."""
    advice = advise(NER.format(model="xlm-roberta-base"))
    answer = document(advice)
    assert answer["memory"]["is_limit"] is True
    assert answer["time"]["step_s"] is None
    assert '"memory"' not in render_stored_document(advice)
    stored = record(advice)
    assert (stored.verdict, stored.mem_bytes, stored.step_s) == (Verdict.FITS, None, None)


@pytest.mark.parametrize(("gpu", "is_fit"), [("v100", False), ("v100-32gb", True)])
def test_a_type_of_two_sizes_counts_as_the_smaller_one(gpu: str, is_fit: bool) -> None:
    """A V100 has 16 or 32 GB; this job may take 26."""
    text = "from transformers import AutoModel\nAutoModel.from_pretrained('bert-large-cased')\nloss.backward()\n"
    script = f"#!/bin/bash\n#SBATCH --gres=gpu:{gpu}:1\npython train.py --batch_size 8\n"
    assert (advise(script, text).verdict is Verdict.FITS) is is_fit


def test_a_gpu_of_a_large_family_has_its_whole_name() -> None:
    text = "import timm\ntimm.create_model('resnet50')\nloss.backward()\n"
    advice = advise("#!/bin/bash\n#SBATCH --gres=gpu:2080ti:1\npython train.py --batch_size 8\n", text)
    assert "1 × RTX 2080 TI" in lines(advice)[0]
