"""What is read of programs of no known framework."""

from __future__ import annotations

import pytest

from opsk.workload.completion import complete
from opsk.workload.plan import Precision, Recompute, Sharding
from opsk.workload.workload import Workload
from opsk_jobcheck.scripts.frameworks.own_program.samples import has_several_parts
from opsk_jobcheck.scripts.script import read_script

HEAD = "#!/bin/bash\n#SBATCH --nodes=1\n#SBATCH --gpus-per-node=4\n"
ONE_GPU = "#!/bin/bash\n#SBATCH --nodes=1\n#SBATCH --gpus-per-node=1\n"
RUN = "torchrun --nproc_per_node=4 train.py"
NANO = """
gradient_accumulation_steps = 5 * 8
batch_size = 12
block_size = 1024
n_layer = 12
n_head = 12
n_embd = 768
exec(open('configurator.py').read())
if ddp:
    gradient_accumulation_steps //= ddp_world_size
    model = DistributedDataParallel(model)
loss.backward()
"""
TRAINER = """
import argparse
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="meta-llama/Llama-2-7b-hf")
    parser.add_argument("--bs", type=int, default=4)
    parser.add_argument("--max_seq_length", type=int, default=2048)
    parser.add_argument("--lora", action="store_true")
    args = parser.parse_args()
    model = AutoModelForCausalLM.from_pretrained(args.model, torch_dtype=torch.bfloat16)
    if args.lora:
        model = get_peft_model(model, LoraConfig(r=8))
    arguments = TrainingArguments(output_dir="x", per_device_train_batch_size=args.bs,
        gradient_accumulation_steps=8, bf16=True, gradient_checkpointing=True, deepspeed="ds.json")
    Trainer(model=model, args=arguments).train()
"""
SHAPE = "--n_layers 24 --d_model 1024 --n_heads 16 --seq_len 2048"


def read(command: str, files: dict[str, str] | None = None, *, head: str = HEAD) -> Workload:
    """Read a script of one command."""
    return read_script(f"{head}{command}\n", file="job.sh", files=files or {})


def reasons(workload: Workload) -> dict[str, str]:
    """Return why fields are unknown."""
    return {entry.field: entry.why for entry in workload.unknown}


def test_flags_with_usual_names_state_shape_and_plan() -> None:
    workload = read(f"{RUN} {SHAPE} --micro_batch_size 4 --precision bf16 --grad_accum_steps 2")
    model, plan = workload.model, workload.plan
    assert (model.layers, model.hidden, model.heads, model.seq) == (24, 1024, 16, 2048)
    assert (plan.micro_batch, plan.precision) == (4, Precision.BF16)
    assert dict(workload.options)["deepspeed.accumulation_steps"] == "2"


def test_overrides_of_hydra_are_read_by_their_last_name() -> None:
    workload = read(
        f"{RUN} model.hidden_size=512 +model.num_layers=8 model.num_heads=8 data.seq_len=128 trainer.devices=4"
    )
    assert (workload.model.layers, workload.model.hidden, workload.model.seq) == (8, 512, 128)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("c.yaml", "model:\n  n_layer: 12\n  n_embd: 768\n  n_head: 12\ntrain:\n  seq_length: 512\n"),
        ("c.json", '{"n_layer": 12, "n_embd": 768, /* x */ "n_head": 12, "seq_length": 512}'.replace("/* x */", "")),
        ("c.json", '{"n_layer": 12, "n_embd": 768, "n_head": 12,\n"seq_length": 512,}'),
        ("c.toml", "[model]\nn_layer = 12\nn_embd = 768\nn_head = 12\n[data]\nseq_length = 512\n"),
        ("c.py", "n_layer = 12\nn_embd = 768\nn_head = 12\nseq_length = 512\n"),
    ],
)
def test_files_of_settings_are_read(name: str, text: str) -> None:
    flag = "" if name.endswith(".py") else "--config "
    assert name in read(f"{RUN} {flag}{name}").missing_files
    model = read(f"{RUN} {flag}{name}", {name: text}).model
    assert (model.layers, model.hidden, model.heads, model.seq) == (12, 768, 12, 512)


def test_the_command_overrides_a_file_and_a_file_the_defaults_of_the_program() -> None:
    files = {
        "train.py": "n_layer = 2\nn_head = 2\nn_embd = 64\nblock_size = 32\nx.backward()",
        "c.yaml": "n_layer: 4\nn_head: 4\n",
    }
    model = read(f"{RUN} --config c.yaml --n_head 8", files).model
    assert (model.layers, model.heads, model.hidden, model.seq) == (4, 8, 64, 32)


def test_defaults_count_only_where_no_other_settings_can_be_hidden() -> None:
    files = {"train.py": "n_layer = 2\nx.backward()"}
    assert read(RUN, files).model.layers == 2
    assert read(f"{RUN} --config c.yaml", files).model.layers is None
    assert read(f"{RUN} $EXTRA", files).model.layers is None


def test_two_settings_that_differ_are_unknown() -> None:
    workload = read(f"{RUN} --config c.yaml", {"c.yaml": "a:\n  n_layer: 4\nb:\n  num_layers: 6\n"})
    assert workload.model.layers is None
    assert "several settings" in reasons(workload)["model.layers"]


