"""Real Slurm, each release: does the prolog write down what the exporter needs, and does the epilog take it away?

The nodes of the lab are one host: each writes into a folder of its own, which a wrapper chooses as the site would not.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from opsk.lab.lifecycle import take_down, up
from opsk.lab.programs import build_search_path
from opsk.lab.record import LabShape
from opsk.lab.status import build_slurm_environment
from opsk.telemetry.host.cgroups import CgroupReader
from opsk.telemetry.jobs.job_files import JobFile, read_job_files, resolve_log_paths
from opsk.telemetry.jobs.job_map import JobMap, JobMapper
from opsk.telemetry.jobs.job_processes import StepDaemons
from opsk_exporters.core.collector import NoDataError
from opsk_exporters.jobs import training
from tests.fakes.advisor_process import eventually
from tests.fakes.gpus import gpu_uuid, h100, reading
from tests.fakes.progress_logs import megatron_line
from tests.fakes.settling import settle
from tests.integration.conftest import ROOT, RunningLab, Slurm, path_is

pytestmark = [pytest.mark.slurm, pytest.mark.fabric, pytest.mark.timeout(600)]

SLURMD_LOOKS_S = 3.0
"""slurmd of 22.05 forgets the credential of a first run only where it has looked at none for two seconds; until then it
takes the second run for the first, and runs no prolog (its log then says "reissued job credential" twice)."""

WRAPPER = """#!/bin/sh
# Stands for a node with a /run of its own, and no spool for evidence.
export OPSK_JOBS_FOLDER={folder}/$SLURMD_NODENAME OPSK_SPOOL_FOLDER={folder}/no-spool
/usr/bin/env >>"{folder}/{which}.$SLURMD_NODENAME.$SLURM_JOB_ID"
exec {root}/deploy/slurm/opsk-{which}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Noted:
    """A lab with prolog and epilog, and where they write."""

    lab: RunningLab
    folder: Path

    def files(self, node: str = "n0") -> tuple[JobFile, ...]:
        return read_job_files(self.folder / node, time.time()).files

    def await_files(self, count: int, node: str = "n0") -> tuple[JobFile, ...]:
        return eventually(lambda: self.files(node), lambda files: len(files) == count)

    def map(self, node: str = "n0") -> JobMap:
        """The jobs as an exporter of that node sees them; the lab has no control groups."""
        mapper = JobMapper(CgroupReader(self.folder / "none"), folder=self.folder / node)
        return mapper.read(reading(*(h100(index) for index in range(4))))

    def submit(self, *options: str) -> str:
        command = "sleep 300"
        done = self.lab.run("sbatch", "--parsable", "-o", "/dev/null", *options, "--wrap", command, cwd=self.folder)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def cancel(self) -> None:
        assert self.lab.run("scancel", "--full", "-u", str(os.getuid())).returncode == 0
        assert self.await_files(0) == ()
        assert self.await_files(0, "n1") == ()


@pytest.fixture(scope="module")
def noted(slurm: Slurm, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Noted]:
    folder = tmp_path_factory.mktemp("noted")
    for which in ("prolog", "epilog"):
        wrapper = folder / which
        wrapper.write_text(WRAPPER.format(folder=folder, which=which, root=ROOT))
        wrapper.chmod(0o755)
    with path_is(slurm.path):
        record, _ = up(
            folder / "lab", shape=LabShape(nodes=2, gpus=4, hcas=1, leaves=1, spines=1), parts=(),
            progress=lambda _: None,
        )  # fmt: skip
        kept = {name: text for name, text in os.environ.items() if not name.startswith(("OPSK_", "SLURM_", "SBATCH_"))}
        environment = {**kept, "PATH": build_search_path(), "HOME": str(folder), **build_slurm_environment(record)}
    lab = RunningLab(path=folder / "lab", environment=environment)
    try:
        conf = folder / "lab" / "etc" / "slurm.conf"
        conf.write_text(
            # Numbers that no other lab of this machine has: processes are found by them.
            f"{conf.read_text()}Prolog={folder}/prolog\nEpilog={folder}/epilog\nPrologFlags=Alloc\n"
            f"FirstJobId={1_000_000 + os.getpid()}\n",
            encoding="utf-8",
        )
        assert lab.run("scontrol", "reconfigure").returncode == 0
        assert eventually(lambda: lab.run("sinfo", "-h", "-N", "-o", "%t").stdout.split(), lambda s: s == ["idle"] * 2)
        yield Noted(lab=lab, folder=folder)
    finally:
        take_down(folder / "lab", record)


