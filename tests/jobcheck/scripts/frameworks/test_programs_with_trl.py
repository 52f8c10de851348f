"""Programs of users that take TRL's settings, or leave to TRL what they do not state."""

from __future__ import annotations

import pytest

from opsk.hardware.catalog import cluster
from opsk.workload.advice_record import Verdict
from opsk.workload.completion import complete
from opsk.workload.roles import METHOD
from opsk.workload.workload import Workload
from opsk_jobcheck.advice.adviser import Adviser
from opsk_jobcheck.scripts.script import read_script

HEAD = "#!/bin/bash\n#SBATCH --nodes=1\n#SBATCH --gres=gpu:h100:4\n"
NAMED = "--model_name_or_path Qwen/Qwen2.5-1.5B --per_device_train_batch_size 2 --num_train_epochs 1 --bf16"
PARSES = (
    "from trl import DPOConfig, DPOTrainer, ModelConfig, TrlParser, get_peft_config\n"
    "parser = TrlParser((Choices, DPOConfig, ModelConfig))\n"
    "choices, settings, model = parser.parse_args_and_config()\n"
    "trainer = DPOTrainer(model.model_name_or_path, args=settings, peft_config=get_peft_config(model))\n"
    "trainer.train()\n"
)


def read(command: str, source: str = "", head: str = HEAD) -> Workload:
    files = {"tune.py": source} if source else {}
    return read_script(f"{head}{command}\n", file="job.sh", files=files)


def advise(workload: Workload) -> tuple[Verdict, bool]:
    advice = Adviser(cluster=cluster("superpod-h100")).advise(workload)
    return advice.verdict, advice.is_limit


@pytest.mark.parametrize("launcher", ["torchrun --nproc_per_node=4", "accelerate launch --num_processes 4"])
def test_a_program_that_parses_settings_of_trl_is_one_of_trl(launcher: str) -> None:
    workload = read(f"{launcher} tune.py {NAMED} --dtype bfloat16 --use_peft --lora_r 8", PARSES)
    assert workload.framework in ("trl", "trl + accelerate")
    options = dict(workload.options)
    assert (options["adapters"], options["adapters.rank"]) == ("lora", "8")
    assert options[METHOD] == "dpo"
    model = complete(workload).model
    assert model is not None
    assert model.seq == 1024  # DPOConfig


def test_one_with_arguments_of_its_own_is_not() -> None:
    source = PARSES.replace("TrlParser((Choices, DPOConfig, ModelConfig))", "argparse.ArgumentParser()")
    assert read(f"torchrun --nproc_per_node=4 tune.py {NAMED}", source).framework == "hf-trainer"


def test_adapters_on_a_base_of_unknown_format_fit_where_they_do_in_32_bits() -> None:
    workload = read(f"accelerate launch --num_processes 4 sft.py {NAMED} --use_peft --lora_r 8 --max_length 2048")
    assert advise(workload) == (Verdict.FITS, True)
    command = f"accelerate launch --num_processes 4 sft.py {NAMED.replace('1.5B', '72B')} --use_peft --max_length 2048"
    large = read(command)
    assert advise(large)[0] is Verdict.UNKNOWN  # in 16 bits and sharded it may fit


OLD = (
    "from transformers import AutoModelForCausalLM, TrainingArguments\nfrom trl import SFTTrainer\n"
    "model = AutoModelForCausalLM.from_pretrained('Qwen/Qwen2.5-0.5B', torch_dtype='bfloat16'{more})\n"
    "settings = TrainingArguments(output_dir='out', per_device_train_batch_size=4, {precision})\n"
    "SFTTrainer(model=model, args=settings, dataset_text_field='text'{length}).train()\n"
)


def write(*, more: str = "", precision: str = "bf16=True", length: str = "") -> str:
    return OLD.replace("{more}", more).replace("{precision}", precision).replace("{length}", length)


@pytest.mark.parametrize(
    ("length", "seq"), [("", 1024), (", max_seq_length=None", 1024), (", max_seq_length=512", 512)]
)
def test_the_trainer_of_trl_cuts_texts_without_a_configuration_too(length: str, seq: int) -> None:
    assert read("torchrun --nproc_per_node=4 tune.py", write(length=length)).model.seq == seq


def test_a_length_that_is_not_known_is_not_the_usual_one() -> None:
    assert read("torchrun --nproc_per_node=4 tune.py", write(length=", max_seq_length=pick()")).model.seq is None


def test_either_format_of_16_bits_takes_the_same_memory() -> None:
    precision = "bf16=is_bfloat16_supported(), fp16=not is_bfloat16_supported()"
    workload = read("torchrun --nproc_per_node=4 tune.py", write(precision=precision), HEAD.replace("h100:", ""))
    assert workload.plan.precision == "bf16"


