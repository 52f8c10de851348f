"""Values that a Python program hands on from a file, a table, a module or a function of its own."""

from __future__ import annotations

import pytest

from opsk.workload.workload import Workload
from opsk_jobcheck.scripts.script import read_script

HEAD = "#!/bin/bash\n#SBATCH --nodes=1\n#SBATCH --gpus-per-node=1\n"
IMPORTS = "from transformers import AutoModelForCausalLM, Trainer, TrainingArguments\n"
TRAINS = """
model = AutoModelForCausalLM.from_pretrained({name})
args = TrainingArguments("out", per_device_train_batch_size={batch}, gradient_accumulation_steps=2, bf16=True)
Trainer(model=model, args=args).train()
"""


def read(program: str, command: str = "python train.py", **files: str) -> Workload:
    texts = {name.replace("_yaml", ".yaml").replace("_py", ".py"): text for name, text in files.items()}
    return read_script(f"{HEAD}{command}\n", file="job.sh", files={"train.py": program, **texts})


def summarise(workload: Workload) -> tuple[str | None, int | None]:
    return workload.model.name, workload.plan.micro_batch


@pytest.mark.parametrize(
    ("program", "files"),
    [
        (
            "import yaml\ncfg = yaml.safe_load(open('run.yaml'))\n"
            + TRAINS.format(name="cfg['model']['name']", batch="cfg['train']['batch']"),
            {"run_yaml": "model: {name: Qwen/Qwen2.5-7B}\ntrain: {batch: 3}\neval: {name: none, batch: 9}\n"},
        ),
        (
            "import config\n" + TRAINS.format(name="config.BASE", batch="config.BATCH"),
            {
                "config_py": "import os\nQUICK = os.environ.get('QUICK', '0') == '1'\n"
                "if QUICK:\n    BASE, BATCH = 'gpt2', 1\nelse:\n    BASE = 'Qwen/Qwen2.5-7B'\n    BATCH = 3\n"
            },
        ),
        (
            "def start(setup):\n"
            + TRAINS.format(name="setup['base']", batch="setup['batch'] // 2").replace("\n", "\n    ")
            + "\nif __name__ == '__main__':\n    start({'base': 'Qwen/Qwen2.5-7B', 'batch': 6})\n",
            {},
        ),
        (
            "import argparse, config\nparser = argparse.ArgumentParser()\n"
            "parser.add_argument('--base', default=config.BASE)\nargs = parser.parse_args()\n"
            + TRAINS.format(name="args.base", batch="config.table['batch']"),
            {"config_py": "BASE = 'Qwen/' + 'Qwen2.5-7B'\ntable = dict(batch=3)\n"},
        ),
        (
            "common = {'per_device_train_batch_size': 3, 'bf16': True}\n"
            "model = AutoModelForCausalLM.from_pretrained('Qwen/Qwen2.5-7B')\n"
            "Trainer(model=model, args=TrainingArguments(**common)).train()\n",
            {},
        ),
        ("from build import load\nmodel = load()\nTrainer(model=model, args=TrainingArguments('out', "
         "per_device_train_batch_size=3)).train()\n",
         {"build_py": IMPORTS + "def load():\n    return AutoModelForCausalLM.from_pretrained('Qwen/Qwen2.5-7B')\n"}),
    ],
)  # fmt: skip
def test_a_value_is_followed_to_where_it_is_stated(program: str, files: dict[str, str]) -> None:
    assert summarise(read(IMPORTS + program, **files)) == ("Qwen/Qwen2.5-7B", 3)


def test_a_value_that_was_followed_is_cited_where_it_is_used() -> None:
    workload = read(
        f"{IMPORTS}import config\n{TRAINS.format(name='config.BASE', batch='config.BATCH')}",
        config_py="BASE, BATCH = 'gpt2', 2 + 1\nBASE = 'Qwen/Qwen2.5-7B'\nBATCH = 3\n",
    )
    evidence = next(entry for entry in workload.evidence if entry.field == "plan.micro_batch")
    assert (evidence.value, evidence.file, evidence.line) == (3, "train.py", 5)


@pytest.mark.parametrize(
    "setting",
    [
        "import os\nbatch = len(os.listdir('data'))\n",  # known when the job runs
        "batch = 3\nif small():\n    batch = 4\n",
        "import sys\nbatch = int(sys.argv[1])\n",
    ],
)
def test_a_value_that_only_the_running_program_knows_stays_unknown(setting: str) -> None:
    program = IMPORTS + setting + TRAINS.format(name="'Qwen/Qwen2.5-7B'", batch="batch")
    assert summarise(read(program)) == ("Qwen/Qwen2.5-7B", None)


