"""Two clusters that one user has at hand, whose jobs have the same numbers: each keeps, locks and shows only its own.

Everything that can be shared is: home and state of the user, the directory that jobs run in, the folder of evidence,
and of each node the folder of the prolog's notes and the spool, as on a host that is a node of both.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from opsk.errors import ExitStatus
from opsk.job_key import JobKey
from opsk.lab.lifecycle import take_down, up
from opsk.lab.programs import build_search_path
from opsk.lab.record import LabRecord, LabShape
from opsk.lab.status import build_slurm_environment
from opsk.remapping.journal import FileJournal
from tests.fakes.advisor_process import eventually
from tests.fakes.progress_logs import megatron_line
from tests.fakes.settling import settle
from tests.fakes.small_plans import small_plan
from tests.integration.conftest import AT_ONCE, RunningLab, Slurm, path_is
from tests.integration.releases.roots import INSTALLED

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.fabric,
    pytest.mark.timeout(400),
    pytest.mark.parametrize("slurm", [INSTALLED], indirect=True, scope="session"),
]

NODES = 4
PLAN = small_plan(gpus_per_node=8, tp=8, dp=2, global_batch=2, cluster="superpod-h100")
FAILED = "gpu:n1/3"
OPSK = f"{sys.executable} -m opsk"
DIES_OF = {
    "east": ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", "gpu_memory"),
    "west": ("ModuleNotFoundError: No module named 'megatron'", "config"),
}
STEP_S = {"east": 2.0, "west": 8.0}
"""Seconds a step, by the log of the job; half of it was predicted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """One of the two."""

    side: str
    lab: RunningLab
    record: LabRecord

    @property
    def top(self) -> Path:
        """What both share lies here."""
        return self.lab.path.parent

    def key(self, job: str) -> str:
        """How files of a job are called."""
        return f"{self.lab.cluster}.{job}"

    def submit(self, script: str, *options: str) -> str:
        path = self.top / f"{self.side}.sh"
        path.write_text(f"#!/bin/bash\n{script}\n", encoding="utf-8")
        # What lies beside a log with the job's number in its name, and is written meanwhile, counts as a log of it too.
        logs = self.top / f"logs-{self.side}"
        logs.mkdir(exist_ok=True)
        words = ("sbatch", "--parsable", "-o", str(logs / "%j.out"), *options, str(path))
        done = self.lab.run(*words, cwd=self.top)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def document(self, *words: str) -> dict[str, Any]:
        done = self.lab.opsk(*words, "--json", cwd=self.top)
        assert done.returncode in (ExitStatus.ANSWER, ExitStatus.BAD_NEWS), done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def remap(self, job: str, *more: str) -> Any:
        return self.lab.opsk(
            "remap", job, "--failed", FAILED, "--plan", str(self.top / "plan.toml"), "--fabric",
            str(self.lab.path / "fabric.ibnetdiscover"), "--rank-file", str(self.top / f"ranks-{self.side}"), "--json",
            *more, cwd=self.top,
        )  # fmt: skip

    def scraped(self, node: str) -> str:
        url = f"http://127.0.0.1:{self.record.exporter_ports[node]}/metrics"
        with urllib.request.urlopen(url, timeout=60) as answer:
            return str(answer.read().decode())


@contextmanager
def running(side: str, top: Path) -> Iterator[Cluster]:
    """Bring one of them up."""
    path = top / side
    record, _ = up(path, shape=LabShape(nodes=NODES), parts=("exporter",), progress=lambda _: None, exporters=NODES)
    try:
        kept = {name: text for name, text in os.environ.items() if not name.startswith(("OPSK_", "SLURM_", "SBATCH_"))}
        state = {"HOME": str(top), "XDG_STATE_HOME": str(top / "state"), "PATH": build_search_path()}
        lab = RunningLab(path=path, environment={**kept, **state, **build_slurm_environment(record)})
        for node in record.shape.names:
            share(record.folder.nodes / node, top / "nodes" / node)
        for config in (record.folder.site, *record.folder.nodes.glob("*/opsk.toml")):
            text = config.read_text().replace(str(record.folder.log / "postmortem"), str(top / "evidence"))
            config.write_text(text)
        conf = path / "etc" / "slurm.conf"
        conf.write_text(conf.read_text().replace("bf_interval=5", AT_ONCE))
        assert lab.run("scontrol", "reconfigure").returncode == 0
        settle(lab)
        yield Cluster(side=side, lab=lab, record=record)
    finally:
        take_down(path, record)


