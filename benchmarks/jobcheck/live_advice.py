"""Measures advice that knows what runs: ``python -m benchmarks.jobcheck.live_advice``: 1,024 nodes, 200 running jobs.

Full advice, verdict questions of new and of known recipes, a repeated question, and a worker's memory. Every question
is about another recipe, so that nothing of it was searched before. A real worker is asked over its socket, with the
state as the watcher hands it over; its CPU time is reported, which does not depend on what else the machine does, and
the wall time beside it. Verdicts are asked for and given on one core, which is what their budget is for. In between the
state changes, as it does every 15 s on a busy cluster. Jobs lie in a row by half, and anywhere by the other half; a
quarter of the nodes is free.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import socket
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import BinaryIO, cast

from benchmarks.found import Found, arguments, run
from benchmarks.process_use import cpu_s, median_p99, on_one_core, own_peak_bytes, rss_bytes, time_call
from opsk.config import AdvisorConfig, SiteConfig
from opsk.fabric.design import rail_optimized_fabric
from opsk.fabric.dumps.render import render_ibnetdiscover
from opsk.slurm.records import JobRecord, NodeRecord
from opsk.workload.advice_record import AdviceRecord, Verdict
from opsk_jobcheck.advice.adviser import build_site_adviser
from opsk_jobcheck.cluster_state.state import LiveReader, LiveWriter, fingerprint
from opsk_jobcheck.cluster_state.state_header import LiveHead
from opsk_jobcheck.service.answering import Answerer
from opsk_jobcheck.service.session import NoSideServices, Peer, Session
from opsk_jobcheck.submission.protocol import AdviseQuestion, Answer, frame, read_frame
from opsk_jobcheck.submission.request import SlurmRequest
from opsk_jobcheck.workers.analysis import Analysis, AnalysisRequest
from opsk_jobcheck.workers.forked_processes import FORK_SERVER_COMMAND
from opsk_jobcheck.workers.supervision import FOLDER_VARIABLE, ONE_THREAD
from opsk_jobcheck.workers.watcher import Round, StateBuilder

NODES, JOBS = 1024, 200
SHORT_NODES = 128
FABRIC_SIZES = (128, 256, 512)
"""Nodes of smaller fabrics, for how the cost of full advice grows."""
SIZES = (1, 2, 2, 2, 4, 4, 4, 8, 8)
EXAMPLE = Path(__file__).resolve().parents[2] / "examples/llama3-70b-megatron.sbatch"
QUESTIONS, SHORT_QUESTIONS = 120, 4
VERDICTS = 10
"""So many verdicts are asked for each full advice: others on a machine that is shared disturb seconds at a time."""
WIDTHS = 400
"""Recipes that differ in the width of the MLP; those beyond have another vocabulary."""
CHANGES_EVERY = 10


class NoSlurm:
    """Nobody to ask: jobs and nodes are made up here."""

    def release(self) -> tuple[int, int]:
        return (25, 11)


def measure(asked: argparse.Namespace) -> Found:
    """Print and return times and memory."""
    nodes, questions = (SHORT_NODES, SHORT_QUESTIONS) if asked.short else (NODES, QUESTIONS)
    smaller = FABRIC_SIZES[:0] if asked.short else FABRIC_SIZES
    points = [(size, measure_fabric(size, questions // 4).figures["full_cpu_s"]) for size in smaller]
    found = measure_fabric(nodes, questions)
    found.curves["nodes"] = [*points, (nodes, found.figures["full_cpu_s"])]
    return found


def measure_fabric(nodes: int, questions: int) -> Found:
    """Measure on a fabric of so many nodes."""
    with tempfile.TemporaryDirectory() as folder:
        return measure_in_folder(Path(folder), nodes, questions)


def measure_in_folder(folder: Path, nodes: int, questions: int) -> Found:
    """Measure with this folder for the fabric and the states."""
    dump = folder / "fabric.ib"
    fabric = rail_optimized_fabric(
        nodes=nodes, hcas=8, leaves=nodes // 4, spines=32, pods=max(nodes // 128, 1),
        cores_per_spine=8 if nodes > 128 else 0,
    )  # fmt: skip
    dump.write_text(render_ibnetdiscover(fabric))
    site = SiteConfig(cluster="superpod-h100", fabric=(dump,))
    watch = StateBuilder(site, build_site_adviser(site, with_fabric_links=True), NoSlurm())  # type: ignore[arg-type]
    seen = draw_round(random.Random(1), nodes)
    state, laid_s, laid_cpu_s = time_call(lambda: watch.state(seen))
    print(
        f"-- {nodes} nodes\nlaying {len(seen.jobs)} jobs, once: {laid_s:.2f} s, {laid_cpu_s:.2f} s of CPU; "
        f"watcher {own_peak_bytes() / 1e6:.0f} MB at most"
    )
    other, _, cpu = time_call(lambda: watch.state(Round(nodes=seen.nodes, jobs=seen.jobs[1:])))
    print(f"one job less: {cpu:.2f} s of CPU")
    writer = LiveWriter(folder, fingerprint(watch.fabric_links))
    writer.write(state, queried_at_s=time.monotonic())
    reader = LiveReader(folder, time.monotonic, fingerprint(watch.fabric_links))
    print(f"reading a new state: {time_call(reader.state)[2] * 1e3:.1f} ms of CPU")
    found = Found(figures={"watcher_bytes": own_peak_bytes()})
    with Worker(site, folder) as worker:
        print(f"worker when ready: {rss_bytes(worker.pid) / 1e6:.0f} MB")
        found.figures |= full_advice(worker, writer, (state, other), questions)
        with on_one_core(worker.pid):
            found.figures |= verdicts(worker, questions)
        found.figures["worker_bytes"] = rss_bytes(worker.pid)
    found.figures["again_median_s"] = statistics.median(asyncio.run(time_stored(folder, questions)))
    print(f"a stored answer: {1e3 * found.figures['again_median_s']:.2f} ms", flush=True)
    return found


def draw_round(dice: random.Random, count: int) -> Round:
    """Return jobs on three quarters of so many nodes: 200 of them on 1,024 nodes."""
    names = [f"n{number}" for number in range(count)]
    left, jobs = list(names), []
    for number in range(count * JOBS // NODES):
        size = min(dice.choice(SIZES), len(left) - count // 4)
        if size < 1:
            break
        start = dice.randrange(len(left) - size)
        nodes = left[start : start + size] if number % 2 else dice.sample(left, size)
        left = [name for name in left if name not in set(nodes)]
        pp = 2 if size >= 4 else 1
        record = AdviceRecord(
            verdict=Verdict.FITS, step_s=4.0, tokens_per_s_per_gpu=900.0, tflops=400.0, tp=8, pp=pp, dp=size // pp
        )
        jobs.append(
            JobRecord(
                id=1000 + number, label=str(1000 + number), user="u", name="train", state="RUNNING", nodes=tuple(nodes),
                node_count=size, gpus=8 * size, gpus_per_node=8, admin_comment=record.render(),
            )
        )  # fmt: skip
    free = set(left)
    nodes_now = tuple(
        NodeRecord(
            name=name, state="IDLE" if name in free else "ALLOCATED", partitions=("gpu",), gpus=8,
            gpus_used=0 if name in free else 8, cpus=128, cpus_used=0 if name in free else 128,
        )
        for name in names
    )  # fmt: skip
    return Round(nodes=nodes_now, jobs=tuple(jobs))


class Worker:
    """A real worker, the only one of its fork server, asked over its socket."""

    def __init__(self, site: SiteConfig, folder: Path) -> None:
        self._requests, read = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours, theirs = socket.socketpair()
        with read, theirs:
            self._forks = subprocess.Popen(FORK_SERVER_COMMAND, stdin=read, env={**os.environ, **ONE_THREAD})
            request = {"program": "worker", "arguments": [], "environment": {FOLDER_VARIABLE: str(folder)}}
            socket.send_fds(self._requests, [json.dumps(request).encode()], [theirs.fileno()] * 2)
        self.pid = int(json.loads(self._requests.recv(1000))["started"])
        with ours:
            self._stream = ours.makefile("rwb")
        self.ask(site.model_dump_json().encode())

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()
        self._requests.close()
        self._forks.wait()

    def ask(self, document: bytes) -> dict[str, object]:
        """Ask and wait for the answer."""
        self._stream.write(frame(document))
        self._stream.flush()
        return dict(json.loads(read_frame(cast("BinaryIO", self._stream)) or b"{}"))

    def cpu_s(self) -> float:
        """Return the CPU time that it has used [s]."""
        return cpu_s(self.pid)


def full_advice(worker: Worker, writer: LiveWriter, states: Sequence[object], questions: int) -> dict[str, float]:
    """Ask for advice on the example, for eight nodes and for more; return the worst of each figure."""
    text = EXAMPLE.read_text()
    worst = {"full_median_s": 0.0, "full_p99_s": 0.0, "full_cpu_s": 0.0}
    for nodes in (8, 16, 64):
        said = worker.ask(_question(text, nodes=nodes))
        walls, before = [], worker.cpu_s()
        for number in range(questions):
            if number % CHANGES_EVERY == 0:
                writer.write(states[number // CHANGES_EVERY % 2], queried_at_s=time.monotonic())  # type: ignore[arg-type]
            document = _question(text, nodes=nodes, recipe=number + 1)
            walls.append(time_call(partial(worker.ask, document))[1])
        spent_s = (worker.cpu_s() - before) / questions
        median, p99 = median_p99(walls)
        found = {"full_median_s": median, "full_p99_s": p99, "full_cpu_s": spent_s}
        worst = {key: max(value, found[key]) for key, value in worst.items()}
        print(
            f"full advice, {nodes} nodes: {_in_ms(walls)}, CPU {1e3 * spent_s:.0f} ms; "
            f"worker {rss_bytes(worker.pid) / 1e6:.0f} MB"
        )
        advised = said.get("advised")
        for line in advised["lines"] if isinstance(advised, dict) else [json.dumps(said)]:
            if line.startswith(("network", "shares")):
                print(f"   {line}")
    return worst


def verdicts(worker: Worker, questions: int) -> dict[str, float]:
    """Ask for verdicts as job_submit does, of which there are many for each full advice."""
    text, found, count = EXAMPLE.read_text(), dict[str, float](), questions * VERDICTS
    for name, recipes in (("new", count), ("known", 1)):
        documents = [
            _question(text, nodes=8, recipe=questions + 1 + number % recipes, seed=number, quick=True)
            for number in range(count)
        ]
        worker.ask(documents[0])
        before = worker.cpu_s()
        times = [time_call(partial(worker.ask, document))[1] for document in documents]
        spent_s = (worker.cpu_s() - before) / count
        found[f"verdict_{name}_median_s"], found[f"verdict_{name}_p99_s"] = median_p99(times)
        if name == "known":
            found["verdicts_per_s"] = 1 / max(spent_s, 1e-4)
        print(f"{count} verdict questions, of a {name} recipe: {_in_ms(times, digits=2)}, CPU {spent_s * 1e3:.2f} ms")
    return found


def _question(text: str, *, nodes: int, recipe: int = 0, seed: int = 0, quick: bool = False) -> bytes:
    """Return a question about the example, of one of many recipes: nothing of it has been searched before."""
    rows, columns = divmod(recipe, WIDTHS)
    text = text.replace("28672", str(28672 - 64 * columns)).replace("128256", str(128256 + 128 * rows))
    text = text.replace("1.5e-4", f"1.5e-4 --seed {seed}")
    query = AnalysisRequest(text=text, file="job.sh", request=SlurmRequest(nodes=nodes), files={}, quick=quick)
    return json.dumps(query.pack()).encode()


async def time_stored(folder: Path, questions: int) -> list[float]:
    """Return the times of a question that was answered before, and whose live state is the same [s]."""
    services = _LiveState(LiveHead(folder, time.monotonic))
    answerer = Answerer(AdvisorConfig(), _Known(), frozenset({0}), side_services=services)  # type: ignore[arg-type]
    question = AdviseQuestion(kind="advise", command="sbatch", argv=("job.sh",), script=EXAMPLE.read_text())
    times = []
    for _ in range(questions):
        session = Session(peer=Peer(pid=1, uid=0, gid=0))
        start = time.perf_counter()
        answer = answerer.advise(question, session)
        if not isinstance(answer, Answer):
            await answer
        times.append(time.perf_counter() - start)
    return times[1:]


class _LiveState(NoSideServices):
    """Knows the version of the state in a folder, and offers nothing else."""

    def __init__(self, head: LiveHead) -> None:
        self.state_version = head.generation  # type: ignore[method-assign]


class _Known:
    """Answers at once."""

    def analyze(self, *_: object, then: Callable[[Analysis, dict[str, float]], None], **__: object) -> None:
        """Give the same advice to all."""
        then(Analysis(verdict="fits", lines=("line",) * 6), {})


def _in_ms(times: Sequence[float], digits: int = 0) -> str:
    """Return median and P99 of times in words."""
    median, p99 = median_p99(times)
    return f"median {1e3 * median:.{digits}f} ms, P99 {1e3 * p99:.{digits}f} ms"


if __name__ == "__main__":
    run(measure, arguments(__doc__))
