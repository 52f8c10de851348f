"""Checks what must hold when a soak is over; each check reports what it looked at and what is wrong."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from opsk.hostlist import expand
from opsk.store.records.outcomes import LOSSES
from tests.soak.faults import FaultDone
from tests.soak.gauges import Gauges
from tests.soak.kinds import BY_NAME, Kind
from tests.soak.planned import Plan
from tests.soak.site import Site
from tests.soak.submitting import Submissions
from tests.soak.truth import Accounted, Truth, moment_s

OPSK_DAEMONS = ("advisor", "recorder", "exporter", "devices", "slurmctld", "second")
AROUND_S = 3.0
"""A line of the audit log that a process did not get to write was of the seconds before its death."""
LAST_LINES = 3
"""Of the log of a daemon that ended by itself."""
DUMP = "most recent call first"
"""Python says so where it tells in which lines its threads are: of that all is shown."""
TRACEBACK = re.compile(
    r"(?P<said>[^\n]*\n)?Traceback \(most recent call last\):\n(?P<frames>(?:[ \t][^\n]*\n)+)(?P<error>[^\n]*)"
)


@dataclass(slots=True, kw_only=True)
class Check:
    """One thing that must hold."""

    name: str
    looked_at: str
    wrong: list[str] = field(default_factory=list)

    @property
    def holds(self) -> bool:
        """Whether nothing is wrong."""
        return not self.wrong


@dataclass(frozen=True, slots=True, kw_only=True)
class Soaked:
    """A soak that is over: what was planned, what was done, and what is there."""

    plan: Plan
    site: Site
    submissions: Submissions
    faults: Sequence[FaultDone]
    gauges: Gauges
    truth: Truth
    left: Sequence[str] = ()

    def kind_of(self, job: Accounted) -> Kind:
        """Return the kind of a job, which stands in its name."""
        return BY_NAME[job.name.split("-", 2)[2]]

    def node_was_hurt(self, job: Accounted) -> bool:
        """Tell whether a slurmd of a job's was killed while the job was there."""
        if not job.has_run:
            return False
        nodes = {f"slurmd-{node}" for node in expand(job.nodes)}
        return any(
            fault.name == "slurmd killed" and fault.what.split()[0] in nodes
            and fault.overlaps(job.start_s or 0, job.end_s or 0, slack_s=30.0)
            for fault in self.faults
        )  # fmt: skip

    def disk_was_full(self, at_s: float) -> bool:
        """Tell whether opsk could keep nothing at a time."""
        return any(fault.name == "disk full" and fault.overlaps(at_s, at_s, slack_s=AROUND_S) for fault in self.faults)


def check(soaked: Soaked) -> list[Check]:
    """Look at everything."""
    return [each(soaked) for each in CHECKS]


def submissions(soaked: Soaked) -> Check:
    """Every submission is accepted."""
    done, plan = soaked.submissions, soaked.plan
    found = Check(
        name="every submission accepted",
        looked_at=f"{len(done.ids)} of {len(plan.jobs)} submissions, {done.again} made again as no slurmctld was there",
    )
    found.wrong += [f"job {number} refused: {why}" for number, why in sorted(done.refused.items())]
    found.wrong += done.problems
    return found


def nothing_lost(soaked: Soaked) -> Check:
    """Every job is in sacct, in a final state, once."""
    by_name = Counter(job.name for job in soaked.truth.jobs)
    found = Check(
        name="every job in sacct, ended", looked_at=f"{len(soaked.truth.jobs)} jobs of {soaked.plan.job_count}"
    )
    for job in soaked.plan.jobs:
        if job.number in soaked.submissions.ids and by_name[job.name] != job.kind.tasks:
            found.wrong.append(f"{job.name}: {by_name[job.name]} of {job.kind.tasks} in sacct")
    found.wrong += [f"{job.label} {job.name} is {job.state}" for job in soaked.truth.jobs if not job.has_ended]
    return found


def states(soaked: Soaked) -> Check:
    """Every job ended as what was planted in it says."""
    found = Check(name="every job ended as planted", looked_at=_counted(job.state for job in soaked.truth.jobs))
    for job in soaked.truth.jobs:
        if job.state not in soaked.kind_of(job).ends and not (job.state == "NODE_FAIL" and soaked.node_was_hurt(job)):
            found.wrong.append(f"{job.label} {job.name} on {job.nodes} is {job.state}")
    return found