@pytest.fixture(autouse=True)
def no_jobs(noted: Noted) -> Iterator[None]:
    yield
    noted.cancel()


def told(noted: Noted, which: str, job: str, node: str = "n0") -> dict[str, str]:
    lines = (noted.folder / f"{which}.{node}.{job}").read_text().splitlines()
    return {name: value for name, _, value in (line.partition("=") for line in lines)}


def test_a_job_is_written_down_while_it_has_its_gpus(noted: Noted, slurm: Slurm) -> None:
    job = noted.submit("-w", "n0", "--gpus=2", "-J", "a b")
    (file,) = noted.await_files(1)
    assert (file.job_id, file.node, file.cluster, file.uid) == (job, "n0", noted.lab.cluster, os.getuid())
    assert file.partition == "train"
    assert file.gpus == (0, 1)
    assert file.devices == ("0", "1")
    assert file.conf == str(noted.folder / "lab" / "etc" / "slurm.conf")
    assert file.work_dir == str(noted.folder)
    assert file.stdout == "/dev/null"
    assert (file.sluid is not None) == (slurm.release >= (25, 11))
    assert (file.start_unix_s is not None) == (slurm.release >= (24, 11))
    noted.cancel()
    assert noted.files() == ()
    assert eventually(
        lambda: noted.lab.run("sinfo", "-h", "-N", "-o", "%t").stdout.split(), lambda s: s == ["idle"] * 2
    )


def test_slurms_numbers_are_found_in_its_gres_conf(noted: Noted) -> None:
    """The lab's gres.conf lists /dev/nvidia0 to 3 of its own; the third and fourth go to the second job."""
    noted.submit("-w", "n0", "--gpus=2")
    noted.await_files(1)
    second = noted.submit("-w", "n0", "--gpus=2")
    noted.await_files(2)
    runs = {run.job: run for run in noted.map().jobs}
    assert [gpu.uuid for gpu in runs[second].gpus if gpu.allocated] == [gpu_uuid(2), gpu_uuid(3)]
    assert runs[second].gpus_from == "prolog"


def test_a_node_without_a_step_has_the_job_too(noted: Noted) -> None:
    """PrologFlags=Alloc: the batch script is on n0 only, and both nodes' GPUs are given out."""
    job = noted.submit("-N2", "--gpus-per-node=1")
    assert noted.await_files(1)[0].job_id == job
    (file,) = noted.await_files(1, "n1")
    assert (file.job_id, file.node, file.gpus) == (job, "n1", (0,))


def test_a_slurmstepd_is_found_by_its_title(noted: Noted, slurm: Slurm) -> None:
    job = noted.submit("-w", "n0", "--gpus=1")
    noted.await_files(1)
    (file,) = noted.files()
    names = {job, file.sluid}
    assert eventually(lambda: (StepDaemons().jobs() or frozenset()) & names, bool)


OUTPUTS = (
    (),
    ("-o", "out/%j-%5A-%a-%n-%t-%s-%J-%u-%%.log"),
    ("-o", "/dev/null", "-e", "%4j.err"),
    ("-o", "as \\\\it is %j"),
    ("--array=7",),
)


