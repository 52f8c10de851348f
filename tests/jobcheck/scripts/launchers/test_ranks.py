"""What launchers state of nodes and ranks, and where that does not agree with what Slurm is asked for."""

from __future__ import annotations

import pytest

from opsk.workload.workload import Workload
from opsk_jobcheck.scripts.bash.values import literal, unknown
from opsk_jobcheck.scripts.launchers.ranks import OPTION, read_ranks
from opsk_jobcheck.scripts.script import read_script
from opsk_jobcheck.scripts.settings.arguments import parse_arguments
from opsk_jobcheck.scripts.settings.findings import Findings

ASKED = "#SBATCH --nodes=2\n#SBATCH --gpus-per-node=8\n"
ONE = "#SBATCH --ntasks-per-node=1\n"


def read(body: str, *, head: str = ASKED) -> Workload:
    """Read a script that asks Slurm for two nodes of eight GPUs, unless another head is given."""
    return read_script(f"#!/bin/bash\n{head}{body}\n", file="job.sh")


def said(workload: Workload) -> str:
    """Return all problems in one text."""
    return "; ".join(problem.what for problem in workload.problems)


@pytest.mark.parametrize(
    ("body", "nodes", "per_node", "gpus"),
    [
        ("torchrun --nnodes 4 --nproc_per_node 8 train.py", 4, 8, 32),
        ("python -m torch.distributed.launch --nnodes=4 --nproc_per_node=8 train.py", 4, 8, 32),
        ("deepspeed --num_nodes 2 --num_gpus 4 train.py", 2, 4, 8),
        ("srun -N 4 --gres=gpu:8 torchrun --nproc_per_node 8 train.py", 4, 8, 32),
        ("srun -p x -n 8 -N 8 --ntasks-per-node=1 --gpus-per-task=8 -w h torchrun train.py", 8, 8, 64),
        ('srun --nodes=2 --gpus-per-node=a100:4 bash -c "torchrun train.py"', 2, 4, 8),
        ("srun -N $1 --gpus-per-node=4 torchrun train.py", None, 4, None),
        ("srun $ARGS -N 2 --gpus-per-node=4 python train.py", None, None, None),
        ("X=$(srun -N1 hostname)\npython train.py", None, None, None),
        ("torchrun --nnodes 1:4 --nproc_per_node gpu train.py", None, None, None),
    ],
)
def test_sizes_that_slurm_is_not_asked_for_come_from_launchers(
    body: str, nodes: int | None, per_node: int | None, gpus: int | None
) -> None:
    plan = read(body, head="").plan
    assert (plan.nodes, plan.gpus_per_node, plan.gpus) == (nodes, per_node, gpus)


def test_what_slurm_is_asked_for_beats_launchers() -> None:
    plan = read("srun --gpus-per-node=4 torchrun --nnodes 1 --nproc_per_node 4 train.py").plan
    assert (plan.nodes, plan.gpus_per_node, plan.gpus) == (2, 8, 16)


FOUR = "#SBATCH --nodes=4\n#SBATCH --gpus-per-node=8\n"
TASKS = "#SBATCH --ntasks-per-node=8\n"


@pytest.mark.parametrize(
    ("head", "body", "nodes", "per_node", "gpus"),
    [
        (TASKS, "srun -N 2 --ntasks-per-node=8 python train.py", 2, 8, 16),
        (TASKS, "srun --nodes=2 --ntasks=16 python train.py", 2, 8, 16),
        ("", "srun -N2 --ntasks-per-node=1 torchrun --nnodes=2 --nproc_per_node=8 train.py", 2, 8, 16),
        ("", "srun -N 1 --gpus-per-node=4 torchrun --nnodes 1 --nproc_per_node 4 train.py", 1, 4, 4),
        # which of the nodes is left to Slurm
        (TASKS, "srun --ntasks=16 python train.py", None, 8, None),
        # one of several steps that train together, or that may
        ("", "for R in 0 1 2 3; do srun -N1 torchrun --nnodes 4 --node_rank $R train.py & done", 4, 8, 32),
        ("", "srun -N 1 -n 1 accelerate launch --num_machines 4 --machine_rank 0 train.py", 4, 8, 32),
        ("", "srun -N 1 -n 1 python train.py", 4, 8, 32),
        ("", "srun -N 4 --ntasks-per-node=8 python train.py", 4, 8, 32),
    ],
)
def test_a_step_on_a_part_of_the_nodes_trains_there(
    head: str, body: str, nodes: int | None, per_node: int, gpus: int | None
) -> None:
    plan = read(body, head=FOUR + head).plan
    assert (plan.nodes, plan.gpus_per_node, plan.gpus) == (nodes, per_node, gpus)