def test_settings_of_another_model_are_left_out() -> None:
    text = "model:\n  n_layer: 4\nteacher:\n  n_layer: 48\n"
    assert read(f"{RUN} --config c.yaml", {"c.yaml": text}).model.layers == 4


def test_what_the_program_sets_again_is_unknown() -> None:
    files = {"train.py": "args.n_layers = args.n_layers * 2\nx.backward()"}
    workload = read(f"{RUN} {SHAPE}", files)
    assert workload.model.layers is None
    assert reasons(workload)["model.layers"] == "the program sets it again (train.py, line 1)"


def test_a_width_that_the_heads_do_not_divide_is_doubted() -> None:
    assert read(f"{RUN} --n_layers 2 --d_model 100 --n_heads 16").model.heads is None


def test_nanogpt_with_its_configuration_gets_a_plan() -> None:
    files = {"train.py": NANO, "config/gpt2.py": "n_layer=24\nn_head=16\nn_embd=1024\n"}
    workload = read(f"{RUN} config/gpt2.py --batch_size=8", files)
    assert (workload.model.layers, workload.model.hidden, workload.model.seq) == (24, 1024, 1024)
    assert (workload.plan.micro_batch, workload.plan.global_batch, workload.plan.sharding) == (8, 320, Sharding.NONE)
    assert complete(workload).plan is not None
    assert read(f"{RUN} config/gpt2.py", {"train.py": NANO}).model.layers is None


def test_arguments_in_python_of_the_trainer_are_read() -> None:
    files = {"train.py": TRAINER, "ds.json": '{"zero_optimization": {"stage": 3,},}'}
    workload = read(f"{RUN} --bs 2", files)
    plan = workload.plan
    assert (workload.framework, workload.model.name, workload.model.seq) == (
        "hf-trainer",
        "meta-llama/Llama-2-7b-hf",
        2048,
    )
    assert (plan.micro_batch, plan.global_batch) == (2, 64)
    assert (plan.precision, plan.recompute, plan.sharding) == (Precision.BF16, Recompute.FULL, Sharding.ZERO3)
    assert complete(workload).plan is not None


def test_adapters_count_where_their_switch_is_on() -> None:
    files = {"train.py": TRAINER}
    assert "trainable" not in dict(read(RUN, files).options)
    assert dict(read(f"{RUN} --lora", files).options)["adapters"] == "lora"
    always = TRAINER.replace("if args.lora:", "if size > 7:")
    assert "only adapters are trained" in dict(read(RUN, {"train.py": always}).options)["trainable"]


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("model.requires_grad_(False)", "part of the model is frozen"),
        ("p.requires_grad = False", "part of the model is frozen"),
        ("t = DPOTrainer(model, ref)", "other models are in memory too"),
        ("m = AutoModelForCausalLM.from_pretrained(x, load_in_4bit=True)", "the weights are quantized"),
    ],
)
def test_what_else_is_in_memory_or_frozen_is_said(line: str, what: str) -> None:
    assert what in dict(read(f"{RUN} {SHAPE}", {"train.py": f"{line}\nx.backward()"}).options)["trainable"]


@pytest.mark.parametrize(
    ("source", "sharding"),
    [
        ("m = FSDP(m, sharding_strategy=ShardingStrategy.SHARD_GRAD_OP)", Sharding.ZERO2),
        ("m = FSDP(m)", Sharding.ZERO3),
        ("fully_shard(m)", Sharding.ZERO3),
        ("m = DDP(m)", Sharding.NONE),
        ("if x > 1:\n  m = FSDP(m)", None),
        ("e = deepspeed.initialize(model=m, config=c)", None),
    ],
)
def test_the_class_that_wraps_the_model_states_the_sharding(source: str, sharding: Sharding | None) -> None:
    workload = read(f"{RUN} {SHAPE}", {"train.py": f"{source}\nx.backward()"})
    assert workload.plan.sharding == sharding
    assert ("plan.sharding" in reasons(workload)) == (sharding is None)


@pytest.mark.parametrize(
    ("source", "micro"),
    [
        ("x = DataLoader(d, batch_size=args.batch_size)\nm = DDP(m)\n", 16),
        ("x = DataLoader(d, batch_size=args.batch_size // world)\nm = DDP(m)\n", None),
        ("m = DDP(m)\n", None),
        ("args.batch_size = int(args.batch_size / world)\nm = DDP(m)\n", None),
    ],
)
def test_a_batch_is_that_of_a_rank_where_the_program_loads_it_so(source: str, micro: int | None) -> None:
    files = {"train.py": f"{source}loss.backward()"}
    assert read(f"{RUN} {SHAPE} --batch_size 16", files).plan.micro_batch == micro


def test_a_batch_on_one_gpu_is_the_micro_batch() -> None:
    assert read(f"python train.py {SHAPE} --batch_size 16", head=ONE_GPU).plan.micro_batch == 16
    assert read(f"{RUN} {SHAPE} --batch_size 16").plan.micro_batch is None