def reports(soaked: Soaked) -> Check:
    """Every job that failed has a report whose class is right; no other one has any."""
    truth = soaked.truth
    failed = [job for job in truth.jobs if job.has_run and job.state != "COMPLETED"]
    found = Check(name="every failed job has a report of the right class", looked_at="")
    right = Counter[str]()
    for job in failed:
        report = truth.reports.get(job.number)
        if report is None:
            kept = ", ".join(truth.evidence.get(job.number, ())) or "nothing kept"
            found.wrong.append(f"{job.label} {job.name} {job.state} on {job.nodes}: no report ({kept})")
            continue
        root = report.get("root_cause") or {}
        told = root.get("class") or "no cause"
        wanted = soaked.kind_of(job).causes | ({"node"} if soaked.node_was_hurt(job) else set())
        right[told] += told in wanted
        if told not in wanted:
            found.wrong.append(
                f"{job.label} {job.name} on {job.nodes}: {told}, not {'/'.join(sorted(wanted))}{_rests_on(report)}"
            )
    well = {job.number for job in truth.jobs if job.state == "COMPLETED"}
    found.wrong += [f"{number} did well and has a report" for number in sorted(well & truth.reports.keys())]
    found.looked_at = f"{len(failed)} jobs that failed; right: {_shown(right)}"
    return found


def store_jobs(soaked: Soaked) -> Check:
    """What the store keeps of jobs is what sacct says, and no advised job is missing."""
    truth = soaked.truth
    rows = {(row["job"], int(moment_s(row["submitted_at"]))): row for row in truth.store.get("job", ())}
    found = Check(name="jobs of the store as in sacct", looked_at=f"{len(rows)} jobs of the store")
    if truth.store_said:
        found.wrong.append(f"opsk store: {truth.store_said[:300]}")
    for job in truth.jobs:
        row = rows.pop((job.label, job.submit_s), None)
        if row is None:
            if "opsk:v1" in job.admin_comment and job.has_run:
                found.wrong.append(f"{job.label} {job.name} was advised on and is not in the store")
            continue
        found.wrong += [f"{job.label} {job.name}: {difference}" for difference in _differences(row, job)]
    found.wrong += [f"{label} submitted at {at} is in the store only" for label, at in rows]
    return found


def store_reports(soaked: Soaked) -> Check:
    """Reports in the store are those in the folder."""
    truth = soaked.truth
    of_number = {job.number: job.label for job in truth.jobs}
    wanted = {of_number.get(number, number): (report.get("root_cause") or {}).get("class")
              for number, report in truth.reports.items()}  # fmt: skip
    # where a slow job lost its time is in the store alone
    rows = [row for row in truth.store.get("report", ()) if row.get("report") != LOSSES]
    kept = {row["job"]: row.get("root_cause") for row in rows}
    failures = {row.get("job") for row in truth.store.get("failure", ()) if row.get("source") == "postmortem"}
    found = Check(
        name="reports of the store as in the folder", looked_at=f"{len(kept)} reports, {len(failures)} failures of jobs"
    )
    for label, told in sorted(wanted.items()):
        if label not in kept:
            found.wrong.append(f"report on {label} is not in the store")
        elif kept[label] != told:
            found.wrong.append(f"{label}: the store says {kept[label]}, the report {told}")
        if told is not None and label not in failures:
            found.wrong.append(f"failure of {label} ({told}) is not in the store")
    found.wrong += [f"report on {label} is in the store only" for label in sorted(kept.keys() - wanted.keys())]
    return found


def audit(soaked: Soaked) -> Check:
    """Every answer that a job carries is in the audit log, or is one that the log says it lost."""
    truth = soaked.truth
    told = {str(line.get("script_sha256", ""))[:12] for line in truth.audit}
    lost = sum(int(line.get("lost_before", 0)) for line in truth.audit)
    found = Check(name="audit log complete", looked_at="")
    advised = {job.name: job for job in truth.jobs if "opsk:v1" in job.admin_comment}
    missing = []
    for job in advised.values():
        words = dict(word.partition("=")[::2] for word in job.admin_comment.split())
        if words.get("hash", "")[:12] not in told and not _advisor_died(soaked, job.submit_s):
            missing.append(job)
    unsaid = [job for job in missing if not soaked.disk_was_full(job.submit_s)]
    found.wrong += [f"no line on the advice of {job.label} {job.name}" for job in unsaid]
    if len(missing) - len(unsaid) > lost:
        found.wrong.append(f"{len(missing)} answers have no line, and the log says that it lost {lost} lines")
    if truth.audit_broken:
        found.wrong.append(f"{truth.audit_broken} lines are no JSON")
    found.looked_at = (
        f"{len(truth.audit)} lines on {len(advised)} jobs that were advised on, {lost} lines said to be lost"
    )
    return found


def advice(soaked: Soaked) -> Check:
    """Most training jobs got advice all the same: the advisor was away only while it was hurt."""
    trained = [job for job in soaked.truth.jobs if soaked.kind_of(job).trains]
    advised = [job for job in trained if "opsk:v1" in job.admin_comment]
    found = Check(
        name="training jobs are advised on", looked_at=f"{len(advised)} of {len(trained)} training jobs were advised on"
    )
    if len(advised) < 0.5 * len(trained):
        found.wrong.append("fewer than half were")
    return found


