"""Measures the advisor's memory and times over 100,000 questions: ``python -m benchmarks.jobcheck.advisor_flat``.

Memory is to stay as it is after the first thousands. A real advisor with its workers, and the watcher where a fabric is
given, is asked over its socket: advice on scripts that it knows and on ones that are new, of recipes that it knows and
of others, verdicts for slurmctld on behalf of many users, jobs that train nothing, files that it wants, and questions
that are none.
"""

from __future__ import annotations

import argparse
import json
import os
import pwd
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from benchmarks.found import Found, arguments, run
from benchmarks.process_use import cpu_s, median_p99, rss_bytes
from opsk.fabric.design import rail_optimized_fabric
from opsk.fabric.dumps.render import render_ibnetdiscover
from tests.fakes.advisor_process import Client

NODES, QUESTIONS = 1024, 100_000
SHORT_NODES, SHORT_QUESTIONS = 0, 100
USERS = 400
RECIPES = 300
KNOWN = 50
"""Scripts that are submitted again and again."""
LOOKS = 20
WARM = 4
"""Looks after which all that is kept once is there: a fifth of the questions."""
SCRIPT = (
    "#!/bin/bash\n#SBATCH --nodes={nodes} --gpus-per-node=8 --ntasks-per-node=1\nexport SEED={seed}\n"
    "ARGS=(--num-layers {layers} --hidden-size {hidden} --num-attention-heads 16 --micro-batch-size 1\n"
    "  --global-batch-size 256 --seq-length 2048 --max-position-embeddings 2048 --bf16 --use-distributed-optimizer)\n"
    'srun torchrun --nnodes {nodes} --nproc-per-node 8 pretrain_gpt.py --seed $SEED "${{ARGS[@]}}"\n'
)
WITH_FILE = "#!/bin/bash\n#SBATCH --nodes=2 --gpus-per-node=8\naxolotl train recipe-{seed}.yaml --launcher torchrun\n"
FILE = "base_model: meta-llama/Llama-3.1-8B\nmicro_batch_size: {seed}\nsequence_len: 4096\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What is seen after some questions: resident memory by process [MB], and times of the questions before [ms]."""

    questions: int
    rss_mb: dict[str, float]
    median_ms: float
    p99_ms: float


def measure(asked: argparse.Namespace) -> Found:
    """Print memory and times while questions are asked; return the most of the memory, and how it grew."""
    nodes, questions = (SHORT_NODES, SHORT_QUESTIONS) if asked.short else (asked.nodes, asked.questions)
    found, looks = Found(), list[Look]()
    with tempfile.TemporaryDirectory() as folder, RunningAdvisor(folder, nodes=nodes) as one:
        print(f"{'questions':>10}{'median ms':>11}{'P99 ms':>9}   resident MB")
        for look in one.ask(questions, most_s=asked.most_s):
            looks.append(look)
            memory = ", ".join(f"{name} {value:.0f}" for name, value in look.rss_mb.items())
            print(f"{look.questions:10}{look.median_ms:11.2f}{look.p99_ms:9.1f}   {memory}", flush=True)
        print(", ".join(f"{count} {name}" for name, count in one.answers.most_common()))
        found.figures["cpu_s"] = one.cpu_s() / max(one.answers.total(), 1)
    print(f"CPU of the advisor and its processes: {1e3 * found.figures['cpu_s']:.2f} ms a question")
    warm, last = looks[min(WARM, len(looks)) - 1].rss_mb, looks[-1].rss_mb
    found.figures["answered_count"] = one.answers.total()
    found.figures["rss_bytes"] = 1e6 * max(value for look in looks for value in look.rss_mb.values())
    found.figures["growth_ratio"] = max(last[name] / warm[name] for name in last.keys() & warm.keys())
    return found


