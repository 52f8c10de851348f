"""Jobs that really die in a lab, each of another cause: does the post-mortem name class, place and what to do?

Nodes have prolog, epilog and collector, made-up devices and a kernel log of their own. What GPUs and NCCL would print
is printed by the job; Slurm, kernel lines, counters and states come from where a site has them. One lab a release of
Slurm: what dies by itself is submitted at once and looked at by the tests in turn; nodes are broken after that.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from opsk.lab.programs import build_search_path
from tests.fakes.advisor_process import eventually
from tests.fakes.warm_opsk import run as run_warm
from tests.integration.conftest import INSTALLED_ONLY, RunningLab, Slurm, path_is
from tests.integration.releases.roots import INSTALLED

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.fabric,
    pytest.mark.timeout(600),
]

NODES = 4
SLURMD_TIMEOUT_S = 30
"""slurmctld knocks for 10 s at a slurmd that is gone, and takes note of what the others answered only after that: with
a time as short as that it gives up on them as well."""
STEPS = """for i in 1 2 3; do
  echo " [$(date +'%F %T')] iteration $i/ 1000 | consumed samples: 512 | elapsed time per iteration (ms): 900.0 |" \
    "learning rate: 1.0E-04 | global batch size: 512 | lm loss: 2.1E+00 | number of nan iterations: 0 |"