def test_one_process_for_several_gpus_gets_no_verdict() -> None:
    workload = read(f"python train.py {SHAPE} --micro_batch_size 16")
    assert reasons(workload)["plan.micro_batch"] == "python starts one process, and the job has 4 GPUs"
    assert read(f"srun python train.py {SHAPE} --micro_batch_size 16").plan.micro_batch is None
    assert read(f"srun --ntasks-per-node=4 python train.py {SHAPE} --micro_batch_size 16").plan.micro_batch == 16


def test_precision_is_full_where_nothing_in_the_program_lowers_it() -> None:
    assert read(f"{RUN} {SHAPE}", {"train.py": "loss.backward()"}).plan.precision is Precision.FP32
    assert read(f"{RUN} {SHAPE}", {"train.py": "m.to(bf16)\nloss.backward()"}).plan.precision is None


@pytest.mark.parametrize(
    ("name", "source", "is_training"),
    [
        ("run.py", "for x in d:\n    loss.backward()\n", True),
        ("gpt.py", "from transformers import Trainer\nTrainer(m).train()", True),
        ("cnn.py", "import tensorflow as tf\nnet.compile(loss='mse')\nnet.fit(x, y)", True),
        ("gan.py", "import tensorflow as tf\nadam.apply_gradients(rows)", True),
        ("fit.py", "from sklearn.svm import SVC\nSVC().fit(x, y)", False),
        ("main.py", "import json\nprint(1)", False),
        ("make_dataset.py", "import json\n", False),
        ("serve.py", "engine = LLM(model)\nengine.generate(x)", False),
    ],
)
def test_a_training_is_what_goes_backward_or_starts_a_trainer(name: str, source: str, is_training: bool) -> None:
    assert read(f"python {name}", {name: source}).is_training is is_training


def test_a_python_file_is_asked_for_where_there_are_gpus_alone() -> None:
    assert read("python train.py").missing_files == ("train.py",)
    assert read("python train.py", head="#!/bin/bash\n#SBATCH --nodes=1\n").missing_files == ()
    places = ("mine/train.py", "mine/train/__main__.py", "src/mine/train.py", "src/mine/train/__main__.py")
    assert read("python -m mine.train").missing_files == places


@pytest.mark.parametrize(
    ("command", "place"),
    [
        ('cd "$SLURM_SUBMIT_DIR"\npython train.py', "train.py"),
        ("cd ~/project\npython src/train.py", "src/train.py"),
        ('python "$SLURM_SUBMIT_DIR/src/train.py"', "src/train.py"),
        ("python ${ROOT}/../train.py", "train.py"),
        ("apptainer exec --pwd /repo a.sif python train.py", "train.py"),
    ],
)
def test_a_program_in_an_unknown_folder_is_looked_for_where_the_job_is_submitted(command: str, place: str) -> None:
    assert place in read(command).missing_files
    assert read(f"{command} {SHAPE}", {place: "loss.backward()"}).model.layers == 24


def test_a_module_of_a_package_finds_its_settings_from_the_root_on() -> None:
    files = {"src/mine/train.py": "from mine.config import n\nx.backward()", "src/mine/config.py": "n_layer = 3\n"}
    assert read("python -m mine.train", files).model.layers == 3


@pytest.mark.parametrize(
    ("command", "is_training"),
    [
        ("python -m mine train -c a.json", True),
        ("python main.py fit", True),
        ("python main.py export", False),
        ("exec uv run mine train conf.yaml", True),
        ("srun --cpus-per-task 8 mine_train experiment=a", True),
        ("tar xf data.tar train", False),
        ("rsync -a data train", False),
        ("torchrun --nproc_per_node=4 eval_linear.py --arch resnet50 --evaluate", False),
        ("torchrun --nproc_per_node=4 run_class_finetuning.py --model vit_base --eval --dist_eval", False),
        ("python train_tokenizer.py --vocab_size 32000", False),
        ("torchrun train.py --model_name_or_path gpt2 --do_train false --do_predict true", False),
        ("python -c \"from mine import MyTrainer; MyTrainer.from_config('$C').fit()\"", True),
        ("python -c 'import torch; print(torch.cuda.is_available())'", False),
    ],
)
def test_the_words_of_a_program_say_whether_it_trains(command: str, is_training: bool) -> None:
    assert read(command, {"main.py": "run()"}).is_training is is_training


def test_one_argument_of_the_script_is_one_value() -> None:
    assert read(f"{RUN} {SHAPE} --seed $1 --lr $2", {"train.py": "x.backward()"}).plan.precision is Precision.FP32
    assert read(f"{RUN} {SHAPE} $1", {"train.py": "x.backward()"}).plan.precision is None


def test_a_program_in_a_here_document_is_read() -> None:
    text = f"{HEAD}cat > train.py <<'EOF'\nn_layer = 3\nloss.backward()\nEOF\n{RUN}\n"
    assert read_script(text, file="job.sh").model.layers == 3


def test_gpus_that_an_engine_of_the_script_takes_are_not_idle() -> None:
    train = "accelerate launch --num_processes 3 grpo.py --model_name_or_path gpt2 --per_device_train_batch_size 2"
    workload = read(f"trl vllm-serve --model gpt2 &\n{train} --num_train_epochs 1")
    assert (workload.plan.gpus, workload.plan.gpus_per_node) == (3, 3)
    assert dict(workload.options)["engine.gpus"] == "1"
    assert "launcher.ranks" not in dict(workload.options)
    assert not workload.problems