class RunningAdvisor:
    """A real advisor of its own in a folder, asked in one thread."""

    def __init__(self, folder: str | Path, *, nodes: int) -> None:
        self.folder, self.nodes, self.answers = Path(folder), nodes, Counter[str]()
        self.socket = self.folder / "advisor.sock"

    def __enter__(self) -> RunningAdvisor:
        fabric = ""
        if self.nodes:
            dump = self.folder / "fabric.ib"
            leaves = max(self.nodes // 32, 1) * 8
            design = rail_optimized_fabric(
                nodes=self.nodes, hcas=8, leaves=leaves, spines=32, pods=8, cores_per_spine=8
            )
            dump.write_text(render_ibnetdiscover(design))
            fabric = f'fabric = ["{dump}"]\n'
        config = self.folder / "opsk.toml"
        config.write_text(
            f'cluster = "superpod-h100"\n{fabric}[advisor]\nsocket = "{self.socket}"\n'
            f'audit_log = "{self.folder / "audit.jsonl"}"\nsubmit_users = ["{_own_name()}"]\n'
        )
        command = [sys.executable, "-P", "-m", "opsk", "advisor", "--config", str(config)]
        self.process = subprocess.Popen(command, stderr=(self.folder / "advisor.err").open("w"))
        end = time.monotonic() + 120
        while True:
            try:
                Client(self.socket).connection.close()
            except OSError as error:
                if self.process.poll() is not None or time.monotonic() > end:
                    raise RuntimeError((self.folder / "advisor.err").read_text()) from error
                time.sleep(0.1)
            else:
                return self

    def __exit__(self, *_: object) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(30)

    def ask(self, questions: int, *, most_s: float, looks: int = LOOKS) -> Iterator[Look]:
        """Ask, and look now and then."""
        dice, began, times = random.Random(1), time.monotonic(), list[float]()
        for number in range(1, questions + 1):
            asked = time.perf_counter()
            self.answers[_ask_random(self.socket, dice, number)] += 1
            times.append(time.perf_counter() - asked)
            is_late = time.monotonic() - began > most_s
            if number % max(questions // looks, 1) == 0 or is_late:
                median, p99 = median_p99(times)
                yield Look(questions=number, rss_mb=self.rss_mb(), median_ms=1e3 * median, p99_ms=1e3 * p99)
                times = []
            if is_late:
                return

    def rss_mb(self) -> dict[str, float]:
        """Return the resident memory of the advisor and of what it started [MB]."""
        found = {"advisor": rss_bytes(self.process.pid) / 1e6}
        for pid in self._list_processes():
            name = Path(f"/proc/{pid}/comm").read_text().strip()
            kind = name.removeprefix("opsk ") if name.startswith("opsk ") else "fork server"
            number = sum(name.startswith(kind) for name in found)
            found[f"{kind} {number + 1}"] = rss_bytes(pid) / 1e6
        return found

    def _list_processes(self) -> list[int]:
        """Return the processes that the advisor has started, directly and not."""
        return [child.pid for child in psutil.Process(self.process.pid).children(recursive=True)]

    def cpu_s(self) -> float:
        """Return the CPU time of the advisor and its processes so far [s]."""
        return sum(map(cpu_s, (self.process.pid, *self._list_processes())))


def _ask_random(path: Path, dice: random.Random, number: int) -> str:
    """Ask one question of one of several kinds; return what it was and how it was answered."""
    kinds: tuple[tuple[float, Callable[[Client, random.Random, int], str]], ...] = (
        (0.25, _ask_known),
        (0.10, _new),
        (0.05, _new_recipe),
        (0.40, _for_slurmctld),
        (0.10, _other_work),
        (0.05, _with_files),
        (0.05, _nonsense),
    )
    client = Client(path)
    try:
        (kind,) = dice.choices([kind for _, kind in kinds], [weight for weight, _ in kinds])
        return f"{kind.__name__.strip('_').replace('_', ' ')}: {kind(client, dice, number)}"
    finally:
        client.connection.close()


def _advise(client: Client, script: str, **more: Any) -> dict[str, Any]:
    return client.ask(kind="advise", command="sbatch", script=script, script_name="job.sh", **more)


def _script(*, seed: int, recipe: int) -> str:
    return SCRIPT.format(seed=seed, layers=1 + recipe % 100, hidden=1024 * (1 + recipe // 100), nodes=2)


def _ask_known(client: Client, dice: random.Random, number: int) -> str:
    return str(_advise(client, _script(seed=0, recipe=dice.randrange(KNOWN)))["status"])


def _new(client: Client, dice: random.Random, number: int) -> str:
    return str(_advise(client, _script(seed=number, recipe=dice.randrange(KNOWN)))["status"])


def _new_recipe(client: Client, dice: random.Random, number: int) -> str:
    return str(_advise(client, _script(seed=number, recipe=dice.randrange(RECIPES)))["status"])


def _for_slurmctld(client: Client, dice: random.Random, number: int) -> str:
    script = _script(seed=dice.choice((0, 0, number)), recipe=dice.randrange(KNOWN))
    job = {"min_nodes": 2, "max_nodes": 2, "tres_per_node": "gres/gpu:8", "partition": "gpu"}
    return str(client.ask(kind="submit", uid=1000 + dice.randrange(USERS), script=script, job=job)["status"])


def _other_work(client: Client, dice: random.Random, number: int) -> str:
    return str(_advise(client, f"#!/bin/bash\n#SBATCH --gpus=1\n./render --frame {number}\n")["status"])


def _with_files(client: Client, dice: random.Random, number: int) -> str:
    script = WITH_FILE.format(seed=number % 3000)
    answer = _advise(client, script)
    if answer["status"] == "files":
        answer = _advise(client, script, files={path: FILE.format(seed=number % 7) for path in answer["paths"]})
    return str(answer["status"])


def _nonsense(client: Client, dice: random.Random, number: int) -> str:
    body = dice.choice((b"no JSON", b"[" * 3000, json.dumps({"v": 1, "kind": "advise", "argv": number}).encode()))
    client.send_bytes(len(body).to_bytes(4, "big") + body)
    answer = client.receive()
    return str(answer["status"]) if answer else "closed"


def _own_name() -> str:
    return pwd.getpwuid(os.getuid()).pw_name


if __name__ == "__main__":
    parser = arguments(__doc__)
    parser.add_argument("--questions", type=int, default=QUESTIONS)
    parser.add_argument("--most-s", type=float, default=3600.0, help="stop after so many seconds")
    parser.add_argument("--nodes", type=int, default=NODES, help="of the fabric; 0 for neither placement nor watcher")
    run(measure, parser)