def share(own: Path, shared: Path) -> None:
    """Let a node have its notes and its spool where the other cluster's node has them, too."""
    for name in ("jobs", "spool/started", "spool/ended"):
        (shared / name).mkdir(parents=True, exist_ok=True)
    for name in ("jobs", "spool"):
        shutil.rmtree(own / name, ignore_errors=True)
        (own / name).symlink_to(shared / name)


@pytest.fixture(scope="module")
def clusters(slurm: Slurm) -> Iterator[tuple[Cluster, Cluster]]:
    top = Path(tempfile.mkdtemp(prefix="opsk-test-"))
    top.chmod(0o755)
    (top / "evidence").mkdir()
    (top / "plan.toml").write_text(PLAN, encoding="utf-8")
    try:
        with path_is(slurm.path), ExitStack() as stack:
            yield stack.enter_context(running("east", top)), stack.enter_context(running("west", top))
    finally:
        shutil.rmtree(top, ignore_errors=True)


def submitted(clusters: tuple[Cluster, Cluster], scripts: dict[str, str], *options: str) -> str:
    """Submit a job to both; return the number, which is the same."""
    east, west = (each.submit(scripts[each.side], *options) for each in clusters)
    assert east == west
    return east


def test_each_has_evidence_and_report_of_its_own(clusters: tuple[Cluster, Cluster]) -> None:
    scripts = {side: f'echo "{said}" >&2\nsleep 2\nexit 1' for side, (said, _) in DIES_OF.items()}
    job = submitted(clusters, scripts, "-N2", "--gpus-per-node=1")
    top = clusters[0].top
    for each in clusters:
        eventually((top / "evidence" / each.key(job) / "report.json").exists, bool, 90.0)
        files = list((top / "evidence" / each.key(job)).glob("n*@*.json"))
        assert {path.name.partition("@")[0] for path in files} == {"n0", "n1"}
        assert {json.loads(path.read_text())["note"]["cluster"] for path in files} == {each.lab.cluster}
    assert {path.name for path in (top / "evidence").glob("[!.]*")} == {
        "classes", *(each.key(job) for each in clusters),
    }  # fmt: skip
    for each in clusters:
        failed = DIES_OF[each.side][1]
        report = each.document("postmortem", job)
        assert (report["job"]["cluster"], report["root_cause"]["class"]) == (each.lab.cluster, failed)
        listed = each.document("postmortem", "--list")
        assert [(entry["job"], entry["root_class"]) for entry in listed["reports"]] == [(job, failed)]
        assert listed["other_clusters"] == 1
    for folder in ("started", "ended", "reports"):
        left = [path for node in (top / "nodes").iterdir() for path in (node / "spool" / folder).glob("[!.]*")]
        assert left == [], f"nothing waits in {folder}"