def test_a_fork_of_openclip_has_its_formats_and_no_loss_over_all_ranks() -> None:
    """A flag of its own tells it from OpenCLIP, whose loss compares all samples with all unless told --local-loss."""
    flags = "--model ViT-L-14 --batch-size 256 --precision {word} --grad-checkpointing --continual-batch-size 32"
    for word, weights in (("pure_bf16", "bf16"), ("amp_bfloat16", None)):
        workload = read(f"{RUN} {flags.format(word=word)}")
        options = dict(workload.options)
        assert workload.plan.precision is Precision.BF16
        assert (options.get("weights.dtype"), options["loss.local"]) == (weights, "true")


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("torchrun --nproc_per_node 4 /work/picotron/mine_train.py", "no setting that opsk knows states it"),
        ("xtuner train c.py", "opsk cannot read the settings of xtuner yet"),
    ],
)
def test_only_the_settings_of_a_framework_without_a_reader_are_called_unreadable(command: str, why: str) -> None:
    assert next(entry.why for entry in read(command).unknown if entry.field == "plan.micro_batch") == why


def test_other_optimizers_than_adam_are_named() -> None:
    options = dict(read(f"{RUN} {SHAPE}", {"train.py": "o = torch.optim.SGD(p)\nloss.backward()"}).options)
    assert options["optimizer.name"] == "sgd"


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ('m = AutoModelForCausalLM.from_pretrained("gpt2")', "gpt2"),
        ('t = AutoTokenizer.from_pretrained("gpt2-xl")\nm = GPT2LMHeadModel.from_pretrained("gpt2")', "gpt2"),
        ('a = AutoModel.from_pretrained("gpt2")\nb = AutoModel.from_pretrained("gpt2-xl")', None),
        ('a = AutoModel.from_pretrained("gpt2")\nb = AutoencoderKL.from_pretrained(name)', None),
        ("m = AutoModel.from_pretrained(args.model)", "gpt2-medium"),
    ],
)
def test_the_one_model_that_a_program_loads_is_named(source: str, name: str | None) -> None:
    text = f'p.add_argument("--model", default="gpt2-medium")\n{source}\nloss.backward()'
    assert read(RUN, {"train.py": text}).model.name == name


@pytest.mark.parametrize(
    ("source", "precision"),
    [
        ("m.to(torch.bfloat16)", None),
        ("m.half()", None),
        ("with torch.autocast('cuda', dtype=torch.bfloat16):\n    pass", Precision.BF16),
        ("m.cuda()", Precision.FP32),
    ],
)
def test_number_formats_that_the_program_chooses_are_known_by_autocast_alone(
    source: str, precision: Precision | None
) -> None:
    workload = read(f"{RUN} {SHAPE}", {"train.py": f"{source}\nloss.backward()"})
    assert workload.plan.precision == precision
    assert ("plan.precision" in reasons(workload)) == (precision is None)


def test_a_configuration_of_nanotron_is_known_by_what_it_holds() -> None:
    text = """
parallelism: {dp: 2, tp: 2, pp: 1}
tokens: {micro_batch_size: 2, sequence_length: 2048, batch_accumulation_per_replica: 4}
model:
  dtype: bfloat16
  model_config: {hidden_size: 2048, num_hidden_layers: 16, num_attention_heads: 16, intermediate_size: 8192}
"""
    workload = read(f"{RUN.replace('train', 'mine')} --cfg c.yaml", {"c.yaml": text})
    assert (workload.framework, workload.plan.tp, workload.plan.dp, workload.plan.global_batch) == (
        "nanotron",
        2,
        2,
        16,
    )
    assert (workload.model.layers, workload.model.ffn, workload.model.seq) == (16, 8192, 2048)


def test_tensor_parallelism_by_its_short_name_is_no_data_parallelism() -> None:
    assert read(f"{RUN} {SHAPE} --tp 2").plan.tp == 2


def test_a_shape_is_doubted_where_another_public_model_may_be_loaded() -> None:
    source = NANO.replace(
        "exec(", "init_from = 'scratch'\nif resume():\n    model = GPT.from_pretrained(init_from)\nexec("
    )
    files = {"train.py": source, "c.py": "init_from = 'gpt2-xl'\n", "small.py": "init_from = 'gpt2'\n"}
    assert read(f"{RUN} c.py", files).model.layers is None
    assert read(f"{RUN} small.py", files).model.layers == 12
    assert read(RUN, files).model.layers == 12


def test_the_length_that_a_trainer_program_has_by_default_is_read() -> None:
    flags = "--model_name_or_path gpt2 --per_device_train_batch_size 4 --num_train_epochs 1"
    source = (
        "class Arguments(transformers.TrainingArguments):\n    model_max_length: int = field(default=512)\n"
        "parser = transformers.HfArgumentParser((Model, Arguments))\n"
    )
    assert read(f"{RUN} {flags}").missing_files == ("train.py",)
    assert read(f"{RUN} {flags}", {"train.py": source}).model.seq == 512
    assert read(f"{RUN} {flags} --model_max_length 64", {"train.py": source}).model.seq == 64


