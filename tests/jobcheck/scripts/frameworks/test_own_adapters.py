"""Adapters that a user's own program makes with PEFT, and what of them is not known."""

from __future__ import annotations

import pytest

from opsk.hardware.catalog import cluster
from opsk.workload.advice_record import Verdict
from opsk.workload.completion import complete
from opsk.workload.plan import LoraTargets, Recompute
from opsk.workload.workload import Workload
from opsk_jobcheck.advice.adviser import Adviser
from opsk_jobcheck.scripts.frameworks.own_models.count import follow_program
from opsk_jobcheck.scripts.frameworks.own_program import followed_once
from opsk_jobcheck.scripts.script import read_script

HEAD = "#!/bin/bash\n#SBATCH --nodes=1\n#SBATCH --gpus-per-node=4\n"
QUANTISED = "BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_compute_dtype=torch.bfloat16)"


def write(config: str, *, base: str = "torch_dtype=torch.bfloat16", more: str = "", use: str = "") -> str:
    """Return a program that trains adapters."""
    use = use or "model = get_peft_model(model, config)"
    return (
        "import argparse\nfrom transformers import AutoModelForCausalLM, Trainer, TrainingArguments\n"
        "parser = argparse.ArgumentParser()\nparser.add_argument('--lora_r', type=int, default=16)\n"
        "parser.add_argument('--max_seq_length', type=int, default=2048)\nargs = parser.parse_args()\n"
        f"model = AutoModelForCausalLM.from_pretrained('meta-llama/Llama-3.1-8B', {base})\n{more}"
        f"config = LoraConfig({config})\n{use}\n"
        "a = TrainingArguments('out', per_device_train_batch_size=4, bf16=True)\nTrainer(model=model, args=a).train()\n"
    )


def read(source: str, words: str = "") -> Workload:
    return read_script(
        f"{HEAD}torchrun --nproc_per_node=4 train.py {words}\n", file="job.sh", files={"train.py": source}
    )


@pytest.mark.parametrize(
    ("config", "words", "rank", "targets"),
    [
        ("r=32, target_modules='all-linear', task_type='CAUSAL_LM'", "", "32", "all"),
        ("r=args.lora_r, target_modules=['q_proj', 'v_proj'], lora_alpha=32", "", "16", "query-value"),
        ("r=args.lora_r, target_modules=['q_proj', 'k_proj', 'v_proj', 'o_proj']", "--lora_r 64", "64", "attention"),
        ("r=8, target_modules=TARGETS, bias='none'", "", "8", "all"),
        ("", "", "8", "query-value"),  # PEFT's defaults for Llama
        ("lora_alpha=64, modules_to_save=None, use_dora=False", "", "8", "query-value"),
    ],
)
def test_a_configuration_in_python_states_rank_and_layers(config: str, words: str, rank: str, targets: str) -> None:
    more = "TARGETS = ['q_proj', 'v_proj', 'gate_proj', 'up_proj', 'down_proj']\n" if "TARGETS" in config else ""
    options = dict(read(write(config, more=more), words).options)
    assert (options["adapters"], options["adapters.rank"], options["adapters.targets"]) == ("lora", rank, targets)
    assert "trainable" not in options


def test_a_quantised_base_is_read_and_the_plan_is_complete() -> None:
    more = "model = prepare_model_for_kbit_training(model)\n"
    workload = read(write("r=16, target_modules='all-linear'", base=f"quantization_config={QUANTISED}", more=more))
    plan = complete(workload).plan
    assert plan is not None
    assert (plan.base_bits, plan.lora_rank, plan.lora_targets) == (4, 16, LoraTargets.ALL)
    assert plan.recompute is Recompute.FULL  # prepare_model_for_kbit_training switches it on: peft/utils/other.py


@pytest.mark.parametrize(
    "source",
    [
        write("r=pick()"),
        write("r=8, target_modules=find_all_linear_names(model)"),
        write("r=8, modules_to_save=['lm_head']"),
        write("r=8, layers_to_transform=[0, 1]"),
        write("r=8, rank_pattern={'q_proj': 4}"),
        write("r=8", base=""),  # a base in fp32 or in the checkpoint's format: that depends on the release
        write("r=8", base="load_in_4bit=pick()"),
        write("r=8", use="model = wrap(model, config)"),
        write("r=8", use="if size > 7:\n    model = get_peft_model(model, config)"),
        write("r=8", more="other = LoraConfig(r=64)\n"),
    ],
    ids=range(10),
)
def test_what_is_not_certain_is_not_known(source: str) -> None:
    unknown = dict(read(source).options)["trainable"]
    assert unknown.startswith(("unknown: only adapters are trained", "unknown: the weights are quantized"))


