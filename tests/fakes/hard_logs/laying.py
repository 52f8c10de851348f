"""Lays a real message into a multi-rank log: labels, progress, warnings, cascades, launchers' reports, and damage to lines."""

from __future__ import annotations

# ruff: noqa: E501 -- lines are quoted as programs print them
import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from tests.fakes.hard_logs.families import FAMILIES
from tests.fakes.hard_logs.library_families import LIBRARY_FAMILIES
from tests.fakes.hard_logs.messages import MESSAGES, WARNINGS
from tests.fakes.hard_logs.surviving import ENDS_OF_RUNS, LAST_LINES, OPENINGS, RESTARTS, SCENES

CLASSES = (*MESSAGES, "collective_hang")
_STARTS = frozenset(("config", "rendezvous"))
_BY_SLURM = frozenset(("time_limit", "preempted", "cancelled", "node"))
_LOCAL = frozenset(("gpu_memory", "gpu_hardware", "nvlink", "numeric", "software"))
"""Classes of which the rank that printed the message is the place."""
_LABELS = ("files", "srun", "rank", "mpi", "host_task", "local", "plain", "pdsh", "ray", "stamped")
_UNLABELLED = ("srun: ", "slurmstepd: ", "sbatch: ", "ssh: ", "Host key", "E0105", "W0105", "  rank")
"""Lines of launchers, and of libraries that write past them: they have no label."""
_WRAP_COLUMNS = 240
"""A terminal or collector cuts lines that are longer."""
_WATCHDOG = "[rank{rank}]:[E105 11:00:00.1 ProcessGroupNCCL.cpp:616] [PG ID 0 PG GUID 0(default_pg) Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1312, OpType=ALLREDUCE, NumelIn=1048576, NumelOut=1048576, Timeout(ms)=600000) ran for 600012 milliseconds before timing out."
_CASCADES = (
    (_WATCHDOG,),
    ("{node}:3112:3390 [0] misc/socket.cc:50 NCCL WARN socketProgress: Connection closed by remote peer {peer}<41234>",),
    ("torch.distributed.DistBackendError: NCCL error in: /pytorch/torch/csrc/distributed/c10d/NCCLUtils.hpp:268, remote process exited or there was a network error, NCCL version 2.21.5", "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely."),
    ("RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.5]:41234",),
    ("[W105 11:00:01.1 TCPStore.cpp:138] [c10d] recvValue failed on SocketImpl(fd=67): failed to recv, got 0 bytes",),
    (),
)  # fmt: skip
_FORMS = (
    "[2026-01-05 10:{m:02d}:{s:02d}] iteration {i:8d}/  500000 | consumed samples: {i}00 | elapsed time per iteration (ms): 1230.1 | lm loss: 2.31E+00 | grad norm: 1.2 |",
    "{{'loss': 2.31, 'grad_norm': 1.2, 'learning_rate': 2e-05, 'epoch': 0.{i}}}",
    "2026-01-05 10:{m:02d}:{s:02d},123 - INFO - step: {i} loss: 2.31 memory: 41.2GiB(52%) tps: 3,120",
    "iter {i}: loss 2.3100, time 1230.12ms, mfu 41.20%",
    "step {i} | loss: 2.3100 | 1.23 s/step",
)  # fmt: skip
_GOOD_ENDS = (
    ("[after training is done] datetime: 2026-01-05 12:00:00",),
    ("{{'train_runtime': 3600.1, 'train_samples_per_second': 12.1, 'train_loss': 1.93, 'epoch': 1.0}}",),
    ("`Trainer.fit` stopped: `max_epochs=3` reached.",),
    ("Training completed.",),
    (),
)


_HEAD = 'Traceback (most recent call last):\n  File "/home/ada/run/train.py", line 9, in <module>\n    main()\n'
_RAISED = re.compile(r"[\w.]+(?:Error|Exception): ")
_OF_ONE = ("gpu_memory", "", "software", "host_memory", "time_limit", "", "config", "cancelled", "storage")
"""How the last run of one process ends; empty where it ends well."""
LINK_MESSAGES = tuple(
    (family.failure, message)
    for family in (*FAMILIES, *LIBRARY_FAMILIES)
    if family.failure in ("fabric", "nvlink")
    for message in family.messages
)
"""Every message of a link in a job's own output, with its class."""
_NCCL_BEGINS = (
    "{node}:{pid}:{pid} [{local}] NCCL INFO Bootstrap : Using ib0:10.0.0.{number}<0>",
    "{node}:{pid}:3390 [{local}] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [2]mlx5_2:1/IB [3]mlx5_3:1/IB [RO]; OOB ib0:10.0.0.{number}<0>",
    "{node}:{pid}:3390 [{local}] NCCL INFO Connected all rings",
    "{node}:{pid}:3390 [{local}] NCCL INFO comm 0x7f0c rank {rank} nranks {world} cudaDev {local} nvmlDev {local} busId {bus} commId 0x5a0d3c - Init COMPLETE",
)
"""nccl src/bootstrap.cc, src/transport/net_ib, src/transport/generic.cc, src/init.cc."""
_BUSES = ("19000", "3b000", "9b000", "db000")