def test_adapters_that_a_trainer_program_makes_in_python_are_no_training_of_the_whole_model() -> None:
    flags = "--model_name_or_path gpt2 --per_device_train_batch_size 4 --model_max_length 64 --num_train_epochs 1"
    adapted = "model = get_peft_model(model, LoraConfig(r=8))\ntrainer.train()\n"
    switched = f"class A:\n    use_lora: bool = False\nHfArgumentParser((A,))\nif args.use_lora:\n    {adapted}"
    assert "trainable" not in dict(read(f"{RUN} {flags}").options)
    for source, option in ((adapted, True), (switched, False)):
        assert ("trainable" in dict(read(f"{RUN} {flags}", {"train.py": source}).options)) is option
    assert "trainable" in dict(read(f"{RUN} {flags} --use_lora True", {"train.py": switched}).options)
    assert read(f"{RUN.replace('train.py', 'run_clm.py')} {flags}").missing_files == ()


def test_what_a_condition_freezes_is_frozen_where_it_holds() -> None:
    source = "p.add_argument('--freeze_backbone', action='store_true')\n"
    source += "if args.freeze_backbone:\n    m.requires_grad_(False)\n"
    files = {"train.py": f"{source}loss.backward()"}
    assert "trainable" not in dict(read(f"{RUN} {SHAPE}", files).options)
    assert "frozen" in dict(read(f"{RUN} {SHAPE} --freeze_backbone", files).options)["trainable"]


VISION = """
parser.add_argument("--model", default="vit_base_patch16_224")
parser.add_argument("--batch-size", type=int, default=64)
model = DDP(timm.create_model(args.model))
loader = DataLoader(data, batch_size=args.batch_size)
with torch.autocast("cuda", dtype=torch.bfloat16):
    loss.backward()
"""


def test_a_vision_transformer_needs_no_length() -> None:
    workload = read(f"{RUN} --batch-size 256", {"train.py": VISION})
    completion = complete(workload)
    assert completion.model is not None
    assert completion.plan is not None
    # arXiv 2010.11929: 224 x 224 pixels are 196 patches of 16 x 16, and a token for the class
    assert (completion.model.layers, completion.model.seq, completion.plan.micro_batch) == (12, 197, 256)


def test_an_encoder_has_logits_of_all_tokens_where_it_predicts_masked_ones() -> None:
    flags = "--model_name_or_path roberta-base --per_device_train_batch_size 8 --max_seq_length 128 --max_steps 1"
    for program, loss in (("run_mlm.py", "plain"), ("run_glue.py", "fused")):
        completion = complete(read(f"{RUN.replace('train.py', program)} {flags}"))
        assert completion.plan is not None
        assert completion.plan.loss == loss


def test_a_batch_of_tokens_is_no_batch_of_sequences() -> None:
    for flag in ("--total_batch_size 524288", "--global_batch_size 524288"):
        assert read(f"{RUN} {SHAPE} {flag} --micro_batch_size 2").plan.global_batch is None
    assert read(f"{RUN} {SHAPE} --global_batch_size 512").plan.global_batch == 512


def test_a_dim_is_the_width_beside_layers_and_heads_alone() -> None:
    assert read(f"{RUN} --dim 288 --n_layers 6 --n_heads 6").model.hidden == 288
    assert read(f"{RUN} --dim 288").model.hidden is None
    assert read(f"{RUN} --dim 288 --d_model 144 --n_layers 6 --n_heads 6").model.hidden == 144


def test_layers_of_an_encoder_and_a_decoder_are_no_layers_of_one_stack() -> None:
    flags = "--d_model 512 --nhead 8 --num_encoder_layers 3 --num_decoder_layers 3"
    for command, source in ((flags, ""), ("--num_layers 6", "m = nn.Transformer(num_encoder_layers=6)\n")):
        workload = read(f"{RUN} {command}", {"train.py": f"{source}loss.backward()"})
        assert workload.model.layers is None
        assert reasons(workload)["model.layers"] == "encoder and decoder have layers of their own"


def test_a_batch_of_another_flag_is_not_the_trainers_default() -> None:
    flags = "--model_name_or_path gpt2 --block_size 64 --gradient_accumulation_steps 4 --num_train_epochs 1"
    assert complete(read(f"{RUN} {flags}")).plan is not None
    workload = read(f"{RUN} {flags} --train_batch_size 64")
    assert "plan.micro_batch" in complete(workload).missing


LIGER = "from transformers import Trainer\nTrainer(m).train()\n"


@pytest.mark.parametrize(
    ("line", "kernel"),
    [
        ("m = AutoLigerKernelForCausalLM.from_pretrained('meta-llama/Llama-3.1-8B')", "fused"),
        ("apply_liger_kernel_to_llama()", "fused"),
        ("apply_liger_kernel_to_llama(fused_linear_cross_entropy=False)", None),
        ("if found():\n    apply_liger_kernel_to_qwen2()", None),
        ("loss = LigerFusedLinearCrossEntropyLoss()", "fused"),
        ("m = AutoModelForCausalLM.from_pretrained('meta-llama/Llama-3.1-8B')", None),
    ],
)
def test_a_fused_loss_of_the_program_keeps_no_logits(line: str, kernel: str | None) -> None:
    for start in ("accelerate launch", "torchrun --nproc_per_node 8"):
        script = f"#!/bin/bash\n#SBATCH --nodes=1 --gpus-per-node=8\n{start} train.py --per_device_train_batch_size 1\n"
        workload = read_script(script, file="job.sh", files={"train.py": f"{LIGER}{line}\n"})
        assert dict(workload.options).get("loss.kernel") == kernel