@pytest.mark.parametrize(
    ("line", "is_doubted"),
    [
        ("from importlib import import_module\nbot = import_module(args.bot)\n", True),
        (
            "from importlib import import_module\nset = import_module(args.data)\nm = Net.from_pretrained('gpt2')\n",
            False,
        ),
        ("", False),
    ],
)
def test_modules_that_are_loaded_by_name_may_hold_other_models(line: str, is_doubted: bool) -> None:
    text = f"import torch\n{line}loss.backward()\n"
    workload = read_script(
        "#!/bin/bash\n#SBATCH --gpus=1\npython train.py --model gpt2-medium\n",
        file="job.sh",
        files={"train.py": text},
    )
    assert ("loaded by name" in dict(workload.options).get("trainable", "")) is is_doubted


FLAGS = "--model_name_or_path meta-llama/Llama-3.1-8B --per_device_train_batch_size 4 --max_seq_length 1024 --lora_r 16"
DPO = (
    "from trl import DPOConfig, DPOTrainer\n"
    "model = AutoModelForCausalLM.from_pretrained('meta-llama/Llama-3.1-8B', torch_dtype=torch.bfloat16)\n{more}"
    "config = LoraConfig(r=16, target_modules='all-linear')\n"
    "a = DPOConfig('out', per_device_train_batch_size=2, max_length=1024, bf16=True)\n"
    "DPOTrainer(model=model, {use}args=a, peft_config=config).train()\n"
)


def test_flags_of_the_trainer_and_adapters_in_python_bound_the_memory_together() -> None:
    text = (
        "from transformers import AutoModelForCausalLM, HfArgumentParser, Trainer, TrainingArguments\n"
        "args = HfArgumentParser(TrainingArguments).parse_args()\n"
        "model = AutoModelForCausalLM.from_pretrained(args.model_name_or_path, dtype=torch.bfloat16)\n"
        "model = get_peft_model(model, LoraConfig(r=args.lora_r, target_modules=choose(args)))\n"
        "Trainer(model=model, args=args).train()\n"
    )
    options = dict(read(text, FLAGS).options)
    assert (options["worst.adapters.rank"], options["worst.adapters.targets"]) == ("16", "all")
    assert options["weights.dtype"] == "bf16"


def test_adapters_of_a_preference_trainer_need_no_other_reference() -> None:
    options = dict(read(DPO.format(more="", use="")).options)
    assert (options["roles.method"], options["adapters.rank"]) == ("dpo", "16")
    assert "roles.reference" not in options
    other = "ref = AutoModelForCausalLM.from_pretrained('meta-llama/Llama-3.1-8B', torch_dtype=torch.bfloat16)\n"
    assert "trainable" in dict(read(DPO.format(more=other, use="ref_model=ref, ")).options)


def test_adapters_in_a_module_that_the_program_may_not_come_to_are_doubted() -> None:
    module = "from peft import LoraConfig\ndef adapt(model):\n    return LoraConfig(r=8)\n"
    program = "import torch\nimport adapt\nfrom transformers import AutoModel\nm = AutoModel.from_pretrained('gpt2')\n"
    workload = read_script(
        f"{HEAD}torchrun --nproc_per_node=4 train.py\n",
        file="job.sh",
        files={"train.py": f"{program}loss.backward()\n", "adapt.py": module},
    )
    assert dict(workload.options)["trainable"] == "unknown: only adapters may be trained (adapt.py)"


@pytest.mark.parametrize(
    ("more", "is_bounded"),
    [("", True), ("class Head(nn.Module):\n    pass\nhead = Head(load(args.other))\nhead(x)\n", False)],
)
def test_a_frozen_part_of_the_one_model_takes_no_more_than_training_it(more: str, is_bounded: bool) -> None:
    text = (
        "import torch\nfrom transformers import AutoModelForSequenceClassification as Auto\n"
        f"model = Auto.from_pretrained('google-bert/bert-base-uncased')\n{more}"
        "for p in model.bert.embeddings.parameters():\n    p.requires_grad = False\n"
        "loader = DataLoader(data, batch_size=16)\nloss.backward()\n"
    )
    assert (dict(read(text).options).get("worst.trained") == "true") is is_bounded