@dataclass(frozen=True, slots=True, kw_only=True)
class HardLog:
    """A log with what is true of it: class (empty: nothing failed), and rank and node where the logs tell them."""

    paths: tuple[Path, ...]
    failure: str
    rank: int | None
    node: str = ""


def lay_failure(seed: int, folder: Path) -> HardLog:
    """Write the logs of a job that failed by one message."""
    rng = Random(seed)
    failure = CLASSES[seed % len(CLASSES)]
    job = _Job(rng, failure)
    message = rng.choice(MESSAGES[failure]) if failure in MESSAGES else ""
    if failure not in _STARTS or "setup()" not in message:
        job.train(rng.randint(3, 40), is_short=failure in _STARTS)
    job.say(job.victim, message)
    if failure == "collective_hang":
        job.others(_WATCHDOG)
    elif failure not in _BY_SLURM:
        for line in rng.choice(_CASCADES):
            job.others(line)
        job.end_badly()
    known = failure in _LOCAL and job.style in ("files", "srun", "rank", "mpi", "host_task", "stamped")
    is_labelled = not message.startswith(_UNLABELLED)
    return HardLog(paths=job.write(folder), failure=failure, rank=job.victim if known and is_labelled else None)


def lay_link_failure(seed: int, folder: Path) -> HardLog:
    """Write the logs of a job of several nodes in which a link failed; seeds go through `LINK_MESSAGES`."""
    rng = Random(seed)
    failure, message = LINK_MESSAGES[seed % len(LINK_MESSAGES)]
    job = _Job(rng, failure, styles=("files", "srun", "rank", "host_task", "plain", "local"), node_counts=(2, 4))
    job.begin_nccl()
    if "setup()" not in message:
        job.train(rng.randint(20, 60))
    local = job.victim % job.per_node
    job.say(job.victim, message.replace("{node}:3112:3390 [1]", f"{{node}}:{3112 + local}:3390 [{local}]"))
    for line in rng.choice(_CASCADES):
        job.others(line)
    job.end_badly()
    is_named = "{node}:3112:3390 [1]" in message  # NCCL names node and GPU, and at the beginning the rank of each
    is_labelled = job.style not in ("plain", "local") and not message.startswith(_UNLABELLED)
    rank = job.victim if failure == "nvlink" and (is_labelled or is_named) else None
    node = job.node(job.victim) if is_labelled or "{node}" in message else ""
    return HardLog(paths=job.write(folder), failure=failure, rank=rank, node=node)


def lay_good_run(seed: int, folder: Path) -> HardLog:
    """Write the logs of a job that did what it was asked, with warnings."""
    rng = Random(seed)
    job = _Job(rng, "")
    job.train(rng.randint(10, 60))
    job.warn(rng.randint(1, 4))
    for line in rng.choice(_GOOD_ENDS):
        job.say(0, line)
    return HardLog(paths=job.write(folder), failure="", rank=None)


def lay_survivor(seed: int, folder: Path) -> HardLog:
    """Write the logs of a job that ended well, or goes on, after things went wrong that it survived."""
    rng = Random(seed)
    job, form = _Job(rng, ""), rng.choice(_FORMS)
    if seed % 8 == 0:
        job.style = "plain"
        job.train(rng.randint(5, 40), form=form)
        job.say(0, rng.choice(RESTARTS))
    for _ in range(rng.randint(1, 3)):
        job.train(rng.randint(3, 40), form=form)
        who = (
            0 if job.style == "files" else rng.randrange(job.world)
        )  # nothing in the file of another says that it goes on
        job.say(who, rng.choice(SCENES))
    job.train(rng.randint(10, 60), form=form)
    for line in rng.choice(_GOOD_ENDS):
        job.say(0, line)
    if seed % 4 == 1 and job.style != "files":
        job.lines.append((None, rng.choice(LAST_LINES)))
    return HardLog(paths=job.write(folder), failure="", rank=None)