def test_one_process_on_several_gpus_is_no_data_parallelism() -> None:
    head = "#!/bin/bash\n#SBATCH --nodes=1 --gpus-per-node=8\n"
    files = {"train.py": "loss.backward()\n"}
    assert read_script(f"{head}torchrun --nproc_per_node 8 train.py\n", file="j", files=files).plan.dp == 8
    assert read_script(f"{head}python train.py\n", file="j", files=files).plan.dp is None


@pytest.mark.parametrize(
    ("head", "layers"),
    [("", 4), ("export LAYERS=6", 6), ("export LAYERS=$(cat layers)", None)],
)
def test_a_variable_of_the_environment_has_its_default_unless_the_script_sets_it(head: str, layers: int | None) -> None:
    source = 'import os\nn_layer = int(os.environ.get("LAYERS", "4"))\nx.backward()'
    assert read(f"{head}\n{RUN}", {"train.py": source}).model.layers == layers


def test_a_trainer_of_the_users_own_is_not_that_of_huggingface() -> None:
    source = "from transformers import AutoTokenizer\nfrom mine.trainer import Trainer\nTrainer(model).train()"
    assert read("python train.py", {"train.py": source}).framework is None


def test_a_loop_in_an_imported_module_is_a_training() -> None:
    files = {"main.py": "from loops import train\ntrain(1)", "loops.py": "def train(n):\n    loss.backward()"}
    assert read("python main.py", files).is_training


def test_of_several_programs_the_one_that_goes_backward_is_read() -> None:
    files = {"run.py": "n_layer = 3\nx.backward()", "plot.py": "draw()", "report.py": "send()"}
    assert read("python run.py\npython plot.py\npython report.py\npython -m wandb sync .", files).model.layers == 3


def test_a_script_that_is_named_like_a_trainer_starts_it() -> None:
    files = {"scripts/train.sh": 'python "$(dirname "$0")/../run.py"', "run.py": "n_layer = 3\nx.backward()"}
    assert read("./scripts/train.sh", files).model.layers == 3


def test_a_model_whose_flag_has_no_value_is_unknown() -> None:
    command = "accelerate launch sft.py --model_name_or_path $MODEL --per_device_train_batch_size 2 --max_steps 5"
    workload = read(f"MODEL=\n{command}")
    assert (workload.model.name, workload.missing_files) == (None, ("sft.py",))


@pytest.mark.parametrize(
    ("command", "program", "line", "module"),
    [
        ("python -m train.train", "train/train.py", "import config", "config.py"),
        ("python scripts/train.py", "scripts/train.py", "from project.conf import BATCH_SIZE", "project/conf.py"),
        ("python train.py", "train.py", "from project.model import config", "project/model/config.py"),
    ],
)
def test_settings_of_another_package_are_below_the_working_directory(
    command: str, program: str, line: str, module: str
) -> None:
    """``python -m`` searches the working directory first, and projects put it into PYTHONPATH for ``scripts/``."""
    source = f"import torch\n{line}\nloader = DataLoader(data, batch_size=4)\nloss.backward()\n"
    script = f"#!/bin/bash\n#SBATCH --gres=gpu:1\n{command}\n"
    files = {program: source, module: "BATCH_SIZE = 24\n"}
    assert module in read_script(script, file="job.sh", files={program: source}).missing_files
    assert read_script(script, file="job.sh", files=files).plan.micro_batch == 24


LOOP = "\nloss.backward()\n"
BF16 = (
    "bf16 = torch.cuda.is_available() and torch.cuda.is_bf16_supported()\nTrainingArguments(bf16=bf16, fp16=not bf16)"
)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("import timm\nclass Config:\n    model_name = 'resnet50'\ntimm.create_model(Config.model_name)", "resnet50"),
        ("from timm import create_model\ncreate_model('resnet50')", "resnet50"),
        ("from mine import create_model\ncreate_model('resnet50')", None),
        ("C = {'name': 'gpt2'}\nCONFIG = {'m': 'gpt2'}\nAutoModel.from_pretrained(CONFIG['m'])", "gpt2"),
        ("T5ForConditionalGeneration.from_pretrained('google-t5/t5-base')", "google-t5/t5-base"),
        ("FastLanguageModel.from_pretrained(max_seq_length=8, model_name='gpt2')", "gpt2"),
        ("GenerationConfig.from_pretrained('gpt2')", None),
    ],
)
def test_the_model_is_the_one_that_the_program_makes(text: str, name: str | None) -> None:
    assert read("python train.py", {"train.py": text + LOOP}, head=ONE_GPU).model.name == name


