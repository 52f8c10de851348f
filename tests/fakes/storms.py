"""Many submissions at once to a real slurmctld of our own, with or without opsk's hooks: are all accepted, how fast?

Jobs are submitted held, so that nothing starts. What slurmctld itself takes for a submission is read from ``sdiag``, so
that neither the start of ``sbatch`` nor this machine's other work is in it.
"""

from __future__ import annotations

import os
import random
import re
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from opsk_jobcheck.service.hooks import ADVICE, read_hook
from tests.fakes.bad_servers import BAD_SERVERS, Server, framed, read_question
from tests.fakes.own_advisor import LabWithOwnAdvisor, advised_nodes, terminal

HOOKS = ("job_submit.lua", "cli_filter.lua")
EMPTY_HOOKS = {
    "job_submit.lua": "function slurm_job_submit() return slurm.SUCCESS end\n"
    "function slurm_job_modify() return slurm.SUCCESS end\nreturn slurm.SUCCESS\n",
    "cli_filter.lua": "function slurm_cli_setup_defaults() return slurm.SUCCESS end\n"
    "function slurm_cli_pre_submit() return slurm.SUCCESS end\n"
    "function slurm_cli_post_submit() return slurm.SUCCESS end\nreturn slurm.SUCCESS\n",
}
"""Hooks of both kinds that only return."""
HEAD = "#!/bin/bash\n#SBATCH --nodes=2 --gpus-per-node=8 --ntasks-per-node=1 --output=/dev/null --time=60\n"
TRAINING = (
    "export LAYERS={layers} SEED={seed}\nARGS=(--num-layers $LAYERS --hidden-size 2048 --num-attention-heads 16\n"
    "  --micro-batch-size 1 --global-batch-size 128 --seq-length 2048 --max-position-embeddings 2048\n"
    "  --tensor-model-parallel-size 1 --pipeline-model-parallel-size 1 --use-distributed-optimizer --bf16)\n"
    "srun torchrun --nnodes 2 --nproc-per-node 8 pretrain_gpt.py --train-iters {seed} --vocab-size 50257 "
    '"${{ARGS[@]}}"\n'
)
OTHER = (
    "#!/bin/bash\n#SBATCH --nodes=1 --cpus-per-task=2 --output=/dev/null --time=60\nset -e\ncd $HOME/work/{seed}\n"
    "module load gcc openmpi\nfor case in a b c d; do\n  mpirun ./solver --input case-$case.in --seed {seed}\n"
    "done\ngrep -h residual *.log | sort > residuals.txt\n"
)
TIMEOUT_S = 900.0
RECIPES = 8
MIN_JOB_AGE_S = 2
"""After which slurmctld may forget a cancelled job; it looks once a minute."""
_RPC = re.compile(r"REQUEST_SUBMIT_BATCH_JOB\s*\(\s*\d+\)\s*count:(\d+)\s+ave_time:\d+\s+total_time:(\d+)")


