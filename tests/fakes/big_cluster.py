"""A made-up cluster for the screens: any number of nodes and jobs, failures, hostile names, and values that change.

Everything follows from a seed and the number of the step, so pictures of it are the same on every machine.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from opsk.diagnosis.events.observations import Event, FailedPart, Severity
from opsk.diagnosis.losses.values import Cause, Finding, Losses
from opsk.slurm.commands.remap_commands import Who
from opsk.slurm.records import JobRecord, NodeRecord
from opsk.workload.advice_record import AdviceRecord, Verdict
from opsk_tui.data.feed_port import JobDetails, RankTable
from opsk_tui.data.view import (
    ClusterView,
    FabricView,
    GpuTable,
    Health,
    JobView,
    Measured,
    Metric,
    PortTable,
    ReportRow,
    Source,
    SourceState,
)  # fmt: skip
from tests.fakes.compared_jobs import accuracy_document, compared_jobs

NOW_S = 1_790_000_000.0
SLOTS = 8
HOSTILE = (
    "[red]x[/red][@click=app.quit]y[/]",
    "\x1b]0;owned\x07\x1b[2Jcleared",
    "\u202etxt.exe\u2066 bidi",
    "line\nbreak\ttab\rreturn",
    "שלום-עולם مرحبا",
    "z" + "\u0301" * 40 + "algo",
    "日本語の名前🔥",
    "a" * 300,
    "\x9b31mC1\x00nul\u200bzero",
    "{escape} $foreground %s \\[bold]",
)
_USERS = ("ada", "grace", "linus", "margaret", "mallory[b]", "edsger")
_PLAIN_USERS = ("ada", "grace", "linus", "margaret", "mallory", "edsger")
_MODELS = ("llama3-70b", "mixtral-8x22b", "gpt-175b", "finetune-7b", "qwen-32b", "vit-22b", "deepseek-v3")
_PARTITIONS = ("train", "train", "train", "debug", "h200")


class BigCluster:
    """Makes views.

    Parameters
    ----------
    nodes, jobs
        How many; jobs get whole nodes one after another until none is left, the rest is pending.
    hostile
        Whether names, reasons and logs hold markup and control characters; pictures for the docs do without.
    """

    def __init__(self, nodes: int = 2000, jobs: int = 500, seed: int = 7, *, hostile: bool = True) -> None:
        self._random = np.random.default_rng(seed)
        self._count = nodes
        self.is_hostile = hostile
        width = max(3, len(str(nodes)))
        self.names = tuple(f"gpu{number:0{width}}" for number in range(1, nodes + 1))
        self.jobs = self._make_jobs(jobs)
        self.owner = np.full((nodes, SLOTS), -1, dtype=np.int64)
        for job in self.jobs:
            for name in job.record.nodes:
                self.owner[self.names.index(name)] = job.record.id
        self._health = self._make_health()
        self._base = np.where(self.owner >= 0, self._random.uniform(0.7, 0.99, (nodes, SLOTS)), 0.0)
        self._ports_health = np.full((nodes, SLOTS), Health.OK, dtype=np.int8)
        for row, rail in ((nodes // 3, 2), (nodes // 2, 5)):
            self._ports_health[row % nodes, rail] = Health.UNHEALTHY

    def _make_jobs(self, count: int) -> list[JobView]:
        sizes = self._random.choice([1, 1, 2, 4, 4, 8, 16], size=count)
        jobs, used = [], 0
        for at in range(count):
            size = int(sizes[at])
            runs = used + size <= int(self._count * 0.94)
            names = self.names[used : used + size] if runs else ()
            used += size if runs else 0
            jobs.append(self._make_job(at, size, names))
        return jobs

    def _make_job(self, at: int, size: int, names: Sequence[str]) -> JobView:
        runs = bool(names)
        name = (
            HOSTILE[at % 40 - 3]
            if self.is_hostile and 3 <= at % 40 < 3 + len(HOSTILE)
            else f"{_MODELS[at % 7]}-r{at % 11}"
        )
        gpus = size * SLOTS
        tp = min(8, gpus)
        record = JobRecord(
            id=410_000 + at, label=str(410_000 + at), name=name,
            user=(_USERS if self.is_hostile else _PLAIN_USERS)[at % 6], account="lab",
            state="RUNNING" if runs else "PENDING",
            reason=None if runs else ("Resources", "Priority", "[b]QOS" if self.is_hostile else "QOS")[at % 3],
            partition=_PARTITIONS[at % 5], nodes=tuple(names), node_count=size, gpus=gpus, gpus_per_node=SLOTS,
            gpu_type="h100", run_time_s=600 + at * 977 if runs else None, time_limit_s=172_800,
        )  # fmt: skip
        mfu = 0.36 + (at % 9) * 0.012
        advice = None if at % 13 == 12 else AdviceRecord(
            verdict=(Verdict.FITS, Verdict.FITS, Verdict.TIGHT, Verdict.OOM)[at % 4], fit=0.97, step_s=8.0 + at % 17,
            mem_bytes=(52 + at % 30) * 1e9, capacity_bytes=85e9, mfu=mfu, tflops=989 * mfu, tp=tp, pp=1,
            tokens_per_s_per_gpu=900.0, dp=max(1, gpus // tp),
        )  # fmt: skip
        if not runs:
            return JobView(record=record, advice=advice)
        gap = (0.0, 0.01, 0.03, 0.16, 0.0, 0.31, 0.02)[at % 7]
        step_s = (8.0 + at % 17) / (1 - gap)
        waves = step_s * (1 + 0.02 * np.sin(np.arange(120) / 5 + at) + 0.01 * np.cos(np.arange(120) * 1.7))
        waves[::30] *= 1.4
        history = tuple((NOW_S - (120 - place) * step_s, float(value)) for place, value in enumerate(waves))
        measured = Measured(
            step_s=step_s, mfu=mfu * (1 - gap), tflops_per_gpu=989 * mfu * (1 - gap),
            tokens_per_s=900.0 * gpus * (1 - gap),
            memory_peak_bytes=(50 + at % 30) * 1e9, iteration=12_000 + at, age_s=4.0, source="log", history=history,
        )  # fmt: skip
        if advice is None:
            return JobView(record=record, measured=measured)
        losses = Losses(
            expected_mfu=mfu, measured_mfu=mfu * (1 - gap), expected_step_s=8.0 + at % 17, measured_step_s=step_s,
            gap=gap, is_within_error=gap < 0.05, findings=self._findings(at, gap, names),
        )  # fmt: skip
        return JobView(record=record, advice=advice, measured=measured, losses=losses)

    def _findings(self, at: int, gap: float, names: Sequence[str]) -> tuple[Finding, ...]:
        if gap < 0.05:
            return ()
        first = (Cause.STRAGGLER, Cause.THERMAL_CAP, Cause.CONGESTED_LINK, Cause.DATA_LOADING)[at % 4]
        where = f"{names[-1]} gpu 3"
        return (
            Finding(cause=first, share=gap * 0.7, confidence=0.8, where=where,
                    text=f"{first.value.replace('_', ' ')} at {where} costs {gap * 70:.0f} % of each step"),
            Finding(cause=Cause.CHECKPOINTING, share=gap * 0.2, confidence=0.9,
                    text="every 30th step takes 1.4 times as long as the others" + self.odd("[b]hostile[/b]\x1b[31m")),
            Finding(cause=Cause.UNKNOWN, share=gap * 0.1, confidence=0.3),
        )  # fmt: skip

    def odd(self, text: str) -> str:
        return " " + text if self.is_hostile else ""

    def _make_health(self) -> np.ndarray:
        health = np.full((self._count, SLOTS), Health.OK, dtype=np.int8)
        rows = self._random.integers(0, self._count, size=max(2, self._count // 80))
        for place, row in enumerate(rows.tolist()):
            health[row, place % SLOTS] = Health.UNHEALTHY if place % 3 == 0 else Health.WATCH
        return health

    @cached_property
    def nodes(self) -> tuple[NodeRecord, ...]:
        """Nodes, some drained, one down."""
        used = (self.owner >= 0).sum(axis=1)
        nodes = []
        for row, name in enumerate(self.names):
            state, flags, reason = ("ALLOCATED" if used[row] else "IDLE"), (), None
            if row % 97 == 50:
                flags, reason = ("DRAIN",), "opsk: gpu3 XID 79" + self.odd("[red]fell off[/red]\x1b[2J")
            if row % 211 == 120:
                state, reason = "DOWN", "Not responding"
            nodes.append(
                NodeRecord(name=name, state=state, state_flags=flags, partitions=(_PARTITIONS[row * 5 // self._count],),
                           gpus=SLOTS, gpus_used=int(used[row]), gpu_type="h100", cpus=96,
                           cpus_used=int(used[row]) * 12, reason=reason)
            )  # fmt: skip
        return tuple(nodes)

    @cached_property
    def fabric(self) -> FabricView:
        """A rail-optimised fabric: a leaf a rail and 32 nodes."""
        shape = (self._count, SLOTS)
        random = np.random.default_rng(11)
        congestion = random.gamma(1.2, 0.01, shape).astype(np.float32)
        congestion[: self._count // 10, 3] += 0.25
        rate = np.ones(shape, dtype=np.float32)
        rate[self._ports_health == Health.UNHEALTHY] = 0.0
        leaves = {
            (name, rail): f"leaf-r{rail}-u{row // 32:02}"
            for row, name in enumerate(self.names)
            for rail in range(SLOTS)
        }
        switches = tuple(sorted(set(leaves.values())))
        ports = PortTable(
            rails=tuple(f"mlx5_{rail}" for rail in range(SLOTS)), rate_ratio=rate, congestion=congestion,
            bytes_per_s=np.where(self.owner >= 0, random.uniform(5e9, 4.5e10, shape), 1e6).astype(np.float32),
            errors=np.where(self._ports_health == Health.UNHEALTHY, 40, 0).astype(np.float32),
            health=self._ports_health, leaves=leaves,
        )  # fmt: skip
        return FabricView(
            ports=ports, tiers=(switches, tuple(f"spine{at:02}" for at in range(32)), ("core0", "core1")),
            hb_domains={name: (name,) for name in self.names},
            faults=(f"{self.names[self._count // 3]} mlx5_2 is cabled to leaf-r3 where rail 2 is expected",
                    f"{self.names[self._count // 2]} mlx5_5 is down" + self.odd("\x1b[5m[blink]"),
                    "leaf-r1-u00 runs 2 of 16 uplinks at HDR"),
        )  # fmt: skip

    @cached_property
    def events(self) -> tuple[Event, ...]:
        """Failures of every severity, on parts that jobs use."""
        running = [job for job in self.jobs if job.record.nodes]
        first, second = running[0], running[min(4, len(running) - 1)]
        node = first.record.nodes[0]
        return (
            Event(key=f"gpu:{node}/5 xid79", failed=f"gpu:{node}/5", part=FailedPart.GPU, severity=Severity.FATAL,
                  first_seen_s=NOW_S - 42, last_seen_s=NOW_S - 2, count=3, nodes=(node,), jobs=(first.record.id,),
                  text="XID 79: GPU has fallen off the bus" + self.odd("[b]pci 0000:9b:00[/b]\x1b[31m"),
                  source="vendor's XID table",
                  action="Drain the node, move the job, reset the GPU; replace it if it comes back."),
            Event(key="nic", failed=f"nic:{second.record.nodes[0]}/mlx5_2", part=FailedPart.NIC,
                  severity=Severity.DEGRADED,
                  first_seen_s=NOW_S - 600, last_seen_s=NOW_S - 10, count=40, nodes=second.record.nodes[:1],
                  jobs=(second.record.id, first.record.id), text="port is down; ranks fall back to mlx5_3",
                  action="Check the cable."),
            Event(key="leaf", failed="leaf:leaf-r1-u00", part=FailedPart.LEAF, severity=Severity.WATCH,
                  first_seen_s=NOW_S - 7200, last_seen_s=NOW_S - 60, count=7, was_there=True, nodes=self.names[:32],
                  jobs=tuple(job.record.id for job in running[:3]), text="2 of 16 uplinks run at HDR"),
            Event(key="over", failed=f"node:{self.names[-1]}", part=FailedPart.NODE,
                  severity=Severity.FATAL, is_over=True,
                  first_seen_s=NOW_S - 90_000, last_seen_s=NOW_S - 80_000, nodes=self.names[-1:],
                  text="did not answer for 3 min"),
        )  # fmt: skip

    def view(self, step: int = 0) -> ClusterView:
        """Return the cluster at one step; utilisation and power change, little else."""
        phase = np.sin(step * 0.7 + np.arange(self._count * SLOTS).reshape(-1, SLOTS) * 0.37)
        load = np.clip(self._base + 0.06 * phase * (self._base > 0), 0, 1).astype(np.float32)
        throttle = np.where(self._health == Health.WATCH, 0.35, 0.0).astype(np.float32)
        values = {
            Metric.UTILISATION: load,
            Metric.TENSOR: (load * 0.55).astype(np.float32),
            Metric.MEMORY: np.where(self._base > 0, 0.82, 0.01).astype(np.float32),
            Metric.POWER: (90 + 600 * load).astype(np.float32),
            Metric.TEMPERATURE: (32 + 40 * load + 20 * throttle).astype(np.float32),
            Metric.CLOCK: (1 - throttle * 0.6).astype(np.float32),
            Metric.THROTTLE: throttle,
            Metric.ERRORS: np.where(self._health == Health.UNHEALTHY, 3, 0).astype(np.float32),
        }
        for row, node in enumerate(self.nodes):
            if node.state == "DOWN":
                for array in values.values():
                    array[row] = np.nan
        now = NOW_S + 5 * step
        sources = (
            SourceState(source=Source.SLURM, where="slurmctld", taken_at_s=now - 3),
            SourceState(source=Source.PROMETHEUS, where="http://prometheus:9090", taken_at_s=now - 1),
            SourceState(source=Source.STORE, where="sqlite", taken_at_s=now - 40,
                        problem="database is locked", hint="another writer holds it"),
        )  # fmt: skip
        gpus = GpuTable(
            values=values, health=self._health, job=self.owner, present=np.ones_like(self.owner, dtype=bool)
        )
        return ClusterView(
            taken_at_s=now, cluster="alpine", nodes=self.nodes, gpus=gpus, jobs=tuple(self._moved_jobs(step)),
            fabric=self.fabric, events=self.events,
            reports=REPORTS if self.is_hostile else PLAIN_REPORTS, sources=sources, rights=(Who.USER, Who.OPERATOR),
        )  # fmt: skip

    def _moved_jobs(self, step: int) -> list[JobView]:
        """Return the jobs some steps later: each has one more step time."""
        if step == 0:
            return self.jobs
        moved = []
        for at, job in enumerate(self.jobs):
            if job.measured is None or at % 3:
                moved.append(job)
                continue
            last = (NOW_S + 5 * step, (job.measured.step_s or 1.0) * (1 + 0.05 * np.sin(step + at)))
            measured = replace(
                job.measured, iteration=(job.measured.iteration or 0) + step, history=(*job.measured.history[1:], last)
            )
            moved.append(replace(job, measured=measured))
        return moved

    def details(self, number: int) -> JobDetails:
        """Return what is known of one job, with a hostile log."""
        job = next(job for job in self.jobs if job.record.id == number)
        names = [name for name in job.record.nodes for _ in range(SLOTS)]
        count = len(names)
        random = np.random.default_rng(number)
        step_s = np.full(count, 8.0, dtype=np.float32) * random.normal(1, 0.005, count).astype(np.float32)
        if count > 3:
            step_s[count - 5] *= 1.25
        load = random.uniform(0.85, 0.99, count).astype(np.float32)
        ranks = RankTable(
            nodes=tuple(names), gpus=np.tile(np.arange(SLOTS), max(1, count // SLOTS))[:count].astype(np.int16),
            values={Metric.UTILISATION: load, Metric.POWER: 90 + 600 * load, Metric.MEMORY: load * 0.9}, step_s=step_s,
            memory_bytes=random.uniform(60e9, 70e9, count), places=tuple(f"dp{rank // 8}" for rank in range(count)),
        )  # fmt: skip
        log = [f" iteration {step:>6}/ 20000 | elapsed time per iteration (ms): 8123.4 | lm loss: 2.1{step % 10}"
               for step in range(11_960, 12_000)]  # fmt: skip
        return JobDetails(
            job_id=number, ranks=ranks if count else None, log_path=f"/home/ada/slurm-{number}.out",
            memory_parts_bytes={"activations": 31e9, "optimizer": 19e9, "weights": 9e9, "other": 3e9},
            log=(
                *log, *(HOSTILE if self.is_hostile else ()), "RuntimeError: CUDA error" + self.odd("[bold]not[/bold]")
            ),
            advice=("opsk  memory   fits: 62 of 79 GiB per GPU",
                    "opsk  speed    412 TFLOP/s/GPU, MFU 42 %" + self.odd("\x1b[1m[b]")),
        )  # fmt: skip


REPORTS = (
    ReportRow(job="410001", title="GPU fell off the bus on gpu0007 [red]XID 79[/red]", kind="postmortem",
              made_at_s=NOW_S - 3600, path="/var/lib/opsk/reports/410001.md"),
    ReportRow(job="410017", title="out of GPU memory \x1b[2Jin the first step", kind="postmortem",
              made_at_s=NOW_S - 86_400, path="/var/lib/opsk/reports/410017.md"),
    ReportRow(job="-", title="calibration against 214 runs", kind="calibration", made_at_s=NOW_S - 400_000,
              path="/var/lib/opsk/reports/calibration.md"),
)  # fmt: skip

PLAIN_REPORTS = tuple(replace(row, title=row.title.split(" [")[0].replace("\x1b[2J", "")) for row in REPORTS)


class BigFeed:
    """Delivers the first view at once, then one an interval; without one whenever `push` is called."""

    def __init__(self, cluster: BigCluster, interval_s: float | None = None) -> None:
        self.cluster = cluster
        self.step = 0
        self.asked = 0
        self._interval_s = interval_s
        self._more = asyncio.Event()

    async def views(self) -> AsyncIterator[ClusterView]:
        while True:
            yield self.cluster.view(self.step)
            if self._interval_s is None:
                await self._more.wait()
                self._more.clear()
            else:
                await asyncio.sleep(self._interval_s)
            self.step += 1

    def push(self) -> None:
        self._more.set()

    def ask_now(self) -> None:
        self.asked += 1

    async def job_details(self, job_id: int) -> JobDetails:
        return self.cluster.details(job_id)

    async def accuracy(self) -> Mapping[str, Any]:
        return accuracy_document() if self.cluster.is_hostile else accuracy_document(compared_jobs("grace"))

    async def report_text(self, path: str) -> str:
        return f"# Report {path}\n\nroot cause: [b]gpu_hardware[/b]\x1b[31m\n" + "\n".join(
            f"evidence {number}: XID 79 on gpu0007" for number in range(60)
        )
