"""What is wrong with a job before it starts, and what is no reason for a word.

Each script is a small one of a kind that people submit; the expected findings follow from sbatch(1), srun(1), the
documentation of torchrun and accelerate, NCCL's user guide, and the data sheets of the GPUs.
"""

from __future__ import annotations

import pytest

from opsk.hardware.catalog import cluster
from opsk_jobcheck.advice.advice import Advice
from opsk_jobcheck.advice.adviser import Adviser
from opsk_jobcheck.advice.rendering.document import document
from opsk_jobcheck.advice.rendering.terminal import lines
from opsk_jobcheck.cluster_state.node_constraints import parse_node_constraints
from opsk_jobcheck.preflight.checks import CHECKS
from opsk_jobcheck.scripts.script import read_script
from tests.fakes.launch_scripts import megatron_script

ADVISER = Adviser(cluster=cluster("superpod-h100"), search=False)
LOOP = """import argparse
import torch
from torch.utils.data import DataLoader
parser = argparse.ArgumentParser()
parser.add_argument("--workers", type=int, default=8)
args = parser.parse_args()
model = Net().cuda()
loader = DataLoader(data, batch_size=64, num_workers=args.workers)
for x, y in loader:
    loss(model(x.cuda()), y.cuda()).backward()
"""
DDP = LOOP + "model = torch.nn.parallel.DistributedDataParallel(model)\n"
SEVERAL_GPUS = {
    "DataParallel": LOOP + "model = torch.nn.DataParallel(model)\n",
    "spawn": LOOP + "import torch.multiprocessing as mp\nmp.spawn(main, nprocs=8)\n",
    "second GPU": LOOP + "model.tail.to('cuda:1')\n",
    "another module": LOOP.replace("Net().cuda()", "place(Net())").replace(".cuda()", ""),
    "Lightning": LOOP + "import lightning\n",
}


def script(command: str, *options: str, before: str = "") -> str:
    head = "".join(f"#SBATCH {option}\n" for option in options)
    return f"#!/bin/bash\n{head}{before}{command}\n"


def advise(text: str, source: str = "") -> Advice:
    files = {"train.py": source} if source else {}
    return ADVISER.advise(read_script(text, file="job.sh", files=files), parse_node_constraints(text))


def checks(text: str, source: str = "") -> list[str]:
    return [finding.check for finding in advise(text, source).preflight]


EIGHT, FOUR_NODES = ("--nodes=1", "--gpus-per-node=8"), ("--nodes=4", "--gpus-per-node=8")
TASKS = "--ntasks-per-node=8"
GLUE = "run_glue.py --model_name_or_path bert-base-cased --per_device_train_batch_size 32 --max_seq_length 128"
TORCHRUN = "srun torchrun --nnodes 4 --nproc_per_node 8 --rdzv_backend c10d --rdzv_endpoint"