@pytest.mark.parametrize(("more", "batch"), [(", device_map='auto'", "4"), ("", "16"), (", device_map=pick()", "16")])
def test_layers_spread_over_the_gpus_of_one_process_get_the_batch_of_one(more: str, batch: str) -> None:
    assert dict(read("python tune.py", write(more=more)).options)["worst.micro_batch"] == batch


def test_adapters_of_a_loop_of_its_own_count_on_a_base_of_the_stated_format() -> None:
    source = (
        "import torch\nfrom peft import LoraConfig, get_peft_model\nfrom transformers import AutoModelForCausalLM\n"
        "model = AutoModelForCausalLM.from_pretrained('Qwen/Qwen2.5-14B', torch_dtype=torch.bfloat16)\n"
        "model.gradient_checkpointing_enable()\n"
        "model = get_peft_model(model, LoraConfig(r=16, target_modules='all-linear'))\n"
        "batch_size = 1\nmax_length = 1024\noptimizer = torch.optim.AdamW(model.parameters())\n"
        "for batch in loader:\n    model(**batch).loss.backward()\n    optimizer.step()\n"
    )
    workload = read("python tune.py", source, HEAD.replace("h100:4", "h100:1"))
    assert dict(workload.options)["weights.dtype"] == "bf16"
    assert advise(workload) == (Verdict.FITS, True)


def test_arguments_in_a_section_of_a_file_are_those_of_the_call() -> None:
    source = (
        "import yaml\nfrom peft import LoraConfig\nfrom transformers import AutoModelForCausalLM, TrainingArguments\n"
        "from trl import SFTTrainer\nconfig = yaml.safe_load(open('run.yaml'))\n"
        "model = AutoModelForCausalLM.from_pretrained(**config['model'])\n"
        "settings = TrainingArguments(output_dir='out', **config['train'])\n"
        "SFTTrainer(model=model, args=settings, peft_config=LoraConfig(**config['lora'])).train()\n"
    )
    table = (
        "model:\n  pretrained_model_name_or_path: Qwen/Qwen2.5-0.5B\n  torch_dtype: bfloat16\n"
        "train:\n  per_device_train_batch_size: 4\n  bf16: true\n"
        "lora:\n  r: 32\n  target_modules: [q_proj, v_proj]\n  task_type: CAUSAL_LM\n"
    )
    script = f"{HEAD}torchrun --nproc_per_node=4 tune.py\n"
    workload = read_script(script, file="job.sh", files={"tune.py": source, "run.yaml": table})
    options = dict(workload.options)
    assert (options["adapters"], options["adapters.rank"], options["adapters.targets"]) == ("lora", "32", "query-value")
    assert (workload.model.name, workload.plan.micro_batch) == ("Qwen/Qwen2.5-0.5B", 4)


def test_adapters_that_a_module_makes_from_a_section_of_a_file_are_all_that_is_trained() -> None:
    files = {
        "tune.py": (
            "import yaml\nimport torch\nfrom parts import build\nconfig = yaml.safe_load(open('run.yaml'))\n"
            "model = build(config)\noptimizer = torch.optim.AdamW(model.parameters())\n"
            "for batch in loader:\n    model(**batch).loss.backward()\n    optimizer.step()\n"
        ),
        "parts.py": (
            "from peft import LoraConfig, get_peft_model\nfrom transformers import AutoModelForCausalLM\n"
            "def build(config):\n    model = AutoModelForCausalLM.from_pretrained(config['name'])\n"
            "    return get_peft_model(model, LoraConfig(**config['lora']))\n"
        ),
        "run.yaml": "name: Qwen/Qwen2.5-0.5B\nlora:\n  r: 32\n  target_modules: [q_proj, v_proj]\n",
    }
    workload = read_script(f"{HEAD}python tune.py --config run.yaml\n", file="job.sh", files=files)
    assert dict(workload.options)["worst.adapters.rank"] == "32"


def test_a_program_that_tunes_before_it_generates_has_no_one_length() -> None:
    source = (
        "from transformers import AutoModelForCausalLM\n"
        "from trl import GRPOConfig, GRPOTrainer, SFTConfig, SFTTrainer\n"
        "model = AutoModelForCausalLM.from_pretrained('Qwen/Qwen2.5-0.5B', torch_dtype=torch.bfloat16)\n"
        "SFTTrainer(model=model, args=SFTConfig('a', max_length=2048, per_device_train_batch_size=2)).train()\n"
        "GRPOTrainer(model=model, args=GRPOConfig('b', max_completion_length=256)).train()\n"
    )
    workload = read_script(f"{HEAD}python both.py\n", file="job.sh", files={"both.py": source})
    assert "SFTTrainer" in dict(workload.options)["trainable"]
    assert workload.model.seq == 2048
