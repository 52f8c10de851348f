"""A training job as it runs: nodes with clocks that differ, ranks that print, kernels that log, and Slurm's record."""

# ruff: noqa: E501 -- lines are quoted as programs print them

from __future__ import annotations

import random
from dataclasses import dataclass, field
from datetime import UTC, datetime

LAYOUTS = ("per_rank", "srun_l", "rank_labels", "mpi", "per_node", "torchrun_dirs")
FRAMEWORKS = ("megatron", "deepspeed", "nemo", "torchtitan", "hf", "nanotron")
ERAS = ("old", "mid", "new")


@dataclass(frozen=True, kw_only=True)
class Truth:
    """What was planted, and where: what is ``None`` cannot be told, and the whole job is every part empty."""

    failure: str
    node: str = ""
    rank: int | None = None
    pci: str = ""
    hca: str = ""
    netdev: str = ""
    is_job_wide: bool = False
    wording: str = ""
    nodes: int = 0


@dataclass
class World:
    """A job of some ranks; everything is said in true time, clocks are applied when it is written down."""

    rng: random.Random
    nodes: list[str]
    per_node: int
    framework: str
    layout: str
    era: str
    launcher: str
    start_s: float
    step_s: float
    steps: int
    has_record: bool
    skew: dict[str, float]
    job_id: str
    kernel_nodes: list[str] = field(default_factory=list)
    said: dict[int, list[tuple[float, int, str]]] = field(default_factory=dict)
    launched: list[tuple[float, int, str]] = field(default_factory=list)
    kernel: dict[str, list[tuple[float, int, str]]] = field(default_factory=dict)
    quiet_from: dict[int, float] = field(default_factory=dict)
    end_s: float = 0.0
    state: str = "FAILED"
    exit_code: int | None = 1
    exit_signal: int | None = 0
    cancelled_by: int | None = None
    time_limit_s: int | None = None
    node_reasons: dict[str, str] = field(default_factory=dict)
    lost_logs: set[int] = field(default_factory=set)
    count: int = 0

    @property
    def world(self) -> int:
        return len(self.nodes) * self.per_node

    @property
    def ranks(self) -> range:
        return range(self.world)

    @property
    def fail_s(self) -> float:
        """When the planted failure comes: in the middle of the step after the last one that was told."""
        return self.start_s + 90.0 + (self.steps + 0.4) * self.step_s

    def node(self, rank: int) -> str:
        return self.nodes[rank // self.per_node]

    def local(self, rank: int) -> int:
        return rank % self.per_node

    def pci(self, rank: int) -> str:
        return f"0000:{0x1B + 0x11 * self.local(rank):02x}:00"

    def pid(self, rank: int) -> int:
        return 40_000 + 137 * (rank // self.per_node) + 3 * self.local(rank)

    def any_rank(self) -> int:
        return self.rng.randrange(self.world)

    def ranks_of(self, node: str) -> list[int]:
        return [rank for rank in self.ranks if self.node(rank) == node]

    # ---------------------------------------------------------------- saying

    def say(self, rank: int, at: float, *lines: str) -> None:
        """Let a rank print; ``{t:FORM}`` in a line becomes its node's clock."""
        if at >= self.quiet_from.get(rank, float("inf")):
            return
        clock = at + self.skew[self.node(rank)]
        for line in lines:
            self.count += 1
            self.said.setdefault(rank, []).append((at, self.count, stamped(line, clock)))

    def launch(self, at: float, *lines: str) -> None:
        """Let Slurm, srun or the batch script print, on the first node."""
        clock = at + self.skew[self.nodes[0]]
        for line in lines:
            self.count += 1
            self.launched.append((at, self.count, stamped(line, clock)))

    def kernel_say(self, node: str, at: float, *lines: str) -> None:
        """Let a node's kernel log."""
        for line in lines:
            self.count += 1
            self.kernel.setdefault(node, []).append((at + self.skew[node], self.count, line))

    def glog(self, rank: int, at: float, level: str, where: str, text: str) -> None:
        """Let PyTorch's own log print, as its releases do."""
        if self.era == "old":
            self.say(rank, at, f"[{level} {where}] {text}")
        else:
            self.say(rank, at, f"[rank{rank}]:[{level}{{t:glog}} {where}] {text}")

    def nccl(self, rank: int, at: float, level: str, text: str) -> None:
        """Let NCCL print."""
        head = f"{self.node(rank)}:{self.pid(rank)}:{self.pid(rank) + 211} [{self.local(rank)}]"
        if level == "WARN":
            self.say(
                rank,
                at,
                "",
                f"{head} {self.rng.choice(['net.cc:512', 'transport/net_ib.cc:1295', 'proxy.cc:1540'])} NCCL WARN {text}",
            )
        else:
            self.say(rank, at, f"{head} NCCL INFO {text}")

    def warn(self, rank: int, at: float, where: str, text: str) -> None:
        """Let NCCL warn from a given file of its source."""
        head = f"{self.node(rank)}:{self.pid(rank)}:{self.pid(rank) + 211} [{self.local(rank)}]"
        self.say(rank, at, "", f"{head} {where} NCCL WARN {text}")

    def raises(self, rank: int, at: float, error: str, *, file: str = "train.py", call: str = "main()") -> None:
        """Let a rank end in an exception, with a stack above it."""
        mark = (
            f"[rank{rank}]: " if self.era != "old" and self.rng.random() < 0.8 and self.layout != "rank_labels" else ""
        )
        depth = self.rng.randint(2, 6)
        frames = []
        for number in range(depth):
            name = self.rng.choice(["train", "train_step", "forward", "_call_impl", "step", "fit", "run", "backward"])
            frames += [
                f'  File "/opt/app/{name}_{number}.py", line {self.rng.randint(20, 1900)}, in {name}',
                f"    return {name}_{number}(*args, **kwargs)",
            ]
        lines = [
            "Traceback (most recent call last):",
            *frames,
            f'  File "/opt/app/{file}", line {self.rng.randint(20, 900)}, in <module>',
            f"    {call}",
            *error.splitlines(),
        ]
        self.say(rank, at, *(mark + line for line in lines))


def stamped(line: str, clock: float) -> str:
    """Put a clock into a line."""
    if "{t:" not in line:
        return line
    at = datetime.fromtimestamp(clock, UTC)
    forms = {
        "glog": f"{at:%m%d %H:%M:%S}.{at.microsecond:06d}000"
        if at.second % 2
        else f"{at.month}{at:%d %H:%M:%S}.{at.microsecond:06d}000",
        "iso": f"{at:%Y-%m-%d %H:%M:%S}",
        "isot": f"{at:%Y-%m-%dT%H:%M:%S}",
        "isoms": f"{at:%Y-%m-%d %H:%M:%S},{at.microsecond // 1000:03d}",
        "isous": f"{at:%Y-%m-%d %H:%M:%S}.{at.microsecond:06d}",
        "us": f"{at:%m/%d/%Y %H:%M:%S}",
        "clock": f"{at:%H:%M:%S}",
        "klog": f"{at:%m%d %H:%M:%S}.{at.microsecond:06d}",
    }
    for name, text in forms.items():
        line = line.replace(f"{{t:{name}}}", text)
    return line