@pytest.mark.parametrize(
    ("text", "source", "expected"),
    [
        (script("python train.py", *EIGHT), LOOP, ["processes"]),
        (script("python train.py", *EIGHT), DDP, ["processes"]),
        (script("srun python train.py", *EIGHT, "--ntasks=1"), DDP, ["processes"]),
        (script("srun python train.py", *EIGHT, "--ntasks-per-node=8"), DDP, []),
        (script("torchrun --nproc_per_node=8 train.py", *EIGHT), DDP, []),
        (script("torchrun train.py", *EIGHT), DDP, ["processes"]),
        (script(f"python {GLUE}", *EIGHT), "", ["processes"]),
        (script(f"torchrun --nproc_per_node=8 {GLUE}", *EIGHT), "", []),
        (script("python train.py", "--gres=gpu:1"), LOOP, []),
        (script("python train.py", *EIGHT), "", []),
        (script("mpirun -np 8 python train.py", *EIGHT), DDP, []),
        (script("for i in 0 1; do python train.py & done; wait", *EIGHT), LOOP, []),
        (script("for i in *; do python train.py & done; wait", *EIGHT), LOOP, []),
        (script("CUDA_VISIBLE_DEVICES=0 python train.py", *EIGHT), LOOP, []),
        *((script("python train.py", *EIGHT), source, []) for source in SEVERAL_GPUS.values()),
        (script("accelerate launch --num_processes 2 train.py", *EIGHT), DDP, ["ranks"]),
        (script("accelerate launch --num_processes 8 train.py", *EIGHT), DDP, []),
        (
            script("accelerate launch --num_processes 1 train.py", *EIGHT),
            DDP + "model = AutoModel.from_pretrained(name, device_map='auto')\n",  # one process on all GPUs
            [],
        ),
        (script(f"torchrun --standalone --nproc_per_node=2 {GLUE}", *EIGHT), "", []),  # its reader says it
        (script("trl vllm-serve --model gpt2 &\naccelerate launch --num_processes 7 train.py", *EIGHT), DDP, []),
        (script("python -m vllm.entrypoints.api_server &\npython train.py", *EIGHT), DDP, []),
        (script("oumi distributed torchrun train.py", *EIGHT), DDP, []),  # it counts the GPUs itself
        (script("torchrun --nproc_per_node=2 train.py", "--gres=gpu:1g.10gb:2"), DDP, ["gpu-parts"]),
        (script("python train.py", "--gres=gpu:3g.40gb:1"), LOOP, []),
        (script("python train.py", *FOUR_NODES), DDP, ["processes"]),
        (script("accelerate launch --num_processes 32 --num_machines 4 train.py", *FOUR_NODES), DDP, ["nodes"]),
        (script("srun accelerate launch --num_processes 32 --num_machines 4 train.py", *FOUR_NODES), DDP, []),
        (script("accelerate launch --config_file cluster.yaml train.py", *FOUR_NODES), DDP, []),
        (script("python deepy.py train.py configs/20B.yml", *FOUR_NODES), "", []),  # its launcher reads a host file
    ],
)
def test_processes_that_leave_gpus_or_nodes_idle(text: str, source: str, expected: list[str]) -> None:
    assert checks(text, source) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (script(f"{TORCHRUN} $(hostname):29500 train.py", *FOUR_NODES), []),
        (script(f"{TORCHRUN} localhost:29500 train.py", *FOUR_NODES), ["master"]),
        (script(f"{TORCHRUN} node7:29500 train.py", *FOUR_NODES), []),
        (script("srun torchrun --nnodes 4 --nproc_per_node 8 train.py", *FOUR_NODES), ["master"]),
        (script("srun torchrun --nnodes 1 --standalone --nproc_per_node 8 train.py", *EIGHT), []),
        (
            script("srun python train.py", *FOUR_NODES, TASKS, before="export MASTER_ADDR=127.0.0.1\n"),
            ["master"],
        ),
        (script("srun python train.py", *FOUR_NODES, TASKS, before="MASTER_ADDR=127.0.0.1\n"), []),
        (script("python train.py", "--gres=gpu:1", before="export MASTER_ADDR=localhost\n"), []),
    ],
)
def test_nodes_that_wait_for_themselves(text: str, expected: list[str]) -> None:
    assert checks(text, DDP) == expected


@pytest.mark.parametrize(
    ("command", "options", "source", "expected"),
    [
        ("python train.py --workers 16", ("--gres=gpu:1", "--cpus-per-task=4"), LOOP, ["cpus"]),
        ("python train.py", ("--gres=gpu:1", "-c 4"), LOOP, ["cpus"]),  # the default is 8
        ("python train.py --workers 4", ("--gres=gpu:1", "-c 4"), LOOP, []),
        ("python train.py --workers 16", ("--gres=gpu:1",), LOOP, []),
        ("python train.py --workers 16", ("--gres=gpu:1", "-c 4", "--exclusive"), LOOP, []),
        ("torchrun --nproc_per_node=8 train.py --workers 4", (*EIGHT, "-c 16"), DDP, ["cpus"]),
        ("torchrun --nproc_per_node=8 train.py --workers 4", (*EIGHT, "-c 32"), DDP, []),
        ("torchrun --nproc_per_node=8 train.py --workers 4", (*EIGHT, "-c 16"), DDP + "args.workers //= 8\n", []),
        (f"torchrun --nproc_per_node=8 {GLUE} --dataloader_num_workers 4", (*EIGHT, "-c 8"), "", ["cpus"]),
        ("torchrun --nproc_per_node=8 train.py --num-workers 4", (*EIGHT, "-c 16"), "", []),  # of all ranks, maybe
    ],
)
def test_workers_of_data_loaders_and_cpus(
    command: str, options: tuple[str, ...], source: str, expected: list[str]
) -> None:
    assert checks(script(command, *options), source) == expected


CLM = "torchrun --nproc_per_node=8 run_clm.py --model_name_or_path meta-llama/Llama-2-7b-hf --block_size 2048 --bf16 "
CLM += "--per_device_train_batch_size 1"
ZERO = """cat > ds.json <<'END'
{"zero_optimization": {"stage": %d}, "bf16": {"enabled": true}}
END
"""


