"""Jobs whose scripts leave values open: they fit where even the largest case does, and never run out by one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from opsk.hardware.catalog import cluster
from opsk.workload.advice_record import Verdict
from opsk.workload.plan import Recompute
from opsk_jobcheck.advice.advice import Advice
from opsk_jobcheck.advice.adviser import Adviser
from opsk_jobcheck.advice.rendering.document import document, record, render_stored_document
from opsk_jobcheck.advice.rendering.terminal import Detail, lines, short_lines
from opsk_jobcheck.advice.worst_case import fits_for_sure
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
    """A V100 has 16 or 32 GB; this job may take more than 16."""
    text = "from transformers import AutoModel\nAutoModel.from_pretrained('bert-large-cased')\nloss.backward()\n"
    script = f"#!/bin/bash\n#SBATCH --gres=gpu:{gpu}:1\npython train.py --batch_size 4\n"
    assert (advise(script, text).verdict is Verdict.FITS) is is_fit


def test_a_gpu_of_a_large_family_has_its_whole_name() -> None:
    text = "import timm\ntimm.create_model('resnet50')\nloss.backward()\n"
    advice = advise("#!/bin/bash\n#SBATCH --gres=gpu:2080ti:1\npython train.py --batch_size 8\n", text)
    assert "1 × RTX 2080 TI" in lines(advice)[0]


LORA = (
    "model = get_peft_model(model, LoraConfig({config}))\n"
    "a = TrainingArguments('out', per_device_train_batch_size=1, bf16=True)\nmax_seq_length = 512\n"
    "Trainer(model=model, args=a).train()\n"
)


@pytest.mark.parametrize(
    ("config", "verdict"),
    [
        ("r=16, target_modules='all-linear'", Verdict.FITS),
        ("r=16, target_modules=choose()", Verdict.FITS),  # on all layers at most
        ("r=choose(), target_modules='all-linear'", Verdict.UNKNOWN),
        ("r=16, modules_to_save=['embed_tokens']", Verdict.UNKNOWN),
    ],
)
def test_adapters_on_a_base_of_any_format_take_no_more_than_on_one_of_32_bits(config: str, verdict: Verdict) -> None:
    source = (
        "from transformers import AutoModelForCausalLM, Trainer, TrainingArguments\n"
        "model = AutoModelForCausalLM.from_pretrained('meta-llama/Llama-3.1-8B', torch_dtype=choose())\n"
    )
    script = "#!/bin/bash\n#SBATCH --gres=gpu:1\npython train.py\n"
    advice = advise(script, source + LORA.format(config=config))  # training all of 8 B parameters does not fit
    assert advice.verdict is verdict
    assert advice.is_limit is (verdict is Verdict.FITS)


def test_adapters_in_32_bits_save_what_those_in_16_bits_save_of_twice_the_batch() -> None:
    """One process that has four GPUs: the layers of its model may be on all of them, and no number format is set."""
    source = (
        "from transformers import AutoModelForCausalLM, BitsAndBytesConfig, TrainingArguments\n"
        "from trl import SFTTrainer\nfrom peft import LoraConfig\n"
        "quant = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_compute_dtype=torch.float16)\n"
        "model = AutoModelForCausalLM.from_pretrained(\n"
        "    'meta-llama/Llama-2-7b-hf', quantization_config=quant, device_map='auto')\n"
        "a = TrainingArguments(output_dir='out', per_device_train_batch_size=2, optim='paged_adamw_32bit')\n"
        "SFTTrainer(model=model, args=a, peft_config=LoraConfig(r=64), max_seq_length=512).train()\n"
    )
    advice = advise("#!/bin/bash\n#SBATCH --gres=gpu:4\npython train.py\n", source)
    assert (advice.verdict, advice.is_limit) == (Verdict.FITS, True)


def test_the_number_of_gpus_may_be_open() -> None:
    advice = advise(NER.format(model="bert-base-cased").replace("gpu:1", "gpu:2 --ntasks=2"))
    assert advice.workload.plan.gpus is None  # one node, or two
    assert advice.verdict is Verdict.FITS


@pytest.mark.parametrize(
    ("arguments", "more", "line"),
    [
        ("per_device_train_batch_size=4, bf16=True", "", "fits up to seq 2048 at micro batch 4: at most "),
        (
            "per_device_train_batch_size=choose(), bf16=True",
            "max_length = 1024\n",
            "fits up to micro batch 8 at seq 1024",
        ),
        ("per_device_train_batch_size=choose(), bf16=True", "", "fits up to micro batch 4 at seq 2048"),
    ],
)
def test_up_to_which_size_a_job_fits_is_said_where_the_size_is_open(arguments: str, more: str, line: str) -> None:
    source = (
        "from transformers import AutoModelForCausalLM, Trainer, TrainingArguments\n"
        f"model = AutoModelForCausalLM.from_pretrained('meta-llama/Llama-3.2-1B')\n{more}"
        f"Trainer(model=model, args=TrainingArguments('out', {arguments})).train()\n"
    )
    advice = advise("#!/bin/bash\n#SBATCH --gres=gpu:1\npython train.py\n", source)
    assert any(line in row for row in lines(advice)), lines(advice)
    assert advice.verdict is Verdict.UNKNOWN
    assert document(advice)["memory"]["room"] == advice.room


def test_nothing_is_said_of_sizes_where_other_models_may_be_in_memory() -> None:
    source = (
        "from trl import GRPOConfig, GRPOTrainer\n"
        "a = GRPOConfig('out', per_device_train_batch_size=1, use_vllm=choose())\n"
        "GRPOTrainer(model='meta-llama/Llama-3.2-1B', args=a, peft_config=LoraConfig(r=8)).train()\n"
    )
    assert advise("#!/bin/bash\n#SBATCH --gres=gpu:1\npython train.py\n", source).room is None


UNSLOTH = (
    "from unsloth import FastLanguageModel\nfrom trl import SFTConfig, SFTTrainer\n"
    "model, tokenizer = FastLanguageModel.from_pretrained(model_name='unsloth/Meta-Llama-3.1-8B-bnb-4bit'{load})\n"
    "model = FastLanguageModel.get_peft_model(model, r={rank}, random_state=1, use_gradient_checkpointing='unsloth')\n"
    "a = SFTConfig(output_dir='out', per_device_train_batch_size=2, max_length=2048, bf16=choose())\n"
    "SFTTrainer(model=model, args=a).train()\n"
)


@pytest.mark.parametrize(
    ("load", "rank", "base"),
    [
        ("", "16", "on a base of 4 bits"),
        (", load_in_4bit=False, load_in_8bit=True", "16", "on a base of 8 bits"),
        (", load_in_4bit=False", "16", "the base is no larger than it is unquantized"),
        (", load_in_4bit=choose()", "16", None),
        ("", "choose()", None),
        (", full_finetuning=True", "16", None),
    ],
)
def test_adapters_of_unsloth_are_on_a_base_of_4_bits_unless_it_is_loaded_otherwise(
    load: str, rank: str, base: str | None
) -> None:
    advice = advise("#!/bin/bash\n#SBATCH --gres=gpu:1\npython train.py\n", UNSLOTH.format(load=load, rank=rank))
    assert advice.verdict is (Verdict.FITS if base else Verdict.UNKNOWN)
    assert [entry.why for entry in advice.assumed if entry.field == "trainable"] == ([base] if base else [])


def test_a_gpu_without_bf16_gets_a_verdict_where_no_format_is_stated() -> None:
    program = (
        "from transformers import AutoModelForSequenceClassification\nimport argparse\n"
        "parser = argparse.ArgumentParser()\nparser.add_argument('--batch_size', type=int, default=8)\n"
        "args = parser.parse_args()\nmodel = AutoModelForSequenceClassification.from_pretrained('bert-base-cased')\n"
        "x = tokenizer(texts, truncation=True, max_length=256)\nwith torch.autocast('cuda'):\n    loss = model(x)\n"
        "loss.backward()\n"
    )
    script = "#!/bin/bash\n#SBATCH --gres=gpu:{gpu}:1\npython train.py\n"
    for gpu in ("v100", "t4"):
        assert advise(script.format(gpu=gpu), program).verdict is Verdict.FITS, gpu


def test_what_a_release_recomputes_by_itself_is_no_limit() -> None:
    """TRL recomputes all layers since 0.21; an older one does not."""
    source = LORA.format(config="r=16, target_modules='all-linear'").replace("Trainer(", "SFTTrainer(")
    head = (
        "from transformers import AutoModelForCausalLM, TrainingArguments\nfrom trl import SFTTrainer\n"
        "model = AutoModelForCausalLM.from_pretrained('meta-llama/Llama-3.2-1B', torch_dtype=choose())\n"
    )
    advice = advise("#!/bin/bash\n#SBATCH --gres=gpu:1\npython train.py\n", head + source)
    assert advice.is_limit
    assert advice.completion.plan is not None
    assert advice.completion.plan.recompute is Recompute.NONE


PREFERENCES = (
    "from trl import DPOConfig, DPOTrainer\n"
    "model = AutoModelForCausalLM.from_pretrained('{model}')\n"
    "a = DPOConfig('out', per_device_train_batch_size=2, max_length=1024, bf16=True)\n"
    "DPOTrainer(model=model, args=a, peft_config=LoraConfig(r=rank())).train()\n"
)


@pytest.mark.parametrize(
    ("model", "verdict"), [("Qwen/Qwen2.5-0.5B", Verdict.FITS), ("Qwen/Qwen2.5-7B", Verdict.UNKNOWN)]
)
def test_preferences_fit_where_training_all_next_to_a_reference_does(model: str, verdict: Verdict) -> None:
    advice = advise("#!/bin/bash\n#SBATCH --gres=gpu:1\npython train.py\n", PREFERENCES.format(model=model))
    assert advice.verdict is verdict
    assert advice.is_limit is (verdict is Verdict.FITS)
    if advice.prediction is not None:
        # 0.5 B parameters: 16 bytes a trained one and 4 bytes of the reference
        assert float(advice.prediction.memory.total_bytes.high) > 0.494e9 * (16 + 4)
        assert any("at most" in row for row in lines(advice))


def test_of_several_batches_the_largest_counts() -> None:
    source = (
        "from transformers import AutoModelForCausalLM, Trainer, TrainingArguments\n"
        "model = AutoModelForCausalLM.from_pretrained('HuggingFaceTB/SmolLM2-135M')\n"
        "first = TrainingArguments('a', per_device_train_batch_size=4, bf16=True)\n"
        "second = TrainingArguments('b', per_device_train_batch_size=8, bf16=True)\nmax_seq_length = 512\n"
        "Trainer(model=model, args=first).train()\nTrainer(model=model, args=second).train()\n"
    )
    advice = advise("#!/bin/bash\n#SBATCH --gres=gpu:1\npython train.py\n", source)
    assert (advice.verdict, advice.is_limit) == (Verdict.FITS, True)
    assert [entry.value for entry in advice.assumed if entry.field == "plan.micro_batch"] == [8]


CONFIGURED = (
    "from transformers import {kind}, AutoModelForMaskedLM, Trainer, TrainingArguments\n{more}"
    "model = AutoModelForMaskedLM.from_config({kind}({sizes}))\n"
    "a = TrainingArguments('out', per_device_train_batch_size=4)\nTrainer(model=model, args=a).train()\n"
)


@pytest.mark.parametrize(
    ("kind", "sizes", "tokens"),
    [
        ("BertConfig", "num_hidden_layers=4, max_position_embeddings=256", 256),
        ("RobertaConfig", "num_hidden_layers=4, max_position_embeddings=258", 256),
        ("GPT2Config", "n_layer=4", 1024),
        ("BertConfig", "num_hidden_layers=4, max_position_embeddings=choose()", None),
        ("LlamaConfig", "num_hidden_layers=2, hidden_size=256, max_position_embeddings=256", None),  # rotated
    ],
)
def test_a_text_has_no_more_tokens_than_the_configuration_has_positions(
    kind: str, sizes: str, tokens: int | None
) -> None:
    source = CONFIGURED.format(kind=kind, sizes=sizes, more="")
    advice = advise("#!/bin/bash\n#SBATCH --gres=gpu:1\npython train.py\n", source)
    assert (advice.verdict is Verdict.FITS) is (tokens is not None)
    assert [entry.value for entry in advice.assumed if entry.field == "model.seq"] == ([tokens] if tokens else [])


@pytest.mark.parametrize(
    ("more", "vocab"),
    [
        ("tokenizer.train(files, vocab_size=30_000)\n", 30_000),
        ("tokenizer = AutoTokenizer.from_pretrained('roberta-base')\n", 50_265),
        ("tokenizer = AutoTokenizer.from_pretrained(folder)\n", None),
        ("a.train(files, vocab_size=30_000)\nb.train(files, vocab_size=8_000)\n", None),
    ],
)
def test_a_model_has_the_words_of_the_one_tokenizer_of_its_program(more: str, vocab: int | None) -> None:
    source = CONFIGURED.format(kind="BertConfig", sizes="num_hidden_layers=4, vocab_size=len(tokenizer)", more=more)
    script = "#!/bin/bash\n#SBATCH --gres=gpu:1\npython train.py\n"
    assert read_script(script, file="job.sh", files={"train.py": source}).model.vocab == vocab


SPREAD = (
    "from transformers import AutoModelForCausalLM, Trainer, TrainingArguments\n"
    "model = AutoModelForCausalLM.from_pretrained('{model}', device_map='auto')\n"
    "a = TrainingArguments('out', per_device_train_batch_size=1, bf16=True)\nmax_seq_length = 512\n"
    "Trainer(model=model, args=a).train()\n"
)


@pytest.mark.parametrize(
    "launcher",
    ["python", "accelerate launch --num_processes 1", "torchrun --nproc_per_node=1", "deepspeed --num_gpus 1"],
)
@pytest.mark.parametrize(
    ("model", "verdict"), [("Qwen/Qwen2.5-14B", Verdict.UNKNOWN), ("Qwen/Qwen2.5-0.5B", Verdict.FITS)]
)
def test_one_process_with_layers_on_all_gpus_runs_out_of_none_and_fits_where_one_gpu_is_enough(
    launcher: str, model: str, verdict: Verdict
) -> None:
    advice = advise(f"#!/bin/bash\n#SBATCH --gres=gpu:4\n{launcher} train.py\n", SPREAD.format(model=model))
    assert advice.verdict is verdict
    assert not any("do nothing" in row for row in lines(advice, Detail.LONG))


ADAPTED = (
    "{imports}\nfrom transformers import AutoModelForCausalLM, Trainer, TrainingArguments\n"
    "model = AutoModelForCausalLM.from_pretrained('Qwen/Qwen2.5-3B', torch_dtype=torch.bfloat16)\n"
    "model = get_peft_model(model, LoraConfig({rank}))\nmax_seq_length = 512\n"
    "a = TrainingArguments('out', per_device_train_batch_size=1, bf16=True)\nTrainer(model=model, args=a).train()\n"
)


@pytest.mark.parametrize(
    ("imports", "rank", "read"),
    [
        ("from peft import LoraConfig, get_peft_model", "", "8"),
        ("from peft import LoraConfig, get_peft_model", "**dict(r=16)", "16"),
        ("from mine.settings import LoraConfig\nfrom peft import get_peft_model", "", None),
        ("from peft import LoraConfig, get_peft_model\ns = make()", "**s", None),
    ],
)
def test_a_rank_that_is_not_told_for_sure_is_not_the_default_one(imports: str, rank: str, read: str | None) -> None:
    source = ADAPTED.format(imports=imports, rank=rank)
    workload = read_script("#!/bin/bash\n#SBATCH --gres=gpu:1\npython go.py\n", file="j", files={"go.py": source})
    options = dict(workload.options)
    assert options.get("adapters.rank", options.get("worst.adapters.rank")) == read


IMAGES = (
    "from peft import LoraConfig, get_peft_model\nfrom transformers import AutoModelForImageTextToText, Trainer\n"
    "model = AutoModelForImageTextToText.from_pretrained('{model}', torch_dtype=torch.bfloat16)\n{more}"
    "a = TrainingArguments('out', per_device_train_batch_size=1, bf16=True, gradient_checkpointing=True)\n"
    "Trainer(model=model, args=a).train()\n"
)
ADAPTS = "model = get_peft_model(model, LoraConfig(r=8, target_modules='all-linear'))\n"


@pytest.mark.parametrize(
    ("model", "more", "verdict"),
    [
        ("Qwen/Qwen3-VL-2B-Instruct", ADAPTS, Verdict.FITS),
        ("Qwen/Qwen3-VL-2B-Instruct", "", Verdict.FITS),
        ("Qwen/Qwen2.5-VL-7B-Instruct", "", Verdict.UNKNOWN),  # 8.3 B parameters of 16 bytes
    ],
)
def test_images_and_texts_fit_where_training_the_tower_too_does(model: str, more: str, verdict: Verdict) -> None:
    advice = advise("#!/bin/bash\n#SBATCH --gres=gpu:1\npython train.py\n", IMAGES.format(model=model, more=more))
    assert advice.verdict is verdict
    assert advice.is_limit is (verdict is Verdict.FITS)
    if verdict is Verdict.UNKNOWN:
        assert any("the vision tower" in why for why in advice.why_unknown)


@pytest.mark.parametrize(("share", "fits"), [(0.4, True), (0.95, True), (1.01, False)])
def test_the_largest_case_fits_as_surely_as_a_job_that_states_all(share: float, fits: bool) -> None:
    """Its high end holds 19 of 20 such jobs: what it leaves free beyond the GPU's memory is not asked for twice."""
    advice = advise(NER.format(model="xlm-roberta-base"))
    assert advice.prediction is not None
    memory = advice.prediction.memory
    whole = replace(memory.total_bytes, high=share * memory.capacity_bytes)
    larger = replace(advice.prediction, memory=replace(memory, total_bytes=whole))
    assert fits_for_sure(larger, advice) is fits