@pytest.mark.parametrize(
    ("use", "name"),
    [
        ("make_model(args.model)", "RN50"),
        ("create_model(vision=args.tower)\nsave(args.model)", None),
        ("load_model(model)", "RN50"),  # cannot be distinguished from the setting
    ],
)
def test_a_default_that_nothing_makes_a_model_of_names_none(use: str, name: str | None) -> None:
    """A program keeps the parser of another one: the default of its ``--model`` is not what it trains."""
    text = f"p.add_argument('--model', default='RN50')\nargs = p.parse_args()\n{use}"
    assert read("python train.py", {"train.py": text + LOOP}, head=ONE_GPU).model.name == name
    assert read("python train.py --model RN50", {"train.py": text + LOOP}, head=ONE_GPU).model.name == "RN50"


def test_a_class_of_settings_states_the_batch_but_no_shape() -> None:
    text = "class Config:\n    batch_size = 32\n    num_layers = 4\n    hidden_size = 64\n    num_heads = 4"
    workload = read("python train.py", {"train.py": text + LOOP}, head=ONE_GPU)
    assert (workload.plan.micro_batch, workload.model.layers) == (32, None)


@pytest.mark.parametrize(("gpu", "precision"), [("a100", Precision.BF16), ("v100", Precision.FP16), ("any", None)])
def test_a_program_that_asks_the_gpu_for_bf16_gets_its_answer(gpu: str, precision: Precision | None) -> None:
    head = f"#!/bin/bash\n#SBATCH --gres=gpu:{gpu}:1\n"
    assert read("python train.py", {"train.py": BF16 + LOOP}, head=head).plan.precision is precision


def test_two_formats_of_16_bits_take_the_same_memory() -> None:
    text = "dtype = 'bfloat16' if torch.cuda.is_bf16_supported() else 'float16'"
    assert read("python train.py", {"train.py": text + LOOP}, head=ONE_GPU).plan.precision is Precision.BF16


def test_an_unknown_value_hides_no_other_setting() -> None:
    workload = read("python train.py --task $task --batch_size 8 --lr $LR", {"train.py": LOOP}, head=ONE_GPU)
    assert workload.plan.micro_batch == 8
    text = 'p.add_argument("--amp", action="store_true")\np.add_argument("--batch_size", default=8)'
    hidden = read("python train.py --amp $task", {"train.py": text + LOOP}, head=ONE_GPU)
    assert hidden.plan.micro_batch is None


def test_constants_that_refer_to_each_other_end() -> None:
    text = "a = 1 if b and is_bf16_supported() else 2\nb = 1 if a and is_bf16_supported() else 2\nModel(bf16=a)"
    assert read("python train.py", {"train.py": text + LOOP}, head=ONE_GPU).is_training


CONFIGURED = (
    "from transformers import {kind}, AutoModelForCausalLM, Trainer, TrainingArguments\n"
    "model = AutoModelForCausalLM.from_config({kind}({sizes}))\n"
    "a = TrainingArguments('out', per_device_train_batch_size=4)\nTrainer(model=model, args=a).train()\n"
)


@pytest.mark.parametrize(
    ("kind", "sizes", "shape"),
    [
        ("RobertaConfig", "num_hidden_layers=6, num_attention_heads=12", (6, 768, 12, 3072, 50265)),
        ("BertConfig", "hidden_size=256, num_attention_heads=4, vocab_size=8000", (12, 256, 4, 3072, 8000)),
        ("GPT2Config", "n_layer=4, n_head=8, n_embd=512", (4, 512, 8, None, 50257)),
        ("LlamaConfig", "hidden_size=512, num_attention_heads=8, num_hidden_layers=8", (8, 512, 8, 11008, 32000)),
        ("RobertaConfig", "num_hidden_layers=6, vocab_size=len(words)", (6, 768, 12, 3072, None)),
    ],
)
def test_a_configuration_class_has_sizes_of_its_own(kind: str, sizes: str, shape: tuple[int | None, ...]) -> None:
    source = CONFIGURED.replace("{kind}", kind).replace("{sizes}", sizes)
    script = "#!/bin/bash\n#SBATCH --gres=gpu:1\npython main.py\n"
    model = read_script(script, file="job.sh", files={"main.py": source}).model
    assert (model.layers, model.hidden, model.heads, model.ffn, model.vocab) == shape


def test_two_configurations_state_nothing() -> None:
    source = CONFIGURED.replace("{kind}", "BertConfig").replace("{sizes}", "num_hidden_layers=6")
    source += "other = BertConfig(num_hidden_layers=3)\n"
    script = "#!/bin/bash\n#SBATCH --gres=gpu:1\npython main.py\n"
    assert read_script(script, file="job.sh", files={"main.py": source}).model.hidden is None


@pytest.mark.parametrize(("flags", "is_quantised"), [("", False), ("--bits 8", True), ("--bits 16", False)])
def test_a_base_is_quantized_where_one_of_the_alternatives_of_a_condition_holds(
    flags: str, *, is_quantised: bool
) -> None:
    source = "p.add_argument('--bits', type=int, default=16)\nif args.bits in [4, 8]:\n"
    source += "    kwargs = dict(load_in_4bit=args.bits == 4)\nloss.backward()\n"
    options = dict(read(f"{RUN} {SHAPE} {flags}", {"train.py": source}).options)
    assert ("trainable" in options) is is_quantised