@pytest.mark.parametrize(
    ("memory", "stage", "expected"),
    [("64G", 2, ["host-memory"]), ("64G", 3, []), ("128G", 2, []), ("0", 2, [])],
)
def test_each_process_loads_the_whole_model(memory: str, stage: int, expected: list[str]) -> None:
    """Llama 2 7B has 6.74 billion parameters: 8 processes load 100 GiB at 2 bytes each."""
    text = script(f"{CLM} --deepspeed ds.json", *EIGHT, f"--mem={memory}", before=ZERO % stage)
    assert checks(text) == expected


@pytest.mark.parametrize(
    ("gpu", "flags", "expected"),
    [
        ("v100", "--bf16", ["precision"]),
        ("t4", "--bf16", ["precision"]),
        ("a100", "--bf16", []),
        ("v100", "--fp16", []),
        ("v100", "--fp16 --attn_implementation flash_attention_2", ["attention"]),
        ("a100", "--bf16 --attn_implementation flash_attention_2", []),
        ("a100", "--bf16 --attn_implementation flash_attention_3", ["attention"]),
        ("h100", "--bf16 --attn_implementation flash_attention_3", []),
    ],
)
def test_formats_and_kernels_that_a_gpu_lacks(gpu: str, flags: str, expected: list[str]) -> None:
    assert checks(script(f"python {GLUE} {flags}", f"--gres=gpu:{gpu}:1")) == expected


def test_fp8_on_an_a100() -> None:
    flags = "--tensor-model-parallel-size 8 --micro-batch-size 1 --global-batch-size 64 --fp8-format hybrid"
    text = megatron_script(f"{flags} --transformer-impl transformer_engine").replace(
        "--gpus-per-node=8", "--gres=gpu:{}:8"
    )
    assert checks(text.format("a100")) == ["precision"]
    assert checks(text.format("h100")) == []


@pytest.mark.parametrize(
    ("variables", "nodes", "expected"),
    [
        ("NCCL_P2P_DISABLE=1", 1, ["peer-to-peer"]),
        ("NCCL_P2P_DISABLE=0", 1, []),
        ("NCCL_P2P_DISABLE=1 NCCL_SHM_DISABLE=1", 1, ["peer-to-peer", "shared-memory"]),
        ("NCCL_IB_DISABLE=1", 4, ["infiniband"]),
        ("NCCL_IB_DISABLE=1", 1, []),
        ("NCCL_NET=Socket", 4, ["infiniband"]),
        ("NCCL_SOCKET_IFNAME=lo", 4, ["interface"]),
        ("NCCL_SOCKET_IFNAME=^lo,docker", 4, []),
        ("NCCL_IB_HCA=mlx5_0", 4, ["adapters"]),
        ("NCCL_IB_HCA=mlx5", 4, []),
        ("NCCL_IB_HCA=mlx5_0,mlx5_1,mlx5_2,mlx5_3,mlx5_4,mlx5_5,mlx5_6,mlx5_7", 4, []),
        ("CUDA_LAUNCH_BLOCKING=1", 1, ["blocking-launches"]),
        ("NCCL_PROTO=LL", 4, ["protocol"]),
        ("NCCL_PROTO=simple", 4, []),  # what EFA needs
        ("NCCL_PROTO=^LL128", 4, []),
        ("NCCL_PROTO=LL,LL128,Simple", 4, []),
        ("NCCL_ALGO=Tree", 1, ["algorithm"]),
        ("NCCL_ALGO=Tree", 4, []),
        ("NCCL_ALGO=Ring,Tree", 1, []),
        ("NCCL_ALGO=allreduce:tree", 1, []),
        # H100: 450 GB/s of NVLink, 36.7 a channel: half of it takes 7
        ("NCCL_MAX_NCHANNELS=6", 1, ["channels"]),
        ("NCCL_MAX_NCHANNELS=7", 1, []),
        ("NCCL_MAX_CTAS=2", 4, ["channels"]),
        ("NCCL_MAX_NCHANNELS=0", 1, []),
    ],
)
def test_variables_that_turn_off_what_the_nodes_have(variables: str, nodes: int, expected: list[str]) -> None:
    command = f"srun torchrun --nnodes {nodes} --nproc_per_node 8 --rdzv_endpoint node0:29500 train.py"
    options = (f"--nodes={nodes}", "--gpus-per-node=8")
    assert checks(script(command, *options, before=f"export {variables}\n"), DDP) == expected
    assert checks(script(command, *options, before=f"{variables.replace(' ', chr(10))}\n"), DDP) == []  # not exported