def test_a_flag_of_the_command_counts_before_what_was_followed() -> None:
    program = f"""{IMPORTS}import argparse, config
parser = argparse.ArgumentParser()
parser.add_argument("--batch", type=int, default=config.BATCH)
args = parser.parse_args()
{TRAINS.format(name="'Qwen/Qwen2.5-7B'", batch="args.batch")}"""
    assert read(program, config_py="BATCH = 2 * 2\n").plan.micro_batch == 4
    assert read(program, "python train.py --batch 16", config_py="BATCH = 2 * 2\n").plan.micro_batch == 16


def test_a_trainer_of_trl_loads_the_model_that_it_is_given_by_name() -> None:
    program = "import config\nfrom trl import SFTConfig, SFTTrainer\nargs = SFTConfig(max_length=512, bf16=True)\n"
    workload = read(f"{program}SFTTrainer(model=config.BASE, args=args).train()\n", config_py="BASE = 'gpt2'\n")
    assert workload.model.name == "gpt2"


CUTS = "tokens = data.map(lambda row: tokenizer(row['text'], truncation=True, max_length={length}))\n"


@pytest.mark.parametrize(
    ("text", "length"),
    [
        (CUTS.format(length="256"), 256),
        (CUTS.format(length="settings.LENGTH"), 384),
        (CUTS.format(length="256") + "labels = tokenizer(data['b'], truncation=True, max_length=64)\n", 256),
        ("def cut(row):\n    return tokenizer(row['a'], truncation=True, max_length=settings.LENGTH)\n"
         "data = load().map(cut)\n", 384),
        ("tokens = tokenizer(data['a'], max_length=256)\n", None),  # longer ones are not cut
        (CUTS.format(length="256") + "more = tokenizer(data['b'], truncation=True)\n", None),
        (CUTS.format(length="256") + "prompt = tokenizer('How?', return_tensors='pt')\n", 256),
    ],
)  # fmt: skip
def test_texts_are_as_long_as_a_program_cuts_them(text: str, length: int | None) -> None:
    program = f"{IMPORTS}import settings\n{text}{TRAINS.format(name=repr('Qwen/Qwen2.5-7B'), batch='3')}"
    assert read(program, settings_py="LENGTH = 3 * 128\n").model.seq == length


def test_a_program_that_may_have_ended_before_is_followed_as_one_that_trains() -> None:
    program = f"""{IMPORTS}import config
def main():
    if not exists(config.DATA):
        return
    {TRAINS.format(name="config.BASE", batch="config.BATCH").replace(chr(10), chr(10) + "    ")}
main()
"""
    workload = read(program, config_py="DATA, BASE, BATCH = '/d', 'a', 1\nBASE = 'Qwen/Qwen2.5-7B'\nBATCH = 3\n")
    assert summarise(workload) == ("Qwen/Qwen2.5-7B", 3)


def test_one_of_several_models_of_other_files_is_not_the_trained_one() -> None:
    program = f"{IMPORTS}from build import load\nmodel, other = load()\n"
    program += "Trainer(model=model, args=TrainingArguments('out', per_device_train_batch_size=3)).train()\n"
    build = (
        "from transformers import LlamaConfig, LlamaForCausalLM, AutoModelForCausalLM\ndef load():\n"
        "    small = LlamaForCausalLM(LlamaConfig(num_hidden_layers=4))\n"
        "    return small, AutoModelForCausalLM.from_pretrained('Qwen/Qwen2.5-7B')\n"
    )
    assert read(program, build_py=build).model.name is None


def test_a_parameter_of_a_function_is_no_flag_of_the_same_name() -> None:
    program = f"""{IMPORTS}import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--batch_size", type=int, default=16)
args = parser.parse_args()
def start(batch_size):
    {TRAINS.format(name=repr("Qwen/Qwen2.5-7B"), batch="batch_size").replace(chr(10), chr(10) + "    ")}
start(args.batch_size // 4)
"""
    assert read(program).plan.micro_batch == 4
    assert read(program, "python train.py --batch_size 8").plan.micro_batch == 2


