"""Realistic launch scripts of known frameworks that are written from a known truth, with the noise of real ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random

GPUS = 8


@dataclass(frozen=True)
class Truth:
    """What a script trains: nodes, batch of a rank, length, steps of accumulation, TP."""

    nodes: int
    micro: int
    seq: int
    steps: int
    tp: int


@dataclass(frozen=True)
class WrittenScript:
    """A script, the files that it names, and what is true of it by dotted field."""

    name: str
    text: str
    files: Mapping[str, str] = field(default_factory=dict)
    truth: Mapping[str, object] = field(default_factory=dict)


_LAUNCHERS = (
    "srun torchrun --nnodes {nodes} --nproc_per_node 8 --rdzv_backend c10d --rdzv_endpoint $HEAD:29500 {program}",
    'srun bash -c "torchrun --nnodes={nodes} --nproc-per-node=8 --master_addr=$HEAD {program}"',
    "srun apptainer exec --nv image.sif torchrun --nnodes $SLURM_NNODES --nproc_per_node 8 {program}",
    "srun --container-image=img.sqsh torchrun --nnodes $SLURM_JOB_NUM_NODES --nproc_per_node 8 {program}",
    "srun uv run torchrun --nnodes {nodes} --nproc_per_node 8 {program}",
    "srun conda run --no-capture-output -n env torchrun --nnodes {nodes} --nproc_per_node 8 {program}",
    "CMD='torchrun --nnodes {nodes} --nproc_per_node 8 {program}'\nsrun $CMD",
    'launch() {{\n  srun torchrun --nnodes {nodes} --nproc_per_node 8 "$@"\n}}\nlaunch {program}',
)
_NOISE = (
    "module purge\nmodule load cuda/12.4 nccl",
    'source "$HOME/.bashrc"\nconda activate env',
    "# --num-layers 999 --per_device_train_batch_size 999 --tensor-model-parallel-size 999",
    "export NCCL_DEBUG=INFO OMP_NUM_THREADS=8",
    "set -euo pipefail",
    'echo "starting on $(hostname) with batch_size=999"',
    "mkdir -p logs checkpoints",
    "nvidia-smi",
    "trap 'echo stopped' TERM",
    "python - <<'EOF'\nbatch_size = 999\nprint(batch_size)\nEOF",
    "if [[ -n ${DEBUG:-} ]]; then set -x; fi",
)
_HEAD = 'HEAD=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)'


def _write_megatron(truth: Truth, random: Random) -> tuple[str, str, dict[str, str], dict[str, object]]:
    whole = truth.micro * truth.steps * truth.nodes * GPUS // truth.tp
    flags = [
        *("--num-layers 24", "--hidden-size 2048", "--num-attention-heads 16", f"--seq-length {truth.seq}"),
        *(f"--tensor-model-parallel-size {truth.tp}", f"--micro-batch-size {truth.micro}"),
        *(f"--global-batch-size {whole}", "--max-position-embeddings 4096", "--train-iters 100", "--bf16"),
    ]
    random.shuffle(flags)
    setup = f"TP={truth.tp}\nARGS=(\n" + "\n".join(f"  {flag}" for flag in flags) + "\n)"
    setup = setup.replace(f"parallel-size {truth.tp}", "parallel-size $TP")
    stated = {"model.layers": 24, "model.hidden": 2048, "plan.tp": truth.tp, "plan.global_batch": whole}
    return setup, 'pretrain_gpt.py "${ARGS[@]}"', {}, stated


def _write_trainer(truth: Truth, random: Random) -> tuple[str, str, dict[str, str], dict[str, object]]:
    engine = '{"train_micro_batch_size_per_gpu": "auto", "zero_optimization": {"stage": 3}, "bf16": {"enabled": true}}'
    words = [
        "--model_name_or_path meta-llama/Llama-3.1-8B",
        f"--per_device_train_batch_size {truth.micro}",
        f"--gradient_accumulation_steps {truth.steps}",
        *(f"--block_size {truth.seq}", "--bf16 True", "--do_train", "--output_dir out", "--deepspeed ds.json"),
    ]
    random.shuffle(words)
    files = {"ds.json": engine}
    setup = ""
    if random.random() < 0.5:
        setup, files = f"cat > ds.json <<EOF\n{engine}\nEOF", {}
    stated = {"model.name": "meta-llama/Llama-3.1-8B", "plan.sharding": "zero3"}
    return setup, f"run_clm.py {' '.join(words)}", files, stated


def _write_torchtune(truth: Truth, random: Random) -> tuple[str, str, dict[str, str], dict[str, object]]:
    text = (
        f"tokenizer: {{max_seq_len: {truth.seq}}}\nmodel: {{_component_: torchtune.models.llama3_1.llama3_1_8b}}\n"
        f"batch_size: 999\ngradient_accumulation_steps: {truth.steps}\ndtype: bf16\n"
    )
    program = f"full_finetune_distributed.py --config conf/t.yaml batch_size={truth.micro}"
    return "", program, {"conf/t.yaml": text}, {"model.name": "llama-3-8b", "plan.sharding": "zero3"}


def _write_torchtitan(truth: Truth, random: Random) -> tuple[str, str, dict[str, str], dict[str, object]]:
    text = (
        f'[model]\nname = "llama3"\nflavor = "8B"\n[training]\n'
        f"local_batch_size = {truth.micro}\nseq_len = {truth.seq}\n"
        f"[parallelism]\ndata_parallel_shard_degree = -1\ntensor_parallel_degree = {truth.tp}\n"
    )
    return "", "-m torchtitan.train --job.config_file t.toml", {"t.toml": text}, {"plan.tp": truth.tp}


def _write_own(truth: Truth, random: Random) -> tuple[str, str, dict[str, str], dict[str, object]]:
    source = (
        "import argparse\nfrom torch.nn.parallel import DistributedDataParallel\np = argparse.ArgumentParser()\n"
        f"p.add_argument('--n_layer', type=int, default=12)\np.add_argument('--n_head', type=int, default=12)\n"
        f"p.add_argument('--n_embd', type=int, default=768)\n"
        f"p.add_argument('--micro_batch_size', type=int, default=1)\n"
        f"p.add_argument('--block_size', type=int, default={truth.seq})\nmodel = DistributedDataParallel(m)\n"
        "loss.backward()\n"
    )
    stated = {"model.layers": 12, "model.hidden": 768, "plan.sharding": "none"}
    return "", f"train.py --micro_batch_size {truth.micro}", {"train.py": source}, stated


def _write_recipe(truth: Truth, random: Random) -> tuple[str, str, dict[str, str], dict[str, object]]:
    whole = truth.micro * truth.steps * truth.nodes * GPUS
    data = [f"recipe.data.micro_batch_size = {truth.micro}", f"recipe.data.seq_length = {truth.seq}"]
    if random.random() < 0.5:
        words = f"micro_batch_size={truth.micro}, seq_length={truth.seq}, global_batch_size={whole}"
        data = [f"recipe.data = run.Config(llm.PreTrainingDataModule, paths=paths, {words})"]
    else:
        data.append(f"recipe.data.global_batch_size = {whole}")
    source = (
        "import nemo_run as run\nfrom nemo.collections import llm\npaths = ['/data/a']\n"
        f"recipe = llm.llama3_8b.pretrain_recipe(dir='/out', num_nodes={truth.nodes}, num_gpus_per_node=8)\n"
        f"recipe.trainer.strategy.tensor_model_parallel_size = {truth.tp}\n" + "\n".join(data) + "\n"
        "recipe.trainer.max_steps = 100\nrun.run(recipe, direct=True)\n"
    )
    stated = {"model.name": "llama3_8b", "plan.tp": truth.tp, "plan.cp": 2, "plan.global_batch": whole}
    return "", "train.py", {"train.py": source}, stated


def _write_adapters(truth: Truth, random: Random) -> tuple[str, str, dict[str, str], dict[str, object]]:
    base = random.choice(["torch_dtype=torch.bfloat16", "quantization_config=BitsAndBytesConfig(load_in_4bit=True)"])
    targets = random.choice(["'all-linear'", "['q_proj', 'v_proj']", "TARGETS"])
    source = (
        "import argparse\nfrom transformers import AutoModelForCausalLM, Trainer, TrainingArguments\n"
        "TARGETS = ['q_proj', 'k_proj', 'v_proj', 'o_proj']\np = argparse.ArgumentParser()\n"
        "p.add_argument('--bs', type=int, default=1)\np.add_argument('--rank', type=int, default=16)\n"
        f"p.add_argument('--max_seq_length', type=int, default={truth.seq})\nargs = p.parse_args()\n"
        f"model = AutoModelForCausalLM.from_pretrained('meta-llama/Llama-3.1-8B', {base})\n"
        f"model = get_peft_model(model, LoraConfig(r=args.rank, target_modules={targets}, task_type='CAUSAL_LM'))\n"
        "a = TrainingArguments('out', per_device_train_batch_size=args.bs, bf16=True)\n"
        "Trainer(model=model, args=a).train()\n"
    )
    stated = {"model.name": "meta-llama/Llama-3.1-8B"}
    return "", f"train.py --bs {truth.micro}", {"train.py": source}, stated


_Writer = Callable[[Truth, Random], tuple[str, str, dict[str, str], dict[str, object]]]
FRAMEWORKS: Mapping[str, _Writer] = {
    "megatron-lm": _write_megatron,
    "hf-trainer": _write_trainer,
    "torchtune": _write_torchtune,
    "torchtitan": _write_torchtitan,
    "own program": _write_own,
    "nemo": _write_recipe,
    "adapters in Python": _write_adapters,
}


def write_script(seed: int) -> WrittenScript:
    """Return a script of a framework, in the style that follows from a number."""
    random = Random(seed)
    name = sorted(FRAMEWORKS)[seed % len(FRAMEWORKS)]
    truth = Truth(
        nodes=random.choice([1, 2, 4]),
        micro=random.choice([1, 2, 3, 8]),
        seq=random.choice([512, 2048, 8192]),
        steps=random.choice([1, 4, 16]),
        tp=random.choice([1, 2, 4]),
    )
    setup, program, files, stated = FRAMEWORKS[name](truth, random)
    # a shell splits words of one quoted command anew, and an array is no word of it
    launchers = [row for row in _LAUNCHERS if "[@]" not in program or ("bash -c" not in row and "CMD=" not in row)]
    noise = random.sample(_NOISE, random.randrange(5))
    lines = [
        "#!/bin/bash",
        f"#SBATCH --nodes={truth.nodes}",
        random.choice(["#SBATCH --gpus-per-node=8", "#SBATCH --gres=gpu:h100:8"]),
        "#SBATCH --ntasks-per-node=1",
        random.choice(["#SBATCH --exclusive", "#SBATCH --time=2-0", "##SBATCH --nodes=999"]),
        *noise,
        _HEAD,
        setup,
        random.choice(launchers).format(nodes=truth.nodes, program=program),
    ]
    stated |= {"plan.nodes": truth.nodes, "plan.gpus": truth.nodes * GPUS}
    stated |= {"plan.micro_batch": truth.micro, "model.seq": truth.seq}
    return WrittenScript(f"{seed}: {name}", "\n".join(lines) + "\n", files, stated)