@pytest.mark.parametrize(("batch", "verdict"), [(1, Verdict.FITS), (4, Verdict.TIGHT), (64, Verdict.UNKNOWN)])
def test_a_job_whose_largest_case_likely_fits_but_may_not_is_tight(batch: int, verdict: Verdict) -> None:
    source = TRAINER.format(model="Qwen/Qwen2.5-3B", more="model = get_peft_model(model, make_config())\n")
    source = source.replace("batch_size=1", f"batch_size={batch}")
    advice = advise("#!/bin/bash\n#SBATCH --gres=gpu:1\npython train.py\n", source)
    assert advice.verdict is verdict
    if verdict is Verdict.TIGHT:
        assert advice.is_limit
        assert "in its largest case (up to" in lines(advice)[1]
        assert lines(advice)[1].endswith("per GPU: tight, may run out")


UNSEEN = (
    "#!/bin/bash\n#SBATCH --gres=gpu:1\npython train_choices.py --model_name_or_path roberta-base --do_train {more}"
    " --per_device_train_batch_size 8 --learning_rate 1e-5 --num_train_epochs 3 --output_dir out\n"
)


@pytest.mark.parametrize(("more", "verdict"), [("", Verdict.FITS), ("--triplet_loss", Verdict.UNKNOWN)])
def test_a_program_with_the_flags_of_the_trainer_that_is_not_at_hand_may_have_several_texts(
    more: str, verdict: Verdict
) -> None:
    advice = advise(UNSEEN.format(more=more))
    assert advice.verdict is verdict
    if verdict is Verdict.FITS:
        assert next(entry.value for entry in advice.assumed if entry.field == "plan.micro_batch") == 8 * 8


def test_sounds_and_images_whose_size_is_stated_nowhere_are_as_large_as_they_rarely_are() -> None:
    source = (
        "from transformers import Trainer, TrainingArguments, Wav2Vec2ForCTC\n"
        "model = Wav2Vec2ForCTC.from_pretrained('facebook/wav2vec2-base')\n"
        "a = TrainingArguments('out', per_device_train_batch_size=2, fp16=True)\nTrainer(model=model, args=a).train()\n"
    )
    advice = advise("#!/bin/bash\n#SBATCH --gres=gpu:2\npython train.py\n", source)
    assert (advice.verdict, advice.is_limit) == (Verdict.FITS, True)
    longest = [entry for entry in advice.assumed if entry.field == "model.input"]
    assert longest
    assert int(str(longest[0].value)) > 10  # the seconds for which it was measured
