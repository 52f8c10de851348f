"""Lists the jobs that a soak submits, how each must end, and the right class of each planted failure.

What NCCL, CUDA and slurmstepd would print is printed by the job; Slurm's states, kernel lines, counters and nodes that
go away are real.
"""

from __future__ import annotations

from dataclasses import dataclass

STEPS = """step() { printf ' [%(%F %T)T] iteration %8d/    3000 | consumed samples: %12d | elapsed time per iteration\
 (ms): 900.7 | throughput per GPU (TFLOP/s/GPU): 212.3 | learning rate: 1.0E-04 | global batch size:   512 | lm loss:\
 2.5E+00 | number of skipped iterations:   0 | number of nan iterations:   0 |\\n' -1 "$1" "$((512 * $1))"; }
for i in 1 2 3; do step $i; done
"""
WATCHDOG = (
    'echo "[rank{rank}]:[E1121 $(date +%T).000000000 ProcessGroupNCCL.cpp:629] [Rank {rank}] Watchdog caught collective'
    " operation timeout: WorkNCCL(SeqNum=77, OpType=ALLREDUCE, NumelIn=1048576, NumelOut=1048576, Timeout(ms)=10000)"
    ' ran for 10001 milliseconds before timing out." >&2\n'
)
TRAINS = (
    "torchrun --nnodes {nodes} --nproc-per-node 2 pretrain_gpt.py --bf16 --train-iters {seed} --vocab-size 50257"
    " --num-layers {layers} --hidden-size 2048 --num-attention-heads 16 --micro-batch-size 1 --global-batch-size 128"
    " --seq-length 2048 --max-position-embeddings 2048 --tensor-model-parallel-size 1"
    " --pipeline-model-parallel-size 1 --use-distributed-optimizer\n"
)
TORCHRUN = f"#!/bin/bash\n{STEPS}for ((i = 4; i < 4 + ${{SOAK_STEPS:-20}}; i++)); do sleep 0.5; step $i; done\n"
"""Stands in the jobs' PATH: trains by what it prints."""
WAITS = 'while [ ! -e "$SOAK_GO" ]; do sleep 0.2; done\n'
SAYS_MEMORY = (
    'echo "[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 1 has a total'
    " capacity of 79 GiB of which 1.06 GiB is free. Of the allocated memory 76.00 GiB is allocated by PyTorch."
    '" >&2\nexit 1\n'
)
SAYS_OOM_KILL = (
    'echo "slurmstepd: error: Detected 1 oom_kill event in StepId=$SLURM_JOB_ID.batch. Some of the step tasks have been'
    ' OOM Killed." >&2\nexit 137\n'
)
SAYS_NAN = (
    "echo \"RuntimeError: Rank 1, node n0, device 1, iteration 4: Unexpected result nan (message='found NaN in local"
    " forward loss calculation')\" >&2\nexit 1\n"
)
SAYS_ILLEGAL = 'echo "RuntimeError: CUDA error: an illegal memory access was encountered" >&2\nexit 1\n'
SAYS_LOST_LINK = (
    'echo "$SLURMD_NODENAME:412:508 [1] NCCL WARN NET/IB: Got completion from peer 10.0.0.1<41000> with status=12'
    ' opcode=0 len=0 vendor err 129 (Send) hca mlx5_1" >&2\n'
)
HANGS = "".join(WATCHDOG.format(rank=rank) for rank in (0, 1, 3)) + "exit 1\n"
"""Three of four ranks say for whom they waited."""
OF_NODE = ("--exclusive", "--nodes=1", "--ntasks-per-node=1", "--gpus-per-node=4")


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind of job.

    Parameters
    ----------
    body
        Of the script; ``{seed}``, ``{layers}``, ``{nodes}``, ``{seconds}`` are replaced.
    ends
        States in which it may be at the end.
    causes
        Classes of the post-mortem that are right; empty where there is none to be written.
    share
        How often it comes, of the sum of all; 0 for those on nodes of their own.
    tasks
        How many jobs of an array it is.
    act
        What is done to it or to its node while it runs: ``cancel``, ``gpu``, ``nic``, ``node``, ``preempt``.
    trains
        Whether opsk advises on it.
    """

    name: str
    body: str
    options: tuple[str, ...] = ("--nodes=1", "--gpus-per-node=1")
    ends: frozenset[str] = frozenset({"COMPLETED"})
    causes: frozenset[str] = frozenset()
    share: int = 0
    tasks: int = 1
    act: str = ""
    trains: bool = False

    @property
    def is_alone(self) -> bool:
        """Whether it gets a node of its own, on which something is broken."""
        return bool(self.act) and self.act != "cancel"


def _fails(name: str, body: str, cause: str, share: int, *options: str, state: str = "FAILED", act: str = "") -> Kind:
    """Return a kind that fails of one cause."""
    return Kind(
        name=name, body=STEPS + body, options=options or ("--nodes=1", "--gpus-per-node=2"), ends=frozenset({state}),
        causes=frozenset({cause}), share=share, act=act,
    )  # fmt: skip


KINDS: tuple[Kind, ...] = (
    Kind(name="short", body="sleep {seconds}\n", share=24),
    Kind(name="wide", body="srun --overlap true\nsleep {seconds}\n", share=3,
         options=("--nodes=2", "--gpus-per-node=1")),
    Kind(name="array", body="sleep {seconds}\n", options=("--nodes=1", "--array=0-3"), share=5, tasks=4),
    Kind(name="train", body="export SOAK_STEPS={seconds}\n" + TRAINS, trains=True, share=14,
         options=("--nodes=1", "--gpus-per-node=2", "--ntasks-per-node=1")),
    Kind(name="train-wide", body="export SOAK_STEPS={seconds}\n" + TRAINS, trains=True, share=3,
         options=("--nodes=2", "--gpus-per-node=2", "--ntasks-per-node=1")),
    _fails("host-memory", SAYS_OOM_KILL, "host_memory", 3),
    _fails("gpu-memory", SAYS_MEMORY, "gpu_memory", 4),
    _fails("nan", SAYS_NAN, "numeric", 3),
    _fails("full-disk", "echo x >/dev/full || { echo 'OSError: [Errno 28] No space left on device' >&2; exit 1; }\n",
           "storage", 3),
    _fails("illegal", SAYS_ILLEGAL, "software", 3),
    _fails("too-wide", "srun -N4 -n4 hostname\n", "config", 2, "--nodes=1"),
    _fails("hang", HANGS, "collective_hang", 2, "--nodes=2", "--ntasks=4", "--gpus-per-node=2"),
    _fails("too-long", "sleep 300\n", "time_limit", 2, "--nodes=1", "--time=1", state="TIMEOUT"),
    _fails("cancelled", "sleep 300\n", "cancelled", 3, "--nodes=1", state="CANCELLED", act="cancel"),
    _fails("lost-gpu", f"{WAITS}{HANGS}", "gpu_hardware", 0, *OF_NODE, act="gpu"),
    _fails("lost-link", f"{WAITS}{SAYS_LOST_LINK}{HANGS}", "fabric", 0, *OF_NODE, act="nic"),
    _fails("lost-node", "sleep 600\n", "node", 0, *OF_NODE, state="NODE_FAIL", act="node"),
    _fails("victim", "sleep 600\n", "preempted", 0, *OF_NODE, state="PREEMPTED", act="preempt"),
)  # fmt: skip
URGENT = Kind(name="urgent", body="sleep 1\n", options=OF_NODE)
"""What takes a victim's node."""
BY_NAME = {kind.name: kind for kind in (*KINDS, URGENT)}