def lay_appended(seed: int, folder: Path) -> HardLog:
    """Write a log of one process in which several runs stand one below the other; the last one says how it ended."""
    rng = Random(seed)
    failure = _OF_ONE[seed % len(_OF_ONE)]
    job = _Job(rng, failure, styles=("plain",), node_counts=(1, 1))
    job.lines, job.victim, job.is_plain = [], 0, True
    begins, form = rng.choice(OPENINGS), rng.choice(_FORMS)
    for _ in range(rng.randint(1, 3)):
        job.say(0, begins)
        job.train(rng.randint(0, 30), form=form)
        job.say(0, rng.choice(ENDS_OF_RUNS))
    job.say(0, begins)
    if failure != "config":
        job.train(rng.randint(3, 40), form=form)
    for line in rng.choice(_GOOD_ENDS) if not failure else (rng.choice(MESSAGES[failure]),):
        is_bare = _RAISED.match(line) is not None
        job.say(0, _HEAD + line if is_bare else line)
    return HardLog(paths=job.write(folder), failure=failure, rank=None)


class _Job:
    """The ranks of a job, and what they print."""

    def __init__(
        self, rng: Random, failure: str, *, styles: Sequence[str] = _LABELS, node_counts: tuple[int, int] = (1, 3)
    ) -> None:
        self.rng = rng
        self.style = rng.choice(styles)
        self.per_node = rng.choice((2, 4))
        self.nodes = [f"gpu{number:03d}" for number in rng.sample(range(1, 200), rng.randint(*node_counts))]
        self.world = self.per_node * len(self.nodes)
        self.victim = rng.randrange(self.world)
        self.lines: list[tuple[int | None, str]] = []
        self.failure = failure
        self.skews_s = [rng.randint(0, 3) for _ in self.nodes]
        self.clock_s = self.lines_stamped = 0
        self.is_plain = False
        self.warn(rng.randint(2, 5))

    def node(self, rank: int) -> str:
        """Return the node of a rank."""
        return self.nodes[rank // self.per_node]

    def say(self, rank: int, message: str) -> None:
        """Print a message of one rank; those of slurmstepd and launchers have no label."""
        peer = self.nodes[(rank // self.per_node + 1) % len(self.nodes)] if len(self.nodes) > 1 else "login01"
        for line in message.format(node=self.node(rank), peer=peer, rank=rank, local=rank % self.per_node).split("\n"):
            bare = line.startswith(_UNLABELLED)
            self.lines.append((None if bare else rank, line))

    def begin_nccl(self) -> None:
        """Print what NCCL says of every rank when it begins."""
        for rank in range(self.world):
            node, local = divmod(rank, self.per_node)
            for line in _NCCL_BEGINS:
                text = line.format(
                    node=self.nodes[node], pid=3112 + local, local=local, number=node + 5, rank=rank, world=self.world,
                    bus=_BUSES[local],
                )  # fmt: skip
                self.lines.append((rank, text))

    def warn(self, count: int) -> None:
        """Print warnings that prove nothing."""
        for message in self.rng.sample(WARNINGS, count):
            self.say(self.rng.randrange(self.world), message)

    def train(self, steps: int, *, is_short: bool = False, form: str = "") -> None:
        """Print progress, in the form of one framework: any where none is given."""
        form = form or self.rng.choice(_FORMS)
        for step in range(0 if is_short else steps):
            at = self.clock_s + step + self.skews_s[0]
            text = form.replace("{{", "{").replace("}}", "}") if "{{" in form else form
            self.lines.append(
                (
                    0,
                    text.replace("{m:02d}", f"{at // 60 % 60:02d}")
                    .replace("{s:02d}", f"{at % 60:02d}")
                    .replace("{i:8d}", f"{step + 1200:8d}")
                    .replace("{i}", str(step + 1200)),
                )
            )
        self.clock_s += steps

    def others(self, line: str) -> None:
        """Print the same on all ranks but the one that failed."""
        for rank in range(self.world):
            if rank != self.victim:
                self.say(rank, line.replace("{{", "{").replace("}}", "}") if "{{" in line else line)

    def end_badly(self) -> None:
        """Print what a launcher reports and does."""
        how = self.rng.choice(("torchrun", "srun", "none"))
        rank, local = self.victim, self.victim % self.per_node
        if how == "torchrun":
            self.lines += [(None, line) for line in (
                f"W0105 11:00:05.000 3000 torch/distributed/elastic/multiprocessing/api.py:897] Sending process {3111} closing signal SIGTERM",
                f"E0105 11:00:06.000 3000 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: 1) local_rank: {local} (pid: 3112) of binary: /opt/venv/bin/python",
                "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ", "============================================================",
                "train.py FAILED", "Root Cause (first observed failure):", "[0]:", "  time      : 2026-01-05_11:00:05", f"  host      : {self.node(rank)}",
                f"  rank      : {rank} (local_rank: {local})", "  exitcode  : 1 (pid: 3112)", "  error_file: <N/A>",
            )]  # fmt: skip
        elif how == "srun":
            if self.world > 2 and self.rng.random() < 0.3:
                other = (rank + 1) % self.world
                self.say(other, f"[{other}] INFO: saving what is there")
            self.lines += [(None, line) for line in (
                f"srun: error: {self.node(rank)}: task {rank}: Exited with exit code 1", "srun: Terminating StepId=4711.0",
                f"slurmstepd: error: *** STEP 4711.0 ON {self.nodes[0]} CANCELLED AT 2026-01-05T11:00:08 ***",
                f"srun: error: {self.nodes[0]}: tasks 0-{self.per_node - 1}: Terminated",
            )]  # fmt: skip

    def _label(self, rank: int | None, line: str) -> str:
        """Return a line with its label, in this job's style."""
        if rank is None or self.style in ("files", "plain") or line.startswith(f"[rank{rank}]:"):
            return line
        local, node = rank % self.per_node, rank // self.per_node
        return {
            "pdsh": f"{self.node(rank)}: ", "ray": f"(TrainWorker pid={3100 + rank}, ip=10.0.0.{node + 5}) ",
            "stamped": f"{self._stamp(node)} stderr F [rank{rank}]: ",
            "srun": f"{rank:{len(str(self.world - 1))}d}: ", "rank": f"[rank{rank}]: ", "mpi": f"[1,{rank}]<stderr>:",
            "host_task": f"[{self.node(rank)}:{rank}]: ", "local": f"[default{local}]:",
        }[self.style] + line  # fmt: skip

    def _stamp(self, node: int) -> str:
        """Return the time that a collector of logs writes, by the clock of a node."""
        self.lines_stamped += 1
        at = self.clock_s + self.lines_stamped // 20 + self.skews_s[node]
        return f"2026-01-05T10:{at // 60 % 60:02d}:{at % 60:02d}.123456789Z"

    def write(self, folder: Path) -> tuple[Path, ...]:
        """Write the logs; lines of different ranks are mixed, each rank's own order stays."""
        folder.mkdir(parents=True, exist_ok=True)
        by_file: dict[str, list[str]] = {}
        for rank, line in self._mix():
            name = f"train-{rank}.out" if self.style == "files" and rank is not None else "slurm-4711.out"
            if self.style == "files":
                name = f"rank{rank}.log" if rank is not None else "slurm-4711.out"
            by_file.setdefault(name, []).append(self._label(rank, line))
        end = "\r\n" if self.rng.random() < 0.1 else "\n"
        is_wrapped = self.rng.random() < 0.05
        colours = self.rng.random() < 0.15 and not self.is_plain
        paths = []
        for name, lines in by_file.items():
            if colours:
                lines = [f"\x1b[33m{line}\x1b[0m" if self.rng.random() < 0.5 else line for line in lines]
            if is_wrapped:
                lines = [
                    part
                    for line in lines
                    for part in (textwrap.wrap(line, _WRAP_COLUMNS, drop_whitespace=False) or [line])
                ]
            path = folder / name
            path.write_bytes((end.join(lines) + end).encode())
            paths.append(path)
        return tuple(sorted(paths))

    def _mix(self) -> list[tuple[int | None, str]]:
        """Return the lines, where they are labelled with lines of other ranks in between."""
        if self.style in ("plain", "files", "local"):
            return self.lines
        mixed: list[tuple[int | None, str]] = []
        for rank, line in self.lines:
            mixed.append((rank, line))
            if rank is not None and self.world > 1 and self.rng.random() < 0.15:
                other = (rank + 1) % self.world
                mixed.append(
                    (other, self.rng.choice(("INFO: prefetching shard 12", "memory: 41.2 GiB", "DEBUG: queue depth 4")))
                )
        return mixed