def test_variables_say_nothing_about_nodes_without_such_links() -> None:
    """The nodes of Alps are joined by Slingshot, which NCCL's own InfiniBand transport does not use."""
    text = script("srun torchrun --nnodes 4 train.py", *FOUR_NODES, before="export NCCL_IB_DISABLE=1\n")
    adviser = Adviser(cluster=cluster("alps"), search=False)
    findings = adviser.advise(read_script(text, file="job.sh", files={"train.py": DDP})).preflight
    assert "infiniband" not in [finding.check for finding in findings]


def test_a_program_that_sets_the_master_itself_may_have_any() -> None:
    text = script("srun python train.py", *FOUR_NODES, TASKS, before="export MASTER_ADDR=localhost\n")
    assert checks(text, f"{DDP}os.environ['MASTER_ADDR'] = first_host()\n") == []


def test_variables_say_nothing_on_nodes_with_other_gpus() -> None:
    """The cluster is described with H100s; nothing is known of its nodes with A40s."""
    text = script("torchrun --nproc_per_node 4 train.py", "--gres=gpu:a40:4", before="export NCCL_P2P_DISABLE=1\n")
    assert checks(text, DDP) == []


STEPS = (
    "--tensor-model-parallel-size 8 --pipeline-model-parallel-size 8 --micro-batch-size 1 --global-batch-size 512 "
    "--sequence-parallel --use-distributed-optimizer --train-iters 100000"
)


@pytest.mark.parametrize(
    ("flags", "options", "expected"),
    [
        (STEPS, "--time=1-00:00:00", ["time-limit"]),
        (STEPS, "--time=365-00:00:00", []),
        (STEPS, "--comment=none", []),
        (STEPS.replace("--pipeline-model-parallel-size 8", ""), "--time=1-00:00:00", []),  # it runs out of memory
        (f"{STEPS} --load /ckpt --save /ckpt", "--time=1-00:00:00", []),
        (STEPS, "--time=1-00:00:00 --requeue", []),
        (STEPS.replace("100000", "100"), "--time=1-00:00:00", []),
    ],
)
def test_steps_that_do_not_fit_into_the_time_limit(flags: str, options: str, expected: list[str]) -> None:
    """A step of 512 sequences of 8,192 tokens takes Llama 70B on 64 H100s about a minute at their peak: 63 PFLOP/s."""
    text = megatron_script(flags).replace("#SBATCH --nodes", f"#SBATCH {options}\n#SBATCH --nodes")
    assert checks(text) == expected


def test_a_finding_is_a_line_of_advice_and_an_entry_of_the_document() -> None:
    advice = advise(script("python train.py", *EIGHT), LOOP)
    assert lines(advice)[1:] == (
        "problem  job.sh:4: 8 GPUs are requested, and one process is started (python train.py); "
        "ask for 1 GPU: the program is written for one",
    )
    assert document(advice)["preflight"] == [
        {
            "check": "processes",
            "what": "8 GPUs are requested, and one process is started (python train.py)",
            "advice": "ask for 1 GPU: the program is written for one",
            "file": "job.sh",
            "line": 4,
        }
    ]


def test_a_format_that_the_gpu_lacks_is_printed_with_the_largest_case_in_another() -> None:
    rows = lines(advise(script(f"python {GLUE} --bf16", "--gres=gpu:v100:1")))
    assert [row[:8] for row in rows[1:]] == ["memory  ", "problem ", "more    "]
    assert "at most" in rows[1]


def test_every_check_has_a_name_of_its_own() -> None:
    names = [name for name, _ in CHECKS]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(
    ("image", "nodes", "expected"),
    [
        ("--container-image=nvcr.io#nvidia/pytorch:24.01-py3", 8, ["container-image"]),
        ("--container-image docker://nvcr.io#nvidia/pytorch:24.01-py3", 8, ["container-image"]),
        ("--container-image=pytorch/pytorch", 8, ["container-image"]),
        ("--container-image=pytorch/pytorch", 2, []),
        ("--container-image=/shared/pytorch.sqsh", 8, []),
        ("--container-image=./pytorch.sqsh", 8, []),
        ("--container-image=pytorch.sqsh", 8, []),
        ("--container-image=$IMAGE", 8, []),
    ],
)
def test_an_image_that_every_node_imports_is_reported(image: str, nodes: int, expected: list[str]) -> None:
    command = f"srun {image} torchrun --nnodes {nodes} --nproc_per_node 8 --rdzv_endpoint node0:29500 train.py"
    text = script(command, f"--nodes={nodes}", "--gpus-per-node=8")
    assert checks(text, DDP) == expected
    if expected:
        (finding,) = advise(text, DDP).preflight
        assert "enroot import -o image.sqsh docker://" in finding.advice
        assert "docker://docker://" not in finding.advice