def name_of(seed: int) -> str:
    """Return a name of letters, another one for each seed."""
    return "run-" + str(seed).translate(str.maketrans("0123456789", "abcdefghij"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Storm:
    """What came of some submissions: the jobs, what was said of others, how many were advised on, the time [s]."""

    jobs: frozenset[int]
    refused: tuple[str, ...]
    advised: int
    wall_s: float

    @property
    def per_s(self) -> float:
        """Submissions a second."""
        return len(self.jobs) / self.wall_s


@dataclass
class StormLab(LabWithOwnAdvisor):
    """A lab with hooks and an advisor of its own that can be hurt."""

    seeds: Iterator[int] = field(default_factory=lambda: count(1))

    def scripts(self, number: int, *, training: float, recipes: int = RECIPES, are_named: bool = False) -> list[Path]:
        """Write so many scripts, a share of which trains; no two are alike, so none has been answered before.

        ``recipes`` is the number of models among them; those of one model differ in seed and length, and with
        ``are_named`` in a name that has no number.
        """
        folder = self.directory / "scripts"
        folder.mkdir(exist_ok=True)
        rows: list[Path] = []
        for index in range(number):
            seed = next(self.seeds)
            trains = int((index + 1) * training) > int(index * training)
            name = f"export RUN={name_of(seed)}\n" if are_named else ""
            training_text = HEAD + name + TRAINING.format(seed=seed, layers=1 + seed % recipes)
            text = training_text if trains else OTHER.format(seed=seed)
            path = folder / f"{'train' if trains else 'other'}-{seed}.sh"
            path.write_text(text)
            rows.append(path)
        random.Random(number).shuffle(rows)
        return rows

    def again(self, number: int, *, training: float, known: Sequence[Path]) -> list[Path]:
        """Return so many scripts, a share of which are known ones in turn: a job submitted again is the same file."""
        rows = self.scripts(number, training=0)
        trains = [index for index in range(number) if int((index + 1) * training) > int(index * training)]
        for turn, index in enumerate(trains):
            rows[index] = known[turn % len(known)]
        random.Random(number).shuffle(rows)
        return rows

    def clients(self, scripts: Sequence[Path], clients: int) -> list[subprocess.Popen[str]]:
        """Start clients that submit the scripts, one after the other each."""
        loop = 'for script; do sbatch --hold "$script" 2>&1 || echo "REFUSED $script"; done'
        return [
            subprocess.Popen(
                ["bash", "-c", loop, "client", *map(str, scripts[number::clients])],
                env=self.environ, cwd=self.directory, stdout=subprocess.PIPE, text=True, start_new_session=True,
            )
            for number in range(clients)
        ]  # fmt: skip

    def submit(self, scripts: Sequence[Path], clients: int) -> Storm:
        """Submit all scripts and wait for it."""
        began = time.monotonic()
        return self.outcome(self.clients(scripts, clients), began)

    def outcome(self, clients: Sequence[subprocess.Popen[str]], began: float) -> Storm:
        """Wait for clients."""
        said = ""
        try:
            for client in clients:
                said += client.communicate(timeout=TIMEOUT_S)[0]
        finally:
            for client in clients:
                if client.poll() is None:
                    os.killpg(client.pid, signal.SIGKILL)
        wall_s = time.monotonic() - began
        return Storm(
            jobs=frozenset(int(job) for job in re.findall(r"Submitted batch job (\d+)", said)),
            refused=tuple(line for line in said.splitlines() if "REFUSED" in line or "error" in line),
            advised=len(re.findall(r"^sbatch: opsk  memory", said, re.MULTILINE)),
            wall_s=wall_s,
        )

    def purge(self, most: int = 6000) -> None:
        """Wait until slurmctld has forgotten most cancelled jobs: at MaxJobCount, 10,000, it accepts none."""
        end = time.monotonic() + TIMEOUT_S
        words = ["squeue", "--noheader", "--states=all", "--format=%i"]
        while time.monotonic() < end:
            done = subprocess.run(words, env=self.environ, timeout=60, check=False, capture_output=True)
            if done.returncode == 0 and done.stdout.count(b"\n") < most:
                return
            time.sleep(2)

    def rpc(self) -> tuple[int, int]:
        """Return how many submissions slurmctld has had, and the time that they took it together [us]."""
        done = subprocess.run(["sdiag"], env=self.environ, timeout=60, check=True, capture_output=True, text=True)
        found = _RPC.search(done.stdout)
        return (int(found[1]), int(found[2])) if found else (0, 0)

    def inside_ms(self, scripts: Sequence[Path]) -> list[float]:
        """Submit scripts one after the other; return what slurmctld took for each [ms]."""
        took = []
        before = self.rpc()
        for script in scripts:
            subprocess.run(
                ["sbatch", "--hold", str(script)],
                env=self.environ, cwd=self.directory, timeout=60, check=True, capture_output=True,
            )  # fmt: skip
            after = self.rpc()
            took.append((after[1] - before[1]) / max(after[0] - before[0], 1) / 1e3)
            before = after
        return took

    def install(self, *, empty: bool) -> None:
        """Put opsk's hooks in place, or ones that only return, and let slurmctld read them."""
        etc = self.record.folder.etc
        for name in (ADVICE, *HOOKS):
            draft = etc / f".{name}"
            draft.write_text(EMPTY_HOOKS.get(name, "") if empty else read_hook(name))
            draft.chmod(0o644)
            draft.replace(etc / name)
        self.forget()

    def forget(self) -> None:
        """Let slurmctld read its hook again, which closes the circuit breaker."""
        # it does when the time stamp, in whole seconds, is newer than that of the last time that it read one
        time.sleep(1.1)
        os.utime(self.record.folder.etc / "job_submit.lua")
        time.sleep(1.1)
        self.inside_ms(self.scripts(1, training=0))

    def start_advisor(self, *, audit_log: Path | None = None) -> None:
        """Start an advisor in place of the one that runs, and wait until it answers."""
        site = self.record.folder.site
        if audit_log is not None:
            text = re.sub(r"(?m)^audit_log\s*=.*$", f'audit_log = "{audit_log}"', site.read_text())
            site = self.directory / "opsk.toml"
            site.write_text(text)
        self.replace_advisor(site, "advisor-of-storm.out", os.environ)


@contextmanager
def killed(lab: StormLab) -> Iterator[None]:
    """The advisor is killed, and its socket stays behind."""
    lab.start_advisor()
    for pid in lab.advisor_pids():
        os.kill(pid, signal.SIGKILL)
    yield


@contextmanager
def stopped(lab: StormLab) -> Iterator[None]:
    """The advisor is stopped: the kernel takes connections, nobody answers."""
    lab.start_advisor()
    (pid,) = lab.advisor_pids()
    os.kill(pid, signal.SIGSTOP)
    yield


@contextmanager
def without_socket(lab: StormLab) -> Iterator[None]:
    """Nobody has made a socket."""
    lab.stop_advisor()
    yield


@contextmanager
def with_full_disk(lab: StormLab) -> Iterator[None]:
    """The disk that the audit log lies on is full."""
    lab.start_advisor(audit_log=Path("/dev/full"))
    yield


def in_place_of_it(kind: str) -> Callable[[StormLab], AbstractContextManager[None]]:
    """Return what puts one of `BAD_SERVERS` in the advisor's place."""

    @contextmanager
    def context(lab: StormLab) -> Iterator[None]:
        lab.stop_advisor()
        server = Server(lab.socket, BAD_SERVERS[kind])
        try:
            yield
        finally:
            server.close()

    return context


def drip_slowly(connection: socket.socket) -> None:
    """Answer a byte a second."""
    read_question(connection)
    for byte in framed(b'{"v":1,"status":"advice","lines":["x"],"comment":"opsk:v1"}'):
        connection.sendall(bytes([byte]))
        time.sleep(1)


@contextmanager
def dripping(lab: StormLab) -> Iterator[None]:
    """What answers sends a byte a second."""
    lab.stop_advisor()
    server = Server(lab.socket, drip_slowly)
    try:
        yield
    finally:
        server.close()


CASES: dict[str, Callable[[StormLab], AbstractContextManager[None]]] = {
    "killed": killed,
    "stopped": stopped,
    "a byte a second": dripping,
    "garbage": in_place_of_it("garbage"),
    "closes at once": in_place_of_it("closes at once"),
    "full disk": with_full_disk,
    "no socket": without_socket,
}
"""What befalls the advisor before the submissions; that it comes back in their middle is `restarted`."""
HEALTHY = frozenset({"full disk"})
"""Cases in which it answers all the same."""


def restarted(lab: StormLab, scripts: Sequence[Path], clients: int) -> Storm:
    """Submit scripts; in their middle the advisor is killed, and started again."""
    lab.start_advisor()
    began = time.monotonic()
    running = lab.clients(scripts, clients)
    time.sleep(0.5)
    lab.start_advisor()
    return lab.outcome(running, began)


@contextmanager
def storm_lab(path: Path, settings: str = "") -> Iterator[StormLab]:
    """Bring a lab of two nodes up in a folder, with hooks and an advisor; all of it ends with the context.

    Parameters
    ----------
    settings
        Further lines of its site configuration.
    """
    work = path / "work"
    work.mkdir(parents=True)
    with advised_nodes(path / "lab", settings) as record:
        lab = StormLab(record, work, terminal(record, work))
        config = record.folder.etc / "slurm.conf"
        kept = "\n".join(line for line in config.read_text().splitlines() if not line.startswith("MinJobAge"))
        config.write_text(f"{kept}\nMinJobAge={MIN_JOB_AGE_S}\n")
        subprocess.run(["scontrol", "reconfigure"], env=lab.environ, timeout=60, check=True, capture_output=True)
        try:
            yield lab
        finally:
            lab.cancel()
            lab.stop_advisor()