def test_each_has_progress_and_prediction_of_its_own(clusters: tuple[Cluster, Cluster]) -> None:
    scripts = {
        side: "\n".join(f"echo '{megatron_line(step, step_ms=1000 * step_s)}'" for step in range(1, 5)) + "\nsleep 300"
        for side, step_s in STEP_S.items()
    }
    job = submitted(clusters, scripts, "--hold", "-N1", "-w", "n0", "--gpus-per-node=1")
    for each in clusters:
        said = f"admincomment=opsk:v1 verdict=fits step_s={STEP_S[each.side] / 2}"
        assert each.lab.run("scontrol", "update", f"job={job}", said).returncode == 0
        assert each.lab.run("scontrol", "release", job).returncode == 0
    for each in clusters:
        lines = eventually(lambda each=each: told_of(each, "n0", clusters), lambda told: len(told) == 2, 60.0)
        assert lines == {
            other.lab.cluster: {"step_seconds": STEP_S[other.side], "predicted": STEP_S[other.side] / 2}
            for other in clusters
        }
    for each in clusters:
        assert each.lab.run("scancel", job).returncode == 0
        settle(each.lab)
    assert not list((clusters[0].top / "nodes" / "n0" / "jobs").iterdir())


def told_of(cluster: Cluster, node: str, clusters: tuple[Cluster, Cluster]) -> dict[str, dict[str, float]]:
    """Return what an exporter tells of the training of each cluster's job; nothing where it does not tell all yet."""
    wanted = {"opsk_training_step_seconds": "step_seconds", "opsk_training_predicted_step_seconds": "predicted"}
    found: dict[str, dict[str, float]] = {}
    for line in cluster.scraped(node).splitlines():
        name, _, rest = line.partition("{")
        for each in clusters:
            if name in wanted and f'job="{each.lab.cluster}.' in rest:
                found.setdefault(each.lab.cluster, {})[wanted[name]] = float(rest.rpartition(" ")[2])
    return {name: values for name, values in found.items() if len(values) == len(wanted)}


def test_each_has_remaps_of_its_own(clusters: tuple[Cluster, Cluster]) -> None:
    """One is remapped while the other holds the lock of a job with this number; each then lists and undoes its own."""
    east, west = clusters
    script = f"{OPSK} launch --tasks-per-node 8 -- sleep 600"
    job = submitted(
        clusters, dict.fromkeys(("east", "west"), script), "-N2", "--ntasks-per-node=8", "--gpus-per-node=8",
        "--requeue", "-w", "n0,n1",
    )  # fmt: skip
    for each in clusters:
        eventually((each.top / f"opsk-launch-{each.key(job)}.json").exists, bool, 60.0)
    folder = east.top / "state" / "opsk" / "remaps"
    with FileJournal(folder).lock(JobKey(cluster=east.lab.cluster, job=job)):
        refused = east.remap(job, "--apply", "spare_node", "--yes")
        assert refused.returncode == ExitStatus.UNAVAILABLE
        assert f"another opsk is remapping job {job} of cluster {east.lab.cluster} now" in refused.stderr
        first = applied(west.remap(job, "--apply", "spare_node", "--yes"))
    second = applied(east.remap(job, "--apply", "spare_node", "--yes"))
    for each, own, others in ((west, first, second), (east, second, first)):
        listed = each.document("remap", "--journal")
        assert [(row["id"], row["cluster"], row["state"]) for row in listed["remaps"]] == [
            (own, each.lab.cluster, "applied"),
        ]  # fmt: skip
        assert listed["other_clusters"] == 1
        for option in ("--resume", "--undo"):
            done = each.lab.opsk("remap", option, others, "--yes", cwd=each.top)
            assert (done.returncode, "Traceback" in done.stderr) == (ExitStatus.USAGE, False)
            assert f"but Slurm's commands use cluster {each.lab.cluster} here" in done.stderr
    with ThreadPoolExecutor() as pool:  # both at once
        undone = pool.map(
            lambda of: of[0].lab.opsk("remap", "--undo", of[1], "--yes", cwd=of[0].top), ((west, first), (east, second))
        )
        assert [done.returncode for done in undone] == [0, 0]
    for each in clusters:
        assert [row["state"] for row in each.document("remap", "--journal")["remaps"]] == ["undone"]
        assert each.lab.run("scancel", job).returncode == 0


def applied(done: Any) -> str:
    """Return the id of a remap that was carried out."""
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)["applied"]
    assert found["done"], found
    return str(found["journal"])