def test_a_program_that_is_named_like_one_of_trl_is_read_as_that_of_its_user() -> None:
    workload = read("python sft.py", {"sft.py": TRAINER})
    assert (workload.framework, workload.model.name) == ("hf-trainer", "meta-llama/Llama-2-7b-hf")


def test_tests_of_a_trainer_before_it_are_no_training() -> None:
    workload = read("python -m pytest tests/test_train.py -q\npython scripts/go.py", {"scripts/go.py": TRAINER})
    assert workload.model.name == "meta-llama/Llama-2-7b-hf"


def test_a_default_that_is_a_constant_has_its_value() -> None:
    source = TRAINER.replace('default="meta-llama/Llama-2-7b-hf"', "default=settings.BASE").replace(
        "default=2048", "default=LENGTH"
    )
    files = {"train.py": f"from settings import LENGTH\nimport settings\n{source}"}
    constants = {"settings.py": "BASE = 'Qwen/Qwen2.5-7B'\nLENGTH = 512\n"}
    workload = read(RUN, files | constants)
    assert (workload.model.name, workload.model.seq) == ("Qwen/Qwen2.5-7B", 512)
    assert read(f"{RUN} --max_seq_length 256", files | constants).model.seq == 256
    assert read(RUN, files).model.seq is None


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        ("data = pandas.DataFrames('reviews.csv')", True),
        ("steps = percentiles(interviews)  # retrieve all", True),
        ("images, video_inputs = process(messages)\nx = encode(images=images, videos=video_inputs)", True),
        ("n_views = 2", False),
        ("videos = read(files)", False),
        ("frames = read(clip)", False),
        ("tiles = cut(image)", False),
        ("retriever = build()", False),
    ],
)
def test_a_sample_has_several_parts_by_words_that_say_so(text: str, *, is_one: bool) -> None:
    assert has_several_parts(text) is not is_one


OWN_LOOP = """
from accelerate import Accelerator
from fire import Fire
from transformers import AutoModelForCausalLM
def train(name: str = "Qwen/Qwen2.5-0.5B", batch_size_per_device: int = 4, max_length: int = 512):
    model = AutoModelForCausalLM.from_pretrained(name)
    Accelerator().backward(model(x).loss)
Fire(train)
"""


@pytest.mark.parametrize(("flag", "micro"), [("--batch_size_per_device=2", 2), ("", 4), ("--samples=2", 4)])
def test_a_loop_with_flags_of_the_trainer_has_no_batch_of_the_trainer(flag: str, micro: int) -> None:
    flags = f"--num_train_epochs=3 --gradient_accumulation_steps=4 --warmup_ratio=0.1 {flag}"
    command = f"accelerate launch --num_processes 4 --mixed_precision bf16 tune.py {flags}"
    workload = read(command, {"tune.py": OWN_LOOP})
    assert workload.plan.micro_batch == micro
    other = read(command, {"tune.py": OWN_LOOP.replace("batch_size_per_device: int = 4, ", "")})
    assert other.plan.micro_batch == (2 if "batch" in flag else None)
    assert "plan.micro_batch" in complete(other).missing or other.plan.micro_batch == 2


IN_FOLDER = (
    "import sys, yaml\nfrom pathlib import Path\n"
    "from transformers import AutoModelForSeq2SeqLM, Trainer, TrainingArguments\n"
    "FOLDER = Path(__file__).parent / 'configs'\ncfg = yaml.safe_load(open(FOLDER / sys.argv[1]))\n"
    "model = AutoModelForSeq2SeqLM.from_pretrained(cfg['checkpoint'])\n"
    "Trainer(model=model, args=TrainingArguments(**cfg['training_args'])).train()\n"
)


@pytest.mark.parametrize(("folder", "is_read"), [("configs", True), ("others", False)])
def test_a_file_of_settings_may_lie_in_the_folder_that_the_program_names(folder: str, *, is_read: bool) -> None:
    settings = "checkpoint: our-lab/newsT5-base\ntraining_args:\n  per_device_train_batch_size: 16\n"
    files = {"train.py": IN_FOLDER, f"{folder}/first.yaml": settings}
    workload = read("torchrun --nproc_per_node=4 train.py first.yaml", files)
    assert (workload.plan.micro_batch == 16) is is_read
    assert (workload.model.name == "our-lab/newsT5-base") is is_read


@pytest.mark.parametrize(
    ("target", "place"),
    [
        ("mine.first:main", "src/mine/first.py"),
        ("mine:first.main", "mine/first.py"),  # an attribute of the package
    ],
)
def test_a_command_of_the_project_starts_the_module_that_its_settings_name(target: str, place: str) -> None:
    project = f'[project]\nname = "mine"\n\n[project.scripts]\nmy-train = "{target}"\n'
    words = "uv run my-train --max_seq_length 512"
    assert "pyproject.toml" in read(words).missing_files
    workload = read(words, {"pyproject.toml": project, place: TRAINER})
    assert (workload.model.name, workload.model.seq) == ("meta-llama/Llama-2-7b-hf", 512)