def leaks(soaked: Soaked) -> Check:
    """No process of opsk's grew."""
    grown = soaked.gauges.growths()
    found = Check(name="no leak of memory or files", looked_at=f"{len(grown)} processes that lived long enough")
    found.wrong += [
        f"{each.name} (pid {each.pid}) grew in {each.lived_s:.0f} s from {each.rss_bytes[0] >> 20} to"
        f" {each.rss_bytes[1] >> 20} MiB, from {each.files[0]} to {each.files[1]} files"
        for each in grown
        if not each.is_flat
    ]
    return found


def left_over(soaked: Soaked) -> Check:
    """Nothing is left when all has ended."""
    found = Check(name="nothing left over", looked_at="processes, sockets, temporary files, notes in spools")
    found.wrong += list(soaked.left)
    return found


def daemons(soaked: Soaked) -> Check:
    """No daemon ended but by what was done to it, each did when told, and none tells of an error nobody foresaw."""
    found = Check(
        name="daemons end when told and not by themselves", looked_at=f"{len(soaked.site.daemons.names)} daemons"
    )
    ended = soaked.site.daemons.ended_by_themselves
    for each in (*ended, *soaked.site.daemons.deaf):
        if each.startswith(OPSK_DAEMONS):
            found.wrong.append(each + _last_words(soaked.truth.logs.get(f"{each.split()[0]}.out", "")))
    found.wrong += [f"{name}: {said}" for name, text in soaked.truth.logs.items() for said in _tracebacks(text)]
    return found


CHECKS: tuple[Callable[[Soaked], Check], ...] = (
    submissions, nothing_lost, states, reports, store_jobs, store_reports, audit, advice, leaks, left_over, daemons,
)  # fmt: skip


def _differences(row: dict[str, object], job: Accounted) -> list[str]:
    """Return in what a job of the store is not what sacct says."""
    times = {
        name: None if row.get(name) is None else int(moment_s(str(row[name]))) for name in ("started_at", "ended_at")
    }
    nodes = sorted(expand(str(row["node_list"]))) if row.get("node_list") else []
    wanted: list[tuple[str, object, object]] = [
        ("state", row.get("state"), job.state),
        ("user", row.get("user"), job.user),
        ("ended_at", times["ended_at"], job.end_s),
    ]
    if job.has_run:
        wanted += [
            ("started_at", times["started_at"], job.start_s),
            ("nodes", nodes, sorted(expand(job.nodes))),
            ("number of nodes", row.get("nodes"), job.node_count),
        ]
    if job.has_run and job.gpus is not None:
        wanted.append(("gpus", row.get("gpus") or 0, job.gpus))
    return [f"{name} is {kept}, sacct says {said}" for name, kept, said in wanted if kept != said]


def _advisor_died(soaked: Soaked, at_s: float) -> bool:
    return any("advisor" in fault.killed and fault.overlaps(at_s, at_s, slack_s=AROUND_S) for fault in soaked.faults)


def _rests_on(report: Mapping[str, Any]) -> str:
    """Return on what a report rests that names a wrong cause: what was gathered, not readable, and the first signs."""
    cause = report.get("root_cause") or {}
    rows = [*(cause.get("evidence") or ()), *(report.get("evidence") or ())]
    signs = dict.fromkeys(f"{row.get('source', '')}: {row.get('text', '')}"[:200] for row in rows[:6])
    parts = {"gathered": report.get("gathered"), "unreadable": report.get("unreadable"), "signs": list(signs)}
    return "".join(f"; {name}: {said}" for name, said in parts.items() if said)


def _tracebacks(text: str) -> list[str]:
    """Return of each traceback in a log what was said before it, where it was raised, and the error; each once."""
    found = []
    for match in TRACEBACK.finditer(text):
        frames = [line.strip() for line in match["frames"].split("\n") if line.strip("~^ ")]
        found.append(
            " | ".join(part for part in ((match["said"] or "").strip(), *frames[-2:], match["error"][:300]) if part)
        )
    return list(dict.fromkeys(found)) or (["a traceback that has no end"] if "Traceback" in text else [])


def _last_words(log: str) -> str:
    """Return the last lines of a daemon's log: nobody can look there once the soak is over."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    dumped = [at for at, line in enumerate(lines) if DUMP in line]
    last = lines[min([*dumped[-20:], len(lines) - LAST_LINES]) :] if dumped else lines[-LAST_LINES:]
    return f"; last it said: {' | '.join(last)[-4000:]}" if last else ""


def _counted(words: object) -> str:
    return _shown(Counter(words))  # type: ignore[call-overload]


def _shown(counts: Counter[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(counts.items())) or "none"