done
"""
WATCHDOG = (
    "[rank{rank}]:[E$(date +%m%d) $(date +%T).000000000 ProcessGroupNCCL.cpp:629] [Rank {rank}] Watchdog caught"
    " collective operation timeout: WorkNCCL(SeqNum=77, OpType=ALLREDUCE, NumelIn=1048576, NumelOut=1048576,"
    " Timeout(ms)=10000) ran for 10001 milliseconds before timing out."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """A lab whose nodes keep evidence."""

    lab: RunningLab
    folder: Path

    def submit(self, body: str, *options: str) -> str:
        script = self.folder / f"job-{time.monotonic_ns()}.sh"
        script.write_text(f"#!/bin/bash\n{body}\n", encoding="utf-8")
        done = self.lab.run("sbatch", "--parsable", "--no-requeue", *options, str(script), cwd=self.folder)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def submit_waiting(self, body: str, *options: str) -> tuple[str, Path]:
        """Submit a job that goes on with ``body`` when a file is there."""
        go = self.folder / f"go-{time.monotonic_ns()}"
        job = self.submit(f"{STEPS}while [ ! -e {go} ]; do sleep 0.1; done\n{body}", *options)
        self.await_state(job, lambda said: said == "RUNNING")
        time.sleep(2)
        return job, go

    def state(self, job: str) -> str:
        said = self.lab.run("sacct", "-X", "-n", "-P", "-o", "State", "-j", job).stdout.split()
        return said[0] if said else ""

    def await_state(self, job: str, wanted: Callable[[str], bool], seconds: float = 120.0) -> str:
        return eventually(lambda: self.state(job), wanted, seconds)

    def await_end(self, job: str, seconds: float = 120.0) -> str:
        state = self.await_state(job, lambda said: said not in ("", "PENDING", "RUNNING", "REQUEUED"), seconds)
        eventually(lambda: self.lab.run("squeue", "-h", "-j", job).stdout.strip(), lambda said: not said, seconds)
        return state

    def folder_of(self, job: str) -> Path:
        """Return where evidence and report of a job lie."""
        return self.lab.path / "log" / "postmortem" / f"{self.lab.cluster}.{job}"

    def await_evidence(self, job: str, nodes: int) -> None:
        kept = self.folder_of(job)
        eventually(lambda: len(list(kept.glob("n*@*.json"))), lambda count: count >= nodes, 90.0)

    def postmortem(self, job: str, *options: str) -> dict[str, Any]:
        done = self.lab.opsk("postmortem", job, "--json", *options)
        assert done.returncode in (0, 1), done.stderr
        report: dict[str, Any] = json.loads(done.stdout)
        assert done.returncode == (report["root_cause"] is not None)
        return report

    def opsk(self, *words: str) -> None:
        done = self.lab.opsk(*words)
        assert done.returncode == 0, done.stderr


def finds_slurm(epilog: Path, command: Path, path: str) -> None:
    """Let the collector that an epilog starts find the commands of the release, as a site with Slurm elsewhere does."""
    command.write_text(f"#!/bin/sh\nPATH='{path}' exec {sys.executable} -P -m opsk \"$@\"\n", encoding="utf-8")
    command.chmod(0o755)
    first, rest = epilog.read_text(encoding="utf-8").split("\n", 1)
    epilog.write_text(f"{first}\nexport OPSK_COMMAND={command}\n{rest}", encoding="utf-8")


@pytest.fixture(scope="module")
def site(slurm: Slurm, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("postmortem")
    path = folder / "lab"
    command = [sys.executable, "-m", "opsk", "lab"]
    kept = {name: text for name, text in os.environ.items() if not name.startswith(("OPSK_", "SLURM_", "SBATCH_"))}
    with path_is(slurm.path):
        environment = {**kept, "PATH": build_search_path()}
    try:
        started = run_warm(
            [*command, "up", "--dir", str(path), "--nodes", str(NODES), "--gpus", "4", "--hcas", "2", "--leaves", "2",
             "--spines", "1", "--no-advice", "--exporters", str(NODES), "--json"],
            environment=environment, timeout_s=120,
        )  # fmt: skip
        assert started.returncode == 0, started.stderr
        lab = RunningLab(path=path, environment=environment | json.loads(started.stdout)["environment"])
        for number in range(NODES):
            for name in ("started", "ended"):
                (path / "run" / "nodes" / f"n{number}" / "spool" / name).mkdir(parents=True)
        conf = path / "etc" / "slurm.conf"
        conf.write_text(
            f"{conf.read_text()}SlurmdTimeout={SLURMD_TIMEOUT_S}\nPreemptType=preempt/partition_prio\nPreemptMode=CANCEL\n"
            "PartitionName=urgent Nodes=ALL PriorityTier=100 PreemptMode=OFF State=UP\n",
            encoding="utf-8",
        )
        finds_slurm(path / "etc" / "lab-epilog", folder / "opsk", lab.environment["PATH"])
        assert lab.run("scontrol", "reconfigure").returncode == 0
        eventually(lambda: lab.run("sinfo", "-h", "-N", "-p", "train", "-o", "%t").stdout.split(),
                   lambda said: said == ["idle"] * NODES)  # fmt: skip
        yield Site(lab=lab, folder=folder)
    finally:
        run_warm([*command, "down", "--dir", str(path)], environment=environment, timeout_s=120).check_returncode()


@pytest.fixture
def whole(site: Site) -> Iterator[None]:
    """Repair nodes and empty their kernel logs, as a reboot does: what a GPU said before a job counts for the job."""
    yield
    site.lab.opsk("lab", "repair")
    for log in (site.lab.path / "run" / "nodes").glob("n*/kmsg"):
        log.write_text("")


def ranks(*numbers: int) -> str:
    return "\n".join(f'echo "{WATCHDOG.format(rank=number)}" >&2' for number in numbers)


ILLEGAL = "RuntimeError: CUDA error: an illegal memory access was encountered"
GPU_MEMORY = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 1 has a total capacity of 79 GiB"
    " of which 1.06 GiB is free. Of the allocated memory 76.00 GiB is allocated by PyTorch."
)
HOST_MEMORY = (
    "slurmstepd: error: Detected 1 oom_kill event in StepId=$SLURM_JOB_ID.batch. Some of the step tasks have been OOM"
    " Killed."
)
NO_NUMBER = (
    "RuntimeError: Rank 1, node n0, device 1, iteration 4: Unexpected result nan (message='found NaN in local forward"
    " loss calculation')"
)
DEATHS = {
    "time limit": (f"{STEPS}sleep 300", "-t", "1", "-w", "n3"),
    "healthy": (f"{STEPS}echo '[exiting program at iteration 1000]'", "-N2", "--gpus-per-node=4"),
    "reported": (f"echo '{ILLEGAL}'; exit 1", "-N1"),
    "silent rank": (f"{STEPS}sleep 2\n{ranks(0, 1, 2, 4, 5, 6, 7)}\nexit 1", "-N2", "--ntasks=8",
                    "--gpus-per-node=4"),
    "GPU memory": (f"{STEPS}echo '[rank5]: {GPU_MEMORY}' >&2\n{ranks(0, 1)}\nexit 1", "-N2", "--gpus-per-node=4"),
    "host memory": (f'echo "{HOST_MEMORY}" >&2\nexit 137',),
    "full disk": (f"{STEPS}{sys.executable} -c \"open('/dev/full', 'w').write('x' * 100000)\"",),
    "launcher": ("srun -N4 -n4 hostname", "-N1"),
    "no number": (f'{STEPS}echo "{NO_NUMBER}" >&2\nexit 1',),
    "cancelled": (f"{STEPS}sleep 300",),
    "secret": ("echo 'HF_TOKEN=hf_abcdefghijklmnopqrstuvwxyz0123'; echo 'MemoryError: x'; exit 1", "-N1"),
}  # fmt: skip
"""What dies by itself: script and options."""
SAME_ON_ALL = frozenset({"silent rank", "GPU memory", "full disk", "no number", "secret"})
"""Deaths of which only the job's own log tells: they die on this machine's release alone."""


@pytest.fixture(scope="module")
def jobs(site: Site, slurm: Slurm) -> dict[str, str]:
    """Jobs that die by themselves, all at once; the one that takes a minute goes on meanwhile, on a node of its own."""
    names = DEATHS if slurm.source == INSTALLED else DEATHS.keys() - SAME_ON_ALL
    return {name: site.submit(body, *options) for name, (body, *options) in DEATHS.items() if name in names}


def found(report: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    root = report["root_cause"]
    assert root is not None, report["unreadable"]
    return root["class"], root["place"]


def said_to_do(report: dict[str, Any]) -> str:
    return "\n".join(f"{action['what']} {action['command']}" for action in report["actions"])


def test_a_healthy_job_has_no_cause_and_no_report(site: Site, jobs: dict[str, str]) -> None:
    job = jobs["healthy"]
    assert site.await_end(job) == "COMPLETED"
    site.await_evidence(job, 2)
    report = site.postmortem(job)
    assert (report["state"], report["root_cause"]) == ("COMPLETED", None)
    assert report["actions"] == []
    time.sleep(3)
    assert not (site.folder_of(job) / "report.json").exists()


def test_a_report_is_written_by_itself_and_is_in_the_index(site: Site, jobs: dict[str, str]) -> None:
    job = jobs["reported"]
    site.await_end(job)
    written = site.folder_of(job) / "report.json"
    eventually(written.exists, bool, 90.0)
    report = json.loads(written.read_text())
    assert (report["root_cause"]["class"], report["state"]) == ("software", "FAILED")
    assert written.with_name("report.html").read_text().lower().startswith("<!doctype html>")
    assert written.stat().st_mode & 0o777 == 0o640
    listed = json.loads(site.lab.opsk("postmortem", "--list", "--json").stdout)["reports"]
    assert [entry["root_class"] for entry in listed if entry["job"] == job] == ["software"]


@INSTALLED_ONLY
def test_a_rank_that_says_nothing_is_whom_the_others_waited_for(site: Site, jobs: dict[str, str]) -> None:
    job = jobs["silent rank"]
    site.await_end(job)
    site.await_evidence(job, 2)
    report = site.postmortem(job)
    failed, place = found(report)
    assert failed == "collective_hang"
    assert place.get("rank") == 3
    assert report["divergence"]["seq"] == 77


@INSTALLED_ONLY
def test_a_gpu_that_runs_out_of_memory(site: Site, jobs: dict[str, str]) -> None:
    job = jobs["GPU memory"]
    site.await_end(job)
    report = site.postmortem(job)
    failed, place = found(report)
    assert (failed, place["rank"]) == ("gpu_memory", 5)
    assert report["facts"]["asked_bytes"] == 2 * 1024**3


@pytest.fixture
def control_groups(site: Site) -> Iterator[Path]:
    """A control group of this run, which is all that the collector of n0 sees of this machine's."""
    memory = Path("/sys/fs/cgroup/memory")
    if not os.access(memory, os.W_OK) or not (memory / "memory.limit_in_bytes").exists():
        pytest.skip("control groups of version 1 cannot be made here")
    settings = site.lab.path / "run" / "nodes" / "n0" / "opsk.toml"
    before = settings.read_text(encoding="utf-8")
    top = Path(tempfile.mkdtemp(prefix="opsk-test-", dir=memory))
    settings.write_text(before.replace("[exporter]\n", f"[exporter]\ncgroups = {json.dumps(str(top))}\n"))
    yield top / "memory"  # below a mount of cgroups there is a folder for each controller
    settings.write_text(before, encoding="utf-8")
    for path, _, _ in os.walk(top, topdown=False):
        Path(path).rmdir()


