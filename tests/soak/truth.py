"""Reads what is there when a soak is over: Slurm's accounting, opsk's reports, its store and its audit log."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from opsk.job_key import JobKey
from tests.soak.site import Site

FIELDS = ("JobID", "JobIDRaw", "JobName", "State", "Submit", "Start", "End", "NodeList", "NNodes", "User", "AllocTRES",
          "ReqTRES", "AdminComment")  # fmt: skip
UNFINISHED = frozenset({"PENDING", "RUNNING", "SUSPENDED", "COMPLETING", "CONFIGURING", "REQUEUED", "RESIZING"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Accounted:
    """A job as sacct tells of it; ``gpus`` is ``None`` where it says nothing of what was allocated."""

    label: str
    number: str
    name: str
    state: str
    submit_s: int
    start_s: int | None
    end_s: int | None
    nodes: str
    node_count: int
    user: str
    gpus: int | None
    admin_comment: str

    @property
    def has_ended(self) -> bool:
        """Whether its state is final."""
        return self.state not in UNFINISHED and self.end_s is not None

    @property
    def has_run(self) -> bool:
        """Whether it ever had a node."""
        return self.start_s is not None and not self.nodes.startswith("None")


@dataclass(slots=True, kw_only=True)
class Truth:
    """All that is known at the end; ``reports`` and ``evidence`` by Slurm's own number of a job."""

    jobs: list[Accounted]
    reports: dict[str, dict[str, Any]]
    evidence: dict[str, list[str]]
    store: dict[str, list[dict[str, Any]]]
    store_said: str
    audit: list[dict[str, Any]]
    audit_broken: int
    logs: dict[str, str] = field(default_factory=dict)


def accounted(site: Site) -> list[Accounted]:
    """Ask sacct for all jobs."""
    words = ("sacct", "-a", "-X", "-D", "-n", "-P", "-S", "now-1day", "-o", ",".join(FIELDS))
    done = site.run(*words, more={"SLURM_TIME_FORMAT": "%s"}, within_s=120.0)
    if done.returncode != 0:
        return []
    return [_job(dict(zip(FIELDS, line.split("|"), strict=False))) for line in done.stdout.splitlines() if line]


def look(site: Site) -> Truth:
    """Read everything."""
    reports, evidence = {}, {}
    for folder in sorted(site.evidence.iterdir()):
        key = JobKey.of_file_name(folder.name)
        if key is None:
            continue
        evidence[key.job] = sorted(path.name for path in folder.iterdir())
        if (folder / "report.json").exists():
            reports[key.job] = json.loads((folder / "report.json").read_text())
    exported = site.opsk("store", "export")
    store: dict[str, list[dict[str, Any]]] = {}
    for line in exported.stdout.splitlines():
        row = json.loads(line)
        store.setdefault(row["kind"], []).append(row)
    checked = site.opsk("store", "check")
    audit, broken = _audit(site.audit)
    said = exported.stderr + (checked.stdout + checked.stderr if checked.returncode else "")
    return Truth(
        jobs=accounted(site), reports=reports, evidence=evidence, store=store, store_said=said.strip(), audit=audit,
        audit_broken=broken, logs=_logs(site.record.folder.path / "log"),
    )  # fmt: skip


def settled(site: Site, within_s: float, wanted: int) -> float:
    """Wait until all jobs have ended and nobody keeps evidence or writes reports; returns how long that took [s]."""
    began = time.monotonic()
    while time.monotonic() - began < within_s:
        jobs = accounted(site)
        busy = [*site.daemons.of_lab("opsk", "collect"), *site.daemons.of_lab("opsk", "--automatic")]
        if len(jobs) >= wanted and all(job.has_ended for job in jobs) and not busy and not spooled(site):
            break
        time.sleep(2.0)
    return time.monotonic() - began


def caught_up(site: Site, within_s: float) -> None:
    """Wait until the store has each job that was advised on, with its end: a recorder learns of some a while later."""
    began = time.monotonic()
    wanted = {(job.label, job.submit_s) for job in accounted(site) if "opsk:v1" in job.admin_comment and job.has_run}
    while time.monotonic() - began < within_s:
        time.sleep(5.0)
        said = site.opsk("store", "export")
        rows = [row for row in map(json.loads, said.stdout.splitlines()) if row["kind"] == "job"]
        there = {(row["job"], int(moment_s(row["submitted_at"]))) for row in rows}
        if said.returncode == 0 and wanted <= there and all(row.get("ended_at") for row in rows):
            return


def moment_s(text: str) -> float:
    """Return a time of a record as seconds since 1970."""
    return datetime.fromisoformat(text).timestamp()


def spooled(site: Site) -> list[Path]:
    """Return what nodes have still to keep, and to report on."""
    nodes = site.record.folder.nodes
    return [*nodes.glob("*/spool/ended/[!.]*"), *nodes.glob("*/spool/reports/[!.]*")]


def _job(row: dict[str, str]) -> Accounted:
    return Accounted(
        label=row["JobID"], number=row["JobIDRaw"], name=row["JobName"], state=row["State"].split()[0],
        submit_s=int(row["Submit"]), start_s=_moment(row["Start"]), end_s=_moment(row["End"]), nodes=row["NodeList"],
        node_count=int(row["NNodes"] or 0), user=row["User"],
        gpus=_gpus(row["AllocTRES"], row["ReqTRES"]),
        admin_comment=row.get("AdminComment", ""),
    )  # fmt: skip


def _gpus(allocated: str, requested: str) -> int | None:
    """Return how many GPUs a job got; ``None`` where some were asked for and sacct does not say what came of that.

    slurmctld 22.05 leaves them out of what it tells slurmdbd of some jobs, which asked for GPUs and got them.
    """
    told = [
        [int(word.partition("=")[2]) for word in text.split(",") if word.startswith("gres/gpu=")]
        for text in (allocated, requested)
    ]
    return told[0][0] if told[0] else None if told[1] else 0


def _moment(text: str) -> int | None:
    return int(text) if text.isdigit() and int(text) else None


def _audit(path: Path) -> tuple[list[dict[str, Any]], int]:
    """Return the lines of the audit log, and how many are no lines of it."""
    found, broken = [], 0
    for line in path.read_bytes().split(b"\n") if path.exists() else ():
        if not line:
            continue
        try:
            found.append(json.loads(line))
        except ValueError:
            broken += 1
    return found, broken


def _logs(folder: Path) -> dict[str, str]:
    """Return what daemons of opsk's printed, and what slurmctld complained of."""
    paths: Iterable[Path] = sorted(folder.glob("*.out"))
    wanted = ("advisor", "recorder", "exporter", "devices", "slurmctld", "second")
    return {path.name: path.read_text(errors="replace") for path in paths if path.name.startswith(wanted)}