def test_a_program_that_is_started_again_with_what_it_does_not_look_at_is_followed_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started: list[object] = []
    monkeypatch.setattr(
        followed_once, "follow_program", lambda *parts, **more: started.append(parts) or follow_program(*parts, **more)
    )
    text = (
        "import argparse\nimport torch\nfrom torch import nn\np = argparse.ArgumentParser()\n"
        "p.add_argument('--width', type=int)\np.add_argument('--out')\na = p.parse_args()\n"
        "model = nn.Linear(a.width, a.width)\nopt = torch.optim.Adam(model.parameters())\nmodel(x).backward()\n"
    )
    rows = ("--width 64 --out a", "--width 64 --out b", "--width 128 --out b")
    counts = [dict(read(text, words).options)["counted.parameters"] for words in rows]
    assert counts == ["4160-4160", "4160-4160", "16512-16512"]  # 64 * 64 + 64, 128 * 128 + 128
    assert len(started) == 2


@pytest.mark.parametrize(("more", "is_known"), [("", True), (", **extra", False)])
def test_a_number_format_may_be_in_a_table_of_arguments(more: str, is_known: bool) -> None:
    text = (
        "from transformers import AutoModel, Trainer, TrainingArguments\nimport torch\n"
        "model = AutoModel.from_pretrained('google-bert/bert-base-uncased')\n"
        f"a = TrainingArguments('out', per_device_train_batch_size=pick(8){more})\n"
        "Trainer(model=model, args=a).train()\n"
    )
    unknown = {entry.field for entry in read(text).unknown}
    assert ("plan.precision" not in unknown) is is_known


PLAIN = (
    "from transformers import AutoModelForCausalLM, HfArgumentParser, Trainer, TrainingArguments\n{more}"
    "args = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()\n"
    "model = AutoModelForCausalLM.from_pretrained(args.model_name_or_path)\n"
    "Trainer(model=model, args=args, train_dataset=load()).train()\n"
)


@pytest.mark.parametrize(
    ("name", "more", "verdict"),
    [
        ("meta-llama/Llama-2-13b-hf", "", Verdict.OOM),  # 8 bytes of each of 13 billion parameters: 97 GiB
        ("meta-llama/Llama-2-7b-hf", "", Verdict.UNKNOWN),  # 50 GiB
        ("meta-llama/Llama-2-13b-hf", "from mine import adapt\n", Verdict.UNKNOWN),
        ("meta-llama/Llama-2-13b-hf", "import bitsandbytes\n", Verdict.UNKNOWN),
    ],
)
def test_states_that_do_not_fit_run_out_whatever_the_length(name: str, more: str, verdict: Verdict) -> None:
    flags = f"--model_name_or_path {name} --per_device_train_batch_size 1 --bf16 True --num_train_epochs 1"
    workload = read_script(
        f"#!/bin/bash\n#SBATCH --nodes=1 --gres=gpu:a100:4\ntorchrun --nproc_per_node=4 train.py {flags}\n",
        file="job.sh",
        files={"train.py": PLAIN.format(more=more)},
    )
    advice = Adviser(cluster=cluster("superpod-a100"), search=False).advise(workload)
    assert advice.verdict is verdict
    assert advice.is_limit is (verdict is Verdict.OOM)


@pytest.mark.parametrize(
    ("more", "is_adapted"),
    [
        ("model = PeftModel.from_pretrained(model, 'out/first', is_trainable=True)\n", True),
        ("model = PeftModel.from_pretrained(model, 'out/first').merge_and_unload()\n", False),
    ],
)
def test_loaded_adapters_are_all_that_is_trained_unless_they_are_merged(more: str, *, is_adapted: bool) -> None:
    source = (
        "from peft import PeftModel\nfrom transformers import AutoModelForCausalLM, Trainer, TrainingArguments\n"
        f"model = AutoModelForCausalLM.from_pretrained('Qwen/Qwen2.5-0.5B')\n{more}"
        "a = TrainingArguments('out', per_device_train_batch_size=4, bf16=True)\nTrainer(model=model, args=a).train()\n"
    )
    trainable = dict(read(source).options).get("trainable", "")
    assert trainable.startswith("unknown: only adapters are trained") is is_adapted
