"""Submits a soak's jobs to Slurm, and does to running jobs what their kind asks for.

A submission that meets no slurmctld is made again, as a user would; any other refusal is written down and is a defect.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

from tests.soak.planned import PlannedJob
from tests.soak.site import SLOWEST_S, TIMED_OUT, Site

CLIENTS = 3
PATIENCE_S = 600.0
MAYBE_HEARD = ("Socket timed out", "Zero Bytes were transmitted", TIMED_OUT)
"""What there is instead of an answer when slurmctld may have taken the job."""
NOBODY_THERE = (*MAYBE_HEARD, "Unable to contact slurm controller", "Connection refused", "Connection reset",
                "Transport endpoint", "in standby mode")  # fmt: skip
"""What sbatch says when slurmctld is away."""
ENDED = frozenset({"COMPLETED", "FAILED", "TIMEOUT", "CANCELLED", "NODE_FAIL", "PREEMPTED", "OUT_OF_MEMORY",
                   "DEADLINE", "BOOT_FAIL"})  # fmt: skip


@dataclass(slots=True)
class Submissions:
    """Submits, follows, and keeps book."""

    site: Site
    ids: dict[int, str] = field(default_factory=dict)
    refused: dict[int, str] = field(default_factory=dict)
    again: int = 0
    broken: list[tuple[str, str, float, float]] = field(default_factory=list)
    """What was broken of which node, from when to when."""
    problems: list[str] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def submit(self, job: PlannedJob) -> str | None:
        """Submit one job until it is taken; ``None`` where it is refused for good."""
        work = self.site.top / "work"
        script = work / f"{job.name}.sh"
        script.write_text(_script(job), encoding="utf-8")
        words = [
            "sbatch", "--parsable", "--no-requeue", f"--job-name={job.name}", f"--output={work}/out/%x-%j.out",
            *(("--partition=urgent" if job.kind.name == "urgent" else "--partition=alone", f"--nodelist={job.node}")
              if job.node else ()),
            *job.kind.options, str(script),
        ]  # fmt: skip
        user = self.site.users[job.user % len(self.site.users)]
        go = {"SOAK_GO": str(work / "go" / job.name)}
        end = time.monotonic() + PATIENCE_S
        while True:
            done = self.site.run(*words, user=user, more=go, within_s=SLOWEST_S)
            number = done.stdout.strip().partition(";")[0] if done.returncode == 0 else self._heard(job, done.stderr)
            if number:
                with self._lock:
                    self.ids[job.number] = number
                return number
            is_away = any(word in done.stderr for word in NOBODY_THERE)
            if not is_away or time.monotonic() > end:
                with self._lock:
                    self.refused[job.number] = " ".join(done.stderr.split())[-300:]
                return None
            with self._lock:
                self.again += 1
            time.sleep(1.0)

    def _heard(self, job: PlannedJob, said: str) -> str:
        """Return the number of a job that Slurm took all the same, though sbatch got no answer; else nothing."""
        if not any(word in said for word in MAYBE_HEARD):
            return ""
        return self.site.run("squeue", "-h", "-t", "all", "-n", job.name, "-o", "%F").stdout.split("\n")[0].strip()

    def run_shared(self, jobs: Sequence[PlannedJob], began: float) -> list[threading.Thread]:
        """Start clients that submit jobs when their time has come."""
        left = iter(sorted(jobs, key=lambda job: job.at_s))
        threads = [
            threading.Thread(target=self._client, args=(left, began), name=f"client-{number}", daemon=True)
            for number in range(CLIENTS)
        ]
        for thread in threads:
            thread.start()
        return threads

    def run_alone(self, jobs: Sequence[PlannedJob], began: float) -> list[threading.Thread]:
        """Start one thread a node on which things break, one after the other."""
        threads = []
        for node in self.site.alone:
            mine = [job for job in jobs if job.node == node]
            threads.append(threading.Thread(target=self._breaks, args=(mine, began), name=node, daemon=True))
        for thread in threads:
            thread.start()
        return threads

    def cancel_running(self, jobs: Sequence[PlannedJob], stopped: threading.Event) -> None:
        """Cancel those that are to be cancelled once they have run for some seconds."""
        left = {job.number for job in jobs if job.kind.act == "cancel"}
        while left and not stopped.wait(2.0):
            for number in sorted(left & self.ids.keys()):
                state, ran_s = self.seen(self.ids[number])
                if state in ENDED or (state == "RUNNING" and ran_s >= 3 and self._cancel(self.ids[number])):
                    left.discard(number)

    def seen(self, number: str) -> tuple[str, int]:
        """Return the state of a job as slurmctld says it, and how long it has run [s]; empty while it does not say."""
        done = self.site.run("squeue", "-h", "-t", "all", "-j", number, "-o", "%T %M")
        words = done.stdout.split()
        if done.returncode != 0 or len(words) < 2:
            return "", 0
        parts = [int(part) for part in words[1].replace("-", ":").split(":") if part.isdigit()]
        return words[0], sum(part * 60**place for place, part in enumerate(reversed(parts)))

    def _cancel(self, number: str) -> bool:
        return self.site.run("scancel", number).returncode == 0

    def _guarded(self, work: Callable[[], object]) -> None:
        """Do something in a thread, and keep what went wrong with the soak itself."""
        try:
            work()
        except Exception as error:  # noqa: BLE001 - a soak tells of what it could not do, and goes on
            self.problems.append(f"{threading.current_thread().name}: {type(error).__name__}: {error}"[:400])

    def _client(self, left: Iterator[PlannedJob], began: float) -> None:
        while True:
            with self._lock:
                job = next(left, None)
            if job is None:
                return
            time.sleep(max(0.0, began + job.at_s - time.monotonic()))
            self._guarded(partial(self.submit, job))

    def _breaks(self, jobs: Sequence[PlannedJob], began: float) -> None:
        """Submit to one node and break what each job wants broken."""
        for place, job in enumerate(jobs):
            if job.kind.name == "urgent":
                continue
            time.sleep(max(0.0, began + job.at_s - time.monotonic()))
            self._guarded(partial(self._break_one, job, jobs[place + 1 : place + 2]))

    def _break_one(self, job: PlannedJob, following: Sequence[PlannedJob]) -> None:
        """Submit one job, and break what it wants broken once it runs."""
        number = self.submit(job)
        if number is None:
            return
        if not self._await(number, lambda state, ran_s: state == "RUNNING" and ran_s >= 3):
            self._cancel(number)  # nothing will break under it
            return
        with self._breaking(job, following):
            self._await(number, lambda state, _: state in ENDED)
            if job.kind.act != "node":
                self._await_evidence(number, job.node, within_s=240.0)

    @contextmanager
    def _breaking(self, job: PlannedJob, following: Sequence[PlannedJob]) -> Iterator[None]:
        """Break what a kind wants broken, and repair it."""
        act, node, from_s = job.kind.act, job.node, time.time()
        daemons = self.site.daemons
        if act == "gpu":
            self._opsk("lab", "break", "gpu", node, "1", "--xid", "79")
        elif act == "nic":
            self._opsk("lab", "break", "nic", node, "mlx5_1")
        elif act == "node":
            daemons.end(f"slurmd-{node}")
        elif act == "preempt":
            for urgent in following:
                self.submit(urgent)
        (self.site.top / "work" / "go" / job.name).touch()
        try:
            yield
        finally:
            if act == "node":
                daemons.start(f"slurmd-{node}")
                self._await_evidence(self.ids[job.number], node)
            elif act in ("gpu", "nic"):
                self._opsk("lab", "repair", act, node)
                # As a reboot does: what a node said before a job counts for the job.
                (self.site.node_folder(node) / "kmsg").write_text("")
            self.broken.append((node, act, from_s, time.time()))
            self._await_free(node)

    def _await(self, number: str, holds: Callable[[str, int], bool]) -> bool:
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            state, ran_s = self.seen(number)
            if holds(state, ran_s):
                return True
            if state in ENDED:
                return False
            time.sleep(1.0)
        self.problems.append(f"job {number} did not get where it should within {PATIENCE_S:.0f} s: {self.seen(number)}")
        return False

    def _await_evidence(self, number: str, node: str, within_s: float = 40.0) -> None:
        """Wait for what a node keeps of a job, in its spool at least; the next job may break something else.

        Of a job that was lost with its node there may be nothing.
        """
        end, spool = time.monotonic() + within_s, self.site.node_folder(node) / "spool" / "ended"
        while time.monotonic() < end:
            if [*self.site.evidence.glob(f"*.{number}/{node}@*.json"), *spool.glob(f".*.{number}.taken")]:
                return
            time.sleep(0.5)

    def _await_free(self, node: str) -> None:
        end = time.monotonic() + 60
        while "idle" not in self.site.run("sinfo", "-h", "-n", node, "-o", "%t").stdout and time.monotonic() < end:
            time.sleep(1.0)

    def _opsk(self, *words: str) -> None:
        done = self.site.opsk(*words)
        if done.returncode != 0:
            self.problems.append(f"{' '.join(words)}: {done.stderr.strip()[-200:]}")


def _script(job: PlannedJob) -> str:
    """Return a job's script: no two are alike, so that none has been answered before."""
    nodes = next((word.partition("=")[2] for word in job.kind.options if word.startswith("--nodes=")), "1")
    body = job.kind.body
    if job.kind.trains or "{seconds}" in body:
        for name, value in (("seed", job.number + 1), ("layers", 8 + job.number % 5), ("nodes", nodes),
                            ("seconds", job.seconds)):  # fmt: skip
            body = body.replace(f"{{{name}}}", str(value))
    lines = "".join(f"#SBATCH {word}\n" for word in job.kind.options) if job.kind.trains else ""
    return f"#!/bin/bash\n{lines}# {job.name}\n{body}"