def test_the_image_of_a_step_whose_shell_starts_the_program_is_read() -> None:
    command = 'srun --container-image=nvcr.io#nvidia/nemo:25.02 bash -c "torchrun --nproc_per_node 8 train.py"'
    found = checks(script(command, "--nodes=8", "--gpus-per-node=8"), DDP)
    assert "container-image" in found


def test_a_chain_of_eight_takes_a_quarter_longer_than_a_ring() -> None:
    # 2 arrays at 92 % of the rate against 2 x 7/8 (NCCL's tuner): 2.174 / 1.75
    command = "torchrun --nproc_per_node 8 train.py"
    (finding,) = advise(script(command, *EIGHT, before="export NCCL_ALGO=Tree\n"), DDP).preflight
    assert "6 of 8 GPUs send the array twice" in finding.what
    assert "24% longer" in finding.what


@pytest.mark.parametrize(
    ("image", "imported"),
    [
        ("nvcr.io/nvidia/nemo:25.07", "docker://nvcr.io#nvidia/nemo:25.07"),
        ("localhost:5000/team/train", "docker://localhost:5000#team/train"),
        ("nvcr.io#nvidia/nemo:25.07", "docker://nvcr.io#nvidia/nemo:25.07"),
        ("docker://pytorch/pytorch:2.9.0", "docker://pytorch/pytorch:2.9.0"),
    ],
)
def test_the_command_that_imports_an_image_names_its_registry_as_enroot_needs_it(image: str, imported: str) -> None:
    # enroot's src/docker.sh: docker://[USER@][REGISTRY#]IMAGE[:TAG]
    command = (
        f"srun --container-image={image} torchrun --nnodes 8 --nproc_per_node 8 --rdzv_endpoint node0:29500 train.py"
    )
    (finding,) = advise(script(command, "--nodes=8", "--gpus-per-node=8"), DDP).preflight
    assert imported in finding.advice.split()


@pytest.mark.parametrize(
    ("before", "options", "expected"),
    [
        ("lfs setstripe -c -1 -S 4M /lustre/$USER/ckpt", "", ["striping"]),
        ("lfs setstripe --stripe-count=64 /lustre/$USER/ckpt/run1/", "", ["striping"]),
        ("lfs setstripe -c16 /lustre/$USER", "", ["striping"]),
        ("lfs setstripe -c 8 /lustre/$USER/ckpt", "", []),  # 4 to 8 for a large file of one client: Lustre's wiki
        ("lfs setstripe -c 0 /lustre/$USER/ckpt", "", []),  # the file system's default: lfs-setstripe(1)
        ("lfs setstripe -c -1 /lustre/$USER/data", "", []),
        ("lfs setstripe -c -1 /lustre/$USER/ck", "", []),
        ("lfs setstripe -c -1 /lustre/someone/ckpt", "", []),
        ("lfs setstripe -E 1G -c 1 -E -1 -c -1 /lustre/$USER/ckpt", "", []),
        ("lfs setstripe -c -1 /lustre/$USER/ckpt\nlfs setstripe -c 1 /lustre/$USER/ckpt", "", []),
        ("if test -d x; then lfs setstripe -c -1 /lustre/$USER/ckpt; fi", "", []),
        ("lfs setstripe -c -1 /lustre/$USER/ckpt", "--ckpt-format torch", []),
        ("lfs setstripe -c -1 /lustre/$USER/ckpt", "--ckpt-format torch_dist", ["striping"]),
    ],
)
def test_a_checkpoint_of_many_ranks_is_not_spread_over_all_storage_targets(
    before: str, options: str, expected: list[str]
) -> None:
    text = megatron_script(f"--save /lustre/$USER/ckpt/run1 {options}", nodes=8)
    assert checks(text.replace("srun", f"{before}\nsrun")) == expected


def test_the_stripes_of_few_ranks_are_their_own_affair() -> None:
    text = megatron_script("--save /lustre/ckpt", nodes=4)
    assert checks(text.replace("srun", "lfs setstripe -c -1 /lustre/ckpt\nsrun")) == []