def test_replicas_are_those_of_the_step() -> None:
    flags = "--tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 --num-layers 24 --hidden-size 1024"
    plan = read(f"srun -N 2 --ntasks-per-node=8 python pretrain_gpt.py {flags}", head=FOUR + TASKS).plan
    assert plan.dp == 4


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("srun torchrun --nnodes 2 --nproc_per_node 4 train.py", "--nproc_per_node 4 and 8 GPUs a node"),
        ("srun torchrun --nnodes 2 --nproc_per_node=16 train.py", "16 and 8 GPUs a node"),
        ("srun torchrun --nnodes 4 --nproc_per_node 8 train.py", "--nnodes 4 and 2 nodes"),
        ("deepspeed --num_nodes 2 --num_gpus 4 train.py", "--num_gpus 4 and 8 GPUs a node"),
        ("srun composer --nproc 4 train.py", "--nproc 4 and 8 GPUs a node"),
        ("srun torchrun --nproc_per_node 8 train.py", "gets no number of nodes and uses 1"),
        ("srun bash -c \"torchrun --nproc_per_node 8 train.py\"", "uses 1; the job has 2"),
        ("srun --ntasks-per-node=8 torchrun --nnodes 2 --nproc_per_node 8 train.py", "8 tasks a node, each starts 8"),
    ],
)  # fmt: skip
def test_disagreement_is_a_problem(body: str, words: str) -> None:
    assert words in said(read(body, head=ASKED + ONE))


@pytest.mark.parametrize("flags", ["", "--nnodes 2 --node_rank 0 "])
def test_a_launcher_that_nothing_starts_on_the_other_nodes_is_a_problem(flags: str) -> None:
    # sbatch runs the script on the first node of the job
    workload = read(f"torchrun {flags}--nproc_per_node 8 train.py", head=ASKED + ONE)
    (problem,) = workload.problems
    assert problem.what.startswith("no srun starts torchrun: it runs on the first of the job's 2 nodes alone (#SBATCH")
    assert problem.hint.startswith("srun --ntasks-per-node=1 torchrun --nnodes=2 ")


def test_both_places_are_cited() -> None:
    problem = next(iter(read("srun torchrun --nnodes 2 \\\n  --nproc_per_node 4 train.py").problems))
    assert (problem.file, problem.line) == ("job.sh", 5)
    assert "(#SBATCH --gpus-per-node=8, line 3)" in problem.what
    assert problem.hint == "give --nproc_per_node 8, or ask Slurm for 4 GPUs a node"


@pytest.mark.parametrize(
    "body",
    [
        "srun torchrun --nnodes 2 --nproc_per_node 8 train.py",
        "srun torchrun --nnodes $SLURM_NNODES --nproc_per_node gpu train.py",
        "srun torchrun --nnodes $1 --nproc_per_node $2 train.py",
        "export PET_NNODES=2\nsrun torchrun --nproc_per_node 8 train.py",
        "srun torchrun $ARGS train.py",
        "srun -N 1 torchrun --nnodes 1 --nproc_per_node 8 train.py",
        "srun --nodes=1 --ntasks=1 torchrun --nproc_per_node 8 train.py",
        "srun python train.py --num_nodes 5 --num_gpus 3",
        "srun --ntasks-per-node=8 torchrun --nnodes 2 --nproc_per_node 1 train.py",
        "srun -N1 hostname",
        "ssh n1 torchrun --nproc_per_node 8 train.py &\ntorchrun --nproc_per_node 8 train.py",
        "$LAUNCH bash start.sh\ntorchrun --nproc_per_node 8 train.py",
        "mpirun -np 2 hostname\ntorchrun --nnodes 2 --nproc_per_node 8 train.py",
        "deepspeed --hostfile hosts train.py",
    ],
)
def test_what_agrees_or_is_not_known_is_no_problem(body: str) -> None:
    assert said(read(body, head=ASKED + ONE)) == ""