@pytest.mark.parametrize("command", ["-m gpt2-medium -b 4 -c run.yaml", "--base gpt2-medium --size 4 --setup run.yaml"])
def test_a_flag_has_its_value_under_all_of_its_names(command: str) -> None:
    """Some have a letter, some another name in the program (``dest``)."""
    program = (
        "import argparse\nparser = argparse.ArgumentParser()\n"
        "parser.add_argument('-m', '--base', dest='model_name', default='gpt2')\n"
        "parser.add_argument('-b', '--size', dest='batch_size', type=int, default=8)\n"
        "parser.add_argument('-c', '--setup', dest='config')\nargs = parser.parse_args()\n"
        + TRAINS.format(name="args.model_name", batch="args.batch_size")
    )
    workload = read(IMPORTS + program, f"python train.py {command}", run_yaml="max_seq_length: 256\n")
    assert (*summarise(workload), workload.model.seq) == ("gpt2-medium", 4, 256)


def test_a_model_that_a_program_does_not_come_to_load_is_none_of_its_own() -> None:
    program = (
        "from transformers import AutoModel\n"
        "def compare():\n    judge = AutoModelForCausalLM.from_pretrained('Qwen/Qwen2.5-14B')\n"
        "def main(score=False):\n    if score:\n        compare()\n"
        + TRAINS.format(name="'Qwen/Qwen2.5-7B'", batch="3").replace("\n", "\n    ")
        + "\nmain()\n"
    )
    assert summarise(read(IMPORTS + program)) == ("Qwen/Qwen2.5-7B", 3)
    assert summarise(read(IMPORTS + program.replace("main()\n", "main(score=True)\n")))[0] is None


def test_what_the_training_wrote_is_loaded_behind_it() -> None:
    program = TRAINS.format(name="'Qwen/Qwen2.5-7B'", batch="3").replace("Trainer(", "trainer = Trainer(", 1)
    program = program.replace(".train()", "\ntrainer.train()\n")
    behind = "best = AutoModelForCausalLM.from_pretrained(find_best(folder))\nprint(test(best))\n"
    assert summarise(read(IMPORTS + program + behind)) == ("Qwen/Qwen2.5-7B", 3)
    assert summarise(read(IMPORTS + behind + program))[0] is None


def test_texts_are_as_long_as_where_the_program_comes_to_cut_them() -> None:
    cut = "rows = rows.map(lambda row: tokenizer(row['text'], truncation=True, max_length=256))\n"
    other = "def score(texts):\n    return tokenizer(texts, return_tensors='pt', padding=True)\n"
    program = IMPORTS + other + TRAINS.format(name="'Qwen/Qwen2.5-7B'", batch="3").replace("args = ", f"{cut}args = ")
    assert read(program).model.seq == 256
    assert read(f"{program}score(texts)\n").model.seq is None


def test_what_makes_a_tokenizer_or_sets_it_up_cuts_no_text() -> None:
    cut = "x = tokenizer(texts, truncation=True, max_length=256)\n"
    other = "tokenizer = get_tokenizer(folder)\nwith tokenizer.as_target_tokenizer():\n    y = "
    program = IMPORTS + other + cut.replace("x = ", "") + cut + TRAINS.format(name="'Qwen/Qwen2.5-7B'", batch="3")
    assert read(program).model.seq == 256


def test_flags_of_a_program_that_reads_none_state_nothing() -> None:
    program = "from mine.config import Settings\nfrom mine.work import train\ntrain(Settings(batch_size=16))\n"
    command = "python launch.py --per_device_train_batch_size 4 --max_seq_length 512 --bf16 True"
    script = f"{HEAD}{command} --gradient_checkpointing True\n"
    workload = read_script(script, file="job.sh", files={"launch.py": program})
    assert (workload.plan.micro_batch, workload.plan.precision, workload.model.seq) == (None, None, None)
    assert any("does not read its command line" in entry.why for entry in workload.unknown)
    taken = read_script(script, file="job.sh", files={"launch.py": f"import sys\nprint(sys.argv)\n{program}"})
    assert taken.plan.micro_batch == 4