def test_host_memory_really_runs_out(site: Site, control_groups: Path) -> None:
    """The job makes the control group that a lab does not have where task/cgroup would; the kernel kills in it."""
    job = site.submit(
        f"g={control_groups}/slurm_n0/uid_$(id -u)/job_$SLURM_JOB_ID; mkdir -p $g/step_batch || exit 9\n"
        "echo 33554432 >$g/memory.limit_in_bytes; echo $BASHPID >$g/step_batch/cgroup.procs\n"
        f"{sys.executable} -c 'print(len(bytearray(200 << 20)))'", "-w", "n0",
    )  # fmt: skip
    assert site.await_end(job) == "FAILED"
    site.await_evidence(job, 1)
    report = site.postmortem(job)
    failed, place = found(report)
    assert (failed, place["node"]) == ("host_memory", "n0")
    (killed,) = [row for row in report["evidence"] if row["kind"] == "cgroup.oom_kill"]
    assert (killed["origin"], killed["kills"]) == ("cgroup", "1")
    assert "--mem" in said_to_do(report)


def test_host_memory_by_what_slurmstepd_says(site: Site, jobs: dict[str, str]) -> None:
    """Slurmstepd's own words stand for the control groups that a lab does not have."""
    job = jobs["host memory"]
    site.await_end(job)
    assert found(site.postmortem(job))[0] == "host_memory"