@pytest.mark.parametrize(
    ("head", "body", "launcher"),
    [
        (ASKED, "srun --ntasks-per-node=8 python train.py", "srun, one task per GPU"),
        (ASKED, "srun -n 16 python train.py", "srun, one task per GPU"),
        (ASKED + "#SBATCH --ntasks=16\n", "srun python train.py", "srun, one task per GPU"),
        (ASKED + "#SBATCH --ntasks=4\n", "srun python train.py", "srun"),
        (ASKED + "#SBATCH --ntasks-per-node=8\n", "srun nsys profile -o x python train.py",
         "srun, one task per GPU, under nsys"),
        (ASKED, "srun nsys profile torchrun train.py", "srun + torchrun, under nsys"),
        (ASKED, "srun ./scripts/go.sh", "srun of a second script"),
        (ASKED, "X=$(srun -N1 hostname)\ntorchrun train.py", "torchrun"),
        (ASKED, "srun python train.py --strategy deepspeed", "srun"),
        (ASKED, "srun colossalai run --nproc_per_node 8 train.py", "srun + colossalai run"),
        (ASKED, "srun python train.py --model flux", "srun"),
        (ASKED, "flux run -n 8 python train.py", "flux run"),
        (ASKED, "srun composer train.py", "srun + composer"),
    ],
)  # fmt: skip
def test_the_launcher_is_said_in_words(head: str, body: str, launcher: str) -> None:
    assert read(body, head=head).launcher == launcher


@pytest.mark.parametrize("flag", ["--nnodes " + "9" * 500, "--nnodes -1", "--nnodes '\x1b[2J'", "--nnodes ''"])
def test_hostile_numbers_are_no_numbers(flag: str) -> None:
    workload = read(f"srun torchrun {flag} train.py", head="")
    assert workload.plan.nodes is None


TRAINER = "run_clm.py --per_device_train_batch_size 1 --gradient_accumulation_steps 4 --bf16"


@pytest.mark.parametrize(
    ("command", "replicas"),
    [
        (f"torchrun --nproc_per_node 8 {TRAINER}", None),
        (f"torchrun --standalone --nproc_per_node gpu {TRAINER}", None),
        (f"srun -N1 -n1 torchrun --nproc_per_node 8 {TRAINER}", None),
        (f"deepspeed --include localhost:0,1,2 {TRAINER}", None),
        (f"deepspeed --num_gpus 8 {TRAINER}", None),
        (f"deepspeed --hostfile hosts {TRAINER}", 16),
        (f"CUDA_VISIBLE_DEVICES=0,1 srun torchrun --nnodes 2 --nproc_per_node gpu {TRAINER}", None),
        (f"export CUDA_VISIBLE_DEVICES=0,1,2,3\nsrun torchrun --nnodes 2 --nproc_per_node gpu {TRAINER}", None),
        (f"export CUDA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7\nsrun torchrun --nnodes 2 --nproc_per_node 8 {TRAINER}", 16),
        (f"srun torchrun --nnodes 2 --nproc_per_node 8 {TRAINER}", 16),
    ],
)
def test_replicas_on_fewer_gpus_than_were_asked_for_are_left_open(command: str, replicas: int | None) -> None:
    """And so is the batch that follows from them; the GPUs are those that the script asks for."""
    workload = read(command)
    plan = workload.plan
    assert bool(workload.problems) == (replicas is None and "-N1" not in command)
    batch = replicas * 4 if replicas else None
    assert (plan.gpus, plan.dp, plan.global_batch, plan.micro_batch) == (16, replicas, batch, 1)