@pytest.mark.parametrize("options", OUTPUTS, ids=" ".join)
def test_the_log_of_a_job_is_found_by_its_pattern_or_by_what_the_script_writes_to(
    noted: Noted, options: tuple[str, ...]
) -> None:
    """The lab has no control groups; its exporter may look at processes."""
    (noted.folder / "out").mkdir(exist_ok=True)
    script = noted.folder / "train.sh"
    script.write_text(f"#!/bin/sh\necho '{megatron_line(10)}' | tee /dev/stderr\nsleep 300\n", encoding="ascii")
    done = noted.lab.run("sbatch", "--parsable", "-w", "n0", *options, str(script), cwd=noted.folder)
    assert done.returncode == 0, done.stderr
    (file,) = noted.await_files(1)
    if options and options[0] == "-o" and "\\" not in options[1]:
        found = eventually(
            lambda: resolve_log_paths(file, file.job_id), lambda paths: any(path.exists() for path in paths)
        )
        assert len(found) == 1, "by what Slurm told alone"

    def scraped() -> dict[str, float]:
        collector = training.make(cgroups=noted.folder / "none", folder=noted.folder / "n0")
        try:
            metrics = tuple(collector.collect())
        except NoDataError:
            return {}
        return {sample.name: sample.value for metric in metrics for sample in metric.samples}

    found_series = eventually(scraped, lambda series: "opsk_training_iteration" in series)
    assert (found_series["opsk_training_iteration"], found_series["opsk_training_logs_unknown"]) == (10, 0)


def test_arrays_and_heterogeneous_jobs_are_components_with_numbers_of_their_own(noted: Noted) -> None:
    noted.submit("-w", "n0", "--array=3-4", "--gpus=1")
    files = noted.await_files(2)
    assert len({file.job_id for file in files}) == 2
    noted.cancel()
    script = noted.folder / "het.sh"
    script.write_text("#!/bin/sh\n#SBATCH -w n0 --gpus=1\n#SBATCH hetjob\n#SBATCH -w n1 --gpus=2\nsleep 300\n")
    done = noted.lab.run("sbatch", "--parsable", "-o", "/dev/null", str(script), cwd=noted.folder)
    het = done.stdout.strip()
    noted.await_files(1)
    (second,) = noted.await_files(1, "n1")
    assert second.het_job == het
    assert [run.job for run in noted.map("n1").jobs] == [f"{het}+1"]


def test_a_requeued_job_is_another_run(noted: Noted, slurm: Slurm) -> None:
    job = noted.submit("-w", "n0", "--gpus=1", "--requeue")
    (first,) = noted.await_files(1)
    time.sleep(1.1)
    assert noted.lab.run("scontrol", "requeue", job).returncode == 0
    noted.await_files(0)

    state = ("squeue", "-h", "-j", job, "-o", "%T")
    eventually(lambda: noted.lab.run(*state).stdout.strip(), lambda said: said == "PENDING")
    settle(noted.lab)
    time.sleep(SLURMD_LOOKS_S)

    def started_again() -> tuple[JobFile, ...]:
        # Slurm waits two minutes by itself, and once more when a node tells late that it ended the first run.
        noted.lab.run("scontrol", "update", f"JobId={job}", "StartTime=now")
        return noted.files()

    (second,) = eventually(started_again, lambda files: len(files) == 1, 90.0)
    assert second.job_id == job
    assert second.run != first.run
    assert second.restarts == 1
    if slurm.release >= (25, 11):
        assert second.sluid != first.sluid


def test_what_cannot_be_written_harms_no_job(noted: Noted) -> None:
    """A file lies where the folder should be: the job runs, and the node is not drained."""
    for path in (noted.folder / "n0").iterdir():
        path.unlink()
    (noted.folder / "n0").rmdir()
    (noted.folder / "n0").write_text("")
    try:
        done = noted.lab.run("srun", "-w", "n0", "--gpus=1", "echo", "ran", cwd=noted.folder)
        assert (done.returncode, done.stdout) == (0, "ran\n"), done.stderr
        assert "drain" not in noted.lab.run("sinfo", "-h", "-N", "-o", "%t").stdout
    finally:
        (noted.folder / "n0").unlink()
        (noted.folder / "n0").mkdir()