@INSTALLED_ONLY
def test_a_full_disk(site: Site, jobs: dict[str, str]) -> None:
    job = jobs["full disk"]
    assert site.await_end(job) == "FAILED"
    report = site.postmortem(job)
    assert found(report)[0] == "storage"


def test_a_launcher_that_cannot_start(site: Site, jobs: dict[str, str]) -> None:
    job = jobs["launcher"]
    assert site.await_end(job) == "FAILED"
    assert found(site.postmortem(job))[0] == "config"


@INSTALLED_ONLY
def test_a_loss_that_is_no_number(site: Site, jobs: dict[str, str]) -> None:
    job = jobs["no number"]
    site.await_end(job)
    assert found(site.postmortem(job))[0] == "numeric"


def test_somebody_cancels_it(site: Site, jobs: dict[str, str]) -> None:
    job = jobs["cancelled"]
    site.await_state(job, lambda said: said == "RUNNING")
    time.sleep(2)
    assert site.lab.run("scancel", job).returncode == 0
    assert site.await_end(job) == "CANCELLED"
    report = site.postmortem(job)
    assert found(report)[0] == "cancelled"
    assert f"by user {os.getuid()}" in report["root_cause"]["what"]
    assert "State=DRAIN" not in said_to_do(report)


@INSTALLED_ONLY
@pytest.mark.parametrize(("xid", "failure"), [(79, "gpu_hardware"), (94, "gpu_hardware"), (119, "gpu_hardware")])
@pytest.mark.usefixtures("whole")
def test_an_xid_of_one_gpu_is_the_cause_and_not_the_ranks_that_waited(site: Site, xid: int, failure: str) -> None:
    job, go = site.submit_waiting(f"{ranks(0, 1, 2, 3, 4, 7)}\nexit 1", "-w", "n[0-1]", "-N2", "--gpus-per-node=4")
    site.opsk("lab", "break", "gpu", "n1", "2", "--xid", str(xid))
    go.touch()
    assert site.await_end(job) == "FAILED"
    site.await_evidence(job, 2)
    report = site.postmortem(job)
    failed, place = found(report)
    assert (failed, place["node"], place["gpu_index"]) == (failure, "n1", 2)
    assert any(row["kind"] == "xid" and row["code"] == xid and row["node"] == "n1" for row in report["evidence"])
    assert "State=DRAIN" in said_to_do(report)
    assert "NodeName=n1" in said_to_do(report)
    assert report["gathered"]["kernel_log"] == "2 of 2 nodes"