@pytest.mark.parametrize(
    ("command", "nodes", "ranks"),
    [
        ("torchrun --nnodes 4 --nproc_per_node 8 train.py", 4, "32"),
        ("torchrun --nnodes=2 --nproc-per-node=4 train.py", 4, "8"),
        ("accelerate launch --num_processes 16 --num_machines 2 train.py", 2, "16"),
        ("deepspeed --num_gpus 8 train.py", 1, "8"),
        ("torchrun --nproc_per_node 8 train.py", 4, None),
        ("torchrun --nnodes 1:4 --nproc_per_node 8 train.py", 4, None),
        ("torchrun --nnodes 1:4 --nproc_per_node 8 train.py", 1, None),
        ("torchrun --nnodes 4 --nproc_per_node gpu train.py", 4, None),
        ("srun python train.py", 4, None),
    ],
)
def test_ranks_are_those_of_the_flags(command: str, nodes: int, ranks: str | None) -> None:
    findings = Findings("job.sh")
    findings.values["plan.nodes"] = nodes
    read_ranks(parse_arguments([literal(word, 1) for word in command.split()]), findings)
    assert findings.options.get(OPTION) == ranks


def test_what_is_known_only_later_states_nothing() -> None:
    findings = Findings("job.sh")
    words = [literal("--nnodes", 1), unknown("N is known only when the job runs", 1), literal("--nproc_per_node=8", 1)]
    read_ranks(parse_arguments(words), findings)
    assert OPTION not in findings.options


HEAD = "#!/bin/bash\n#SBATCH --nodes=9 --gpus-per-node=8\n"
PROGRAM = (
    "pretrain_gpt.py --bf16 --num-layers 24 --hidden-size 2048 --num-attention-heads 16 --seq-length 2048 "
    "--max-position-embeddings 2048 --micro-batch-size 1 --global-batch-size 128 --vocab-size 50257\n"
)


def read_opsk_launch(line: str, before: str = "") -> Workload:
    return read_script(f"{HEAD}{before}{line} {PROGRAM}", file="job.sh")


def test_spares_run_no_ranks() -> None:
    found = read_opsk_launch("opsk launch --nodes 8 --per-node -- torchrun --nproc-per-node 8")
    assert (found.plan.nodes, found.plan.gpus_per_node, found.plan.gpus) == (8, 8, 64)
    assert not found.problems
    assert found.launcher == "opsk launch + torchrun"
    assert {(entry.field, entry.line) for entry in found.evidence} >= {("plan.nodes", 3), ("plan.gpus", 3)}


@pytest.mark.parametrize(
    "words", ["--nodes=8 --", "--tasks-per-node 8 --nodes 8 --", "--srun=--cpu-bind=none --nodes 8 --"]
)
def test_each_gpu_has_a_task_unless_torchrun_starts_them(words: str) -> None:
    found = read_opsk_launch(f"/apps/opsk/bin/opsk launch {words} python")
    assert (found.plan.nodes, found.plan.gpus) == (8, 64)
    assert found.launcher == "opsk launch, one task per GPU"


def test_all_nodes_are_used_where_none_is_spared() -> None:
    found = read_opsk_launch("opsk launch --per-node -- torchrun --nproc-per-node 8")
    assert (found.plan.nodes, found.plan.gpus) == (9, 72)
    assert not found.problems


def test_torchruns_own_number_is_compared_with_the_nodes_that_are_used() -> None:
    assert not read_opsk_launch("opsk launch --nodes 8 --per-node -- torchrun --nnodes 8 --nproc-per-node 8").problems
    found = read_opsk_launch("opsk launch --nodes 8 --per-node -- torchrun --nnodes 9 --nproc-per-node 8")
    assert "--nnodes 9 and 8 nodes" in found.problems[0].what


def test_a_number_from_outside_is_not_guessed() -> None:
    found = read_opsk_launch('opsk launch --nodes "$USED" -- python', before="source settings.sh\n")
    assert (found.plan.nodes, found.plan.gpus) == (None, None)
    assert "USED" in next(entry.why for entry in found.unknown if entry.field == "plan.nodes")


def test_a_number_from_the_script_is_known() -> None:
    assert read_opsk_launch("opsk launch --nodes $((SLURM_NNODES - 1)) -- python").plan.nodes == 8


def test_flags_of_the_program_are_not_those_of_the_launcher() -> None:
    assert read_opsk_launch("opsk launch --nodes 8 -- python wrap.py --nodes 3").plan.nodes == 8


def test_more_nodes_than_there_are_change_nothing() -> None:
    assert read_opsk_launch("opsk launch --nodes 12 -- python").plan.nodes == 9