LOOP = (
    "import argparse\nfrom accelerate import Accelerator\nfrom transformers import AutoModelForCausalLM\n"
    "p = argparse.ArgumentParser()\np.add_argument('--batch_size_per_device', type=int, default=2)\n"
    "p.add_argument('--gradient_accumulation_steps', type=int, default=1)\n"
    "p.add_argument('--num_train_epochs', type=int, default=1)\np.add_argument('--max_length', type=int, default=512)\n"
    "args = p.parse_args()\naccelerator = Accelerator()\n"
    "model = accelerator.prepare(AutoModelForCausalLM.from_pretrained('Qwen/Qwen2.5-0.5B'))\n"
    "for batch in DataLoader(data, batch_size=args.batch_size_per_device):\n"
    "    accelerator.backward(model(**batch).loss)\n"
)


@pytest.mark.parametrize("launcher", ["python", "accelerate launch --num_processes 1 --mixed_precision bf16"])
def test_a_loop_with_flags_of_the_trainers_names_has_none_of_its_defaults(launcher: str) -> None:
    command = f"{launcher} train.py --num_train_epochs 3 --gradient_accumulation_steps 4 --batch_size_per_device=3"
    workload = read(LOOP, command)
    assert (workload.framework or "").partition("+")[0].strip() in ("", "accelerate")
    assert summarise(workload) == ("Qwen/Qwen2.5-0.5B", 3)
    assert workload.model.seq == 512
    made = LOOP + "Trainer(model=model, args=TrainingArguments('out')).train()\n"
    assert read(made, command).framework == "hf-trainer"


def test_a_batch_that_is_cut_for_the_steps_of_accumulation_is_not_that_of_a_gpu() -> None:
    program = (
        "import argparse\nfrom mine import loop\nfrom transformers import AutoModelForCausalLM\n"
        "p = argparse.ArgumentParser()\np.add_argument('--batch_size', type=int, default=64)\n"
        "p.add_argument('--gradient_accumulation_steps', type=int, default=16)\nargs = p.parse_args()\n"
        "model = AutoModelForCausalLM.from_pretrained('Qwen/Qwen2.5-0.5B')\n"
        "for batch in loop.load(batch_size=args.batch_size):\n    loop.step(model, batch, args).backward()\n"
    )
    step = (
        "def step(model, batch, args):\n    for part in batch.{cut}(args.gradient_accumulation_steps):\n        pass\n"
    )
    for cut, micro_batch in (("chunk", None), ("take", 64)):
        files = {"train.py": program, "mine/loop.py": step.format(cut=cut)}
        workload = read_script(f"{HEAD}python train.py\n", file="job.sh", files=files)
        assert workload.plan.micro_batch == micro_batch
        assert dict(workload.options).get("worst.micro_batch") == (None if micro_batch else "4")


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("$SCRATCH/models/Qwen2.5-7B", "Qwen2.5-7B"),
        ('"${SLURM_SUBMIT_DIR}/ckpts/Qwen2.5-7B-mine/checkpoint-200/"', "Qwen2.5-7B-mine"),
        ("$SCRATCH/models/mine", None),
        ("$SCRATCH/Qwen2.5-7B/$RUN", None),
        ("$SCRATCH-Qwen2.5-7B", None),
    ],
)
@pytest.mark.parametrize("flag", ["--model_name_or_path", "--base"])
def test_the_end_of_a_path_names_the_model(path: str, name: str | None, flag: str) -> None:
    """The beginning is a variable of the environment; a program may have a flag of its own for it."""
    program = (
        "import argparse\nparser = argparse.ArgumentParser()\n"
        f"parser.add_argument('{flag}', dest='model_path')\nargs = parser.parse_args()\n"
        + TRAINS.format(name="args.model_path", batch="3")
    )
    more = "--num_train_epochs 1 --save_steps 5 --logging_steps 5" if flag != "--base" else ""
    assert summarise(read(IMPORTS + program, f"python train.py {flag} {path} {more}"))[0] == name


def test_a_batch_that_is_handed_to_the_trainer_is_that_of_a_gpu() -> None:
    program = (
        "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--batch_size', type=int)\n"
        "parser.add_argument('--num_train_epochs', type=int, default=1)\n"
        "parser.add_argument('--save_steps', type=int, default=1)\nargs = parser.parse_args()\n"
        + TRAINS.format(name="'Qwen/Qwen2.5-7B'", batch="args.batch_size")
    )
    command = "python train.py --num_train_epochs 2 --save_steps 5 --batch_size 3"
    assert read(IMPORTS + program, command).plan.micro_batch == 3
    doubted = read(IMPORTS + program.replace("per_device_train_batch_size=args.batch_size, ", ""), command)
    assert doubted.plan.micro_batch is None