@INSTALLED_ONLY
@pytest.mark.usefixtures("whole")
def test_a_link_that_goes_down_is_the_cause(site: Site) -> None:
    lost = (
        "n1:412:508 [1] NCCL WARN NET/IB: Got completion from peer 10.0.0.1<41000> with status=12 opcode=0 len=0"
        " vendor err 129 (Send) hca mlx5_1"
    )
    job, go = site.submit_waiting(
        f"echo '{lost}' >&2\n{ranks(0, 1, 2)}\nexit 1", "-w", "n[0-1]", "-N2", "--gpus-per-node=4"
    )
    site.opsk("lab", "break", "nic", "n1", "mlx5_1")
    go.touch()
    site.await_end(job)
    site.await_evidence(job, 2)
    report = site.postmortem(job)
    failed, place = found(report)
    assert (failed, place["node"], place["hca"]) == ("fabric", "n1", "mlx5_1")
    assert any(row["kind"] == "ib.port_down" for row in report["evidence"])


def test_a_job_of_higher_priority_takes_its_nodes(site: Site) -> None:
    job = site.submit(f"{STEPS}sleep 300", "-w", "n[0-2]", "-N3", "--exclusive")
    site.await_state(job, lambda said: said == "RUNNING")
    site.submit("sleep 1", "-w", "n[0-2]", "-N3", "--exclusive", "-p", "urgent")
    assert site.await_end(job) == "PREEMPTED"
    assert found(site.postmortem(job))[0] == "preempted"


def test_its_time_is_up(site: Site, jobs: dict[str, str]) -> None:
    job = jobs["time limit"]
    assert site.await_end(job, 240.0) == "TIMEOUT"
    report = site.postmortem(job)
    assert found(report)[0] == "time_limit"
    assert "--time" in said_to_do(report)


@INSTALLED_ONLY
def test_a_bundle_of_a_job_keeps_secrets_here(site: Site, jobs: dict[str, str]) -> None:
    job = jobs["secret"]
    site.await_end(job)
    site.await_evidence(job, 1)
    bundle = site.folder / "bundle.tar.gz"
    site.postmortem(job, "--bundle", str(bundle), "--anonymous")
    unpacked = subprocess.run(["tar", "-xzO", "-f", str(bundle)], capture_output=True, check=True).stdout.decode()
    assert "hf_abcdef" not in unpacked
    assert "removed>" in unpacked


def test_a_node_that_goes_away(site: Site) -> None:
    """The last test: slurmd of n3 stays dead. Of one job it was all nodes: no epilog tells of that."""
    job = site.submit(f"{STEPS}sleep 300", "-w", "n[2-3]", "-N2")
    alone = site.submit(f"{STEPS}sleep 300", "-w", "n3")
    for each in (job, alone):
        site.await_state(each, lambda said: said == "RUNNING")
    os.kill(int((site.lab.path / "run" / "slurmd-n3.pid").read_text()), signal.SIGKILL)
    for each in (job, alone):
        assert site.await_end(each, 180.0) == "NODE_FAIL"
        report = site.postmortem(each)
        failed, place = found(report)
        assert (failed, place["node"]) == ("node", "n3")
        assert "State=DRAIN" in said_to_do(report) or "n3" in said_to_do(report)
    looks_for_missed(site, alone)


def looks_for_missed(site: Site, job: str) -> None:
    """The host that asks the accounting for what no epilog told of: the report is written, and only once."""
    written = site.folder_of(job) / "report.json"
    assert not written.exists()
    settings = site.lab.path / "etc" / "opsk.toml"
    settings.write_text(settings.read_text().replace("[postmortem]\n", "[postmortem]\nmissed_after_s = 0\n"))
    for spool in ("first", "second"):
        site.opsk("collect", "--missed", "--spool", str(site.folder / spool))
        report = json.loads(written.read_text())
        assert (report["state"], report["root_cause"]["class"]) == ("NODE_FAIL", "node")
        at = written.stat().st_mtime_ns
    assert written.stat().st_mtime_ns == at
