"""Do the exporter's series say what a real Slurm of each release has: jobs, arrays, GPUs, a drained node, advice?"""

from __future__ import annotations

import os
import re
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from opsk.errors import SlurmError
from opsk.slurm.commands.command import CommandClient
from opsk_exporters.slurm.collector import SlurmCollector, make

pytestmark = pytest.mark.slurm

ASKED_FOR_S = 4.0
"""A scrape that waited for a question would take as long; on a busy machine any takes some tenths of a second."""
PATIENCE_S = 60.0
GPUS = 8
Series = dict[tuple[str, ...], float]


def scrape(lab: Any, on: str | None = None) -> Series:
    """Return what one new exporter of this lab tells."""
    slurm = CommandClient(environment=dict(lab.environment))
    # Not closed, each would ask all of it once a minute to the end of the tests.
    with closing(make(on or socket.gethostname(), users=1, deadline_s=PATIENCE_S, slurm=slurm)) as collector:
        return {
            (sample.name.removeprefix("opsk_slurm_"), *sample.labels.values()): sample.value
            for metric in collector.collect()
            for sample in metric.samples
        }


def eventually(lab: Any, is_so: Callable[[Series], bool]) -> Series:
    end = time.monotonic() + PATIENCE_S
    while not is_so(found := scrape(lab)):
        assert time.monotonic() < end, {name: value for name, value in found.items() if value}
        time.sleep(0.3)
    return found


@pytest.fixture
def submit(lab: Any, tmp_path: Path) -> Iterator[Callable[..., str]]:
    """Submit jobs; they are gone afterwards."""
    tmp_path.chmod(0o755)
    numbers = []

    def sbatch(*words: str) -> str:
        done = lab.run("sbatch", "--parsable", "-o", "/dev/null", *words, "--wrap", "sleep 600", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        numbers.append(done.stdout.strip())
        return numbers[-1]

    yield sbatch
    lab.run("scancel", *numbers)
    end = time.monotonic() + PATIENCE_S
    while lab.run("squeue", "-h").stdout.strip() or "mix" in lab.run("sinfo", "-h", "-o", "%t").stdout:
        assert time.monotonic() < end, lab.run("squeue").stdout
        time.sleep(0.2)


@pytest.fixture
def nodes(lab: Any) -> list[str]:
    return lab.run("sinfo", "-h", "-N", "-o", "%N").stdout.split()


def test_jobs_and_gpus_however_they_were_asked_for(lab: Any, submit: Callable[..., str]) -> None:
    submit("-N2", "--gpus-per-node=8")
    submit("-N1", "--gpus=3")
    submit("--hold", "-N1", "-n4", "--gpus-per-task=2")
    submit("--hold", "--array=0-99%4", "--gres=gpu:h100:8")
    submit("--hold", "--array=" + ",".join(str(2 * number) for number in range(60)), "--gpus=1")
    found = eventually(lab, lambda series: series["cluster_jobs", "running"] == 2)
    (partition,) = {name[1] for name in found if name[0] == "partition_up"}
    for each in (("jobs", "job_gpus"), ("cluster_jobs", "cluster_job_gpus")):
        where = () if each[0].startswith("cluster") else (partition,)
        jobs, gpus = ({state: found[name, state, *where] for state in ("pending", "running")} for name in each)
        assert jobs == {"pending": 1 + 100 + 60, "running": 2}
        assert gpus == {"pending": 8 + 100 * 8 + 60, "running": 16 + 3}
    assert found["pending_jobs", "held", partition] == 161
    assert ("pending_wait_oldest_seconds", partition) not in found, "held jobs wait on purpose"
    assert (found["cluster_gpus", "allocated"], found["cluster_gpus", "idle"]) == (19, 4 * GPUS - 19)
    assert found["cluster_type_gpus", "h100", "allocated"] == found["gpus", "allocated", partition] == 19
    assert sum(found["cluster_nodes", state] for state in ("mixed", "allocated")) == 3
    assert found["user_gpus", "root", "running"] == 19


def test_what_waits_and_for_how_long(lab: Any, submit: Callable[..., str]) -> None:
    submit("-N4", "--gpus-per-node=8")
    eventually(lab, lambda series: series["cluster_jobs", "running"] == 1)
    submit("-N1", "--gpus=8")
    partition = lab.run("sinfo", "-h", "-o", "%R").stdout.split()[0]

    def waits_for_nodes(series: Series) -> bool:
        # Slurm gives no reason until its scheduler has looked at the job
        reasons = (series.get(("pending_jobs", reason, partition), 0) for reason in ("resources", "priority"))
        return series.get(("pending_wait_oldest_seconds", partition), 0) >= 1 and sum(reasons) == 1

    found = eventually(lab, waits_for_nodes)
    assert found["pending_wait_p50_seconds", partition] == found["pending_wait_p90_seconds", partition]
    assert found["pending_wait_oldest_seconds", partition] < PATIENCE_S


def test_a_drained_node_takes_its_free_gpus_with_it(lab: Any, submit: Callable[..., str], nodes: list[str]) -> None:
    submit("-N1", "--gpus=3", f"--nodelist={nodes[0]}")
    eventually(lab, lambda series: series["cluster_jobs", "running"] == 1)
    lab.run("scontrol", "update", f"nodename={nodes[0]}", "state=drain", "reason=XID 79 on gpu 3")
    lab.run("scontrol", "update", f"nodename={nodes[1]}", "state=drain", "reason=ask Bob")
    try:
        found = scrape(lab)
    finally:
        lab.run("scontrol", "update", f"nodename={nodes[0]},{nodes[1]}", "state=resume")
    assert (found["cluster_nodes", "draining"], found["cluster_nodes", "drained"]) == (1, 1)
    told = {state: found["cluster_gpus", state] for state in ("allocated", "idle", "drained", "down")}
    assert told == {"allocated": 3, "idle": 2 * GPUS, "drained": GPUS - 3 + GPUS, "down": 0}
    assert (found["unavailable_nodes", "gpu"], found["unavailable_nodes", "other"]) == (1, 1)


def test_what_was_advised(lab: Any, submit: Callable[..., str]) -> None:
    number = submit("--hold", "--gpus=2")
    submit("--hold")
    lab.run("scontrol", "update", f"jobid={number}", "admincomment=opsk:v1 verdict=tight fit=0.6")
    found = scrape(lab)
    assert (found["advised_jobs", "tight", "pending"], found["advised_jobs", "none", "pending"]) == (1, 1)


def test_what_was_predicted_for_jobs_that_run(lab: Any, submit: Callable[..., str]) -> None:
    """By the number that people write: a task of an array, a component of a heterogeneous job, a plain one."""
    plain, silent = submit("-N1", "--gpus=2"), submit("-N1")
    array, pair = submit("--array=3", "-N1"), submit("-N1", ":", "-N1")
    waits = submit("--hold")
    record = "opsk:v1 verdict=fits mem_bytes=73800000000 capacity_bytes=84900000000 step_s={} tflops=412 mfu=0.41"
    eventually(lab, lambda series: series["cluster_jobs", "running"] == 5)
    for step_s, job in enumerate((plain, f"{array}_3", pair, f"{pair}+1", waits), start=1):
        done = lab.run("scontrol", "update", f"jobid={job}", f"admincomment=a site's word {record.format(step_s)}")
        assert done.returncode == 0, done.stderr
    found = scrape(lab)
    steps = {name[1]: value for name, value in found.items() if name[0] == "job_predicted_step_seconds"}
    assert steps == {plain: 1, f"{array}_3": 2, f"{pair}+0": 3, f"{pair}+1": 4}
    assert found["predicted_jobs",] == 4
    assert silent not in {name[1] for name in found if name[0].startswith("job_predicted_")}
    told = ("memory_bytes", "tflops_per_gpu", "mfu_ratio")
    assert [found[f"job_predicted_{name}", plain, plain] for name in told] == [73.8e9, 412, 0.41]
    assert ("job_predicted_tokens_per_second_per_gpu", plain, plain) not in found
    numbers = lab.run("squeue", "-h", "-r", "-o", "%i %A", "-t", "running").stdout.split()
    for name, number in zip(numbers[::2], numbers[1::2], strict=True):
        assert name == silent or ("job_predicted_step_seconds", name, number) in found


def test_a_reservation_for_maintenance(lab: Any, nodes: list[str]) -> None:
    made = lab.run(
        "scontrol", "create", "reservation", "reservationname=care", "starttime=now", "duration=60", "users=root",
        "flags=maint,ignore_jobs", f"nodes={nodes[3]}",
    )  # fmt: skip
    assert made.returncode == 0, made.stderr
    try:
        found = eventually(lab, lambda series: series["cluster_nodes", "maintenance"] == 1)
    finally:
        lab.run("scontrol", "delete", "reservationname=care")
    assert found["reservations", "active", "maintenance"] == 1
    assert (found["cluster_gpus", "drained"], found["cluster_gpus", "idle"]) == (GPUS, 3 * GPUS)


def test_the_scheduler_and_its_controller(lab: Any, submit: Callable[..., str]) -> None:
    submit()
    found = eventually(lab, lambda series: series["scheduler_cycles_total", "main"] >= 1)
    assert found["scheduler_threads",] >= 1
    assert 0 < found["scheduler_cycle_mean_seconds", "main"] < 1
    assert abs(found["scheduler_statistics_start_time_seconds",] - time.time()) < 3600
    assert [value for name, value in found.items() if name[0] == "controller_up"] == [1]
    assert {name[1]: value for name, value in found.items() if name[0] == "success"} == dict.fromkeys(
        ("queue", "nodes", "scheduler", "reservations", "controllers"), 1
    )


def test_the_node_of_the_slurmctld_in_charge_elects_itself(lab: Any) -> None:
    assert ("cluster_jobs", "running") in scrape(lab, "auto")


def test_a_slurmctld_that_hangs_costs_its_series_and_no_scrape_its_time(lab: Any) -> None:
    """Asked every half second with a deadline: stopped it fails, continued it answers again."""
    slurm = CommandClient(environment=dict(lab.environment), deadline_s=ASKED_FOR_S)
    slurmctld = int((lab.path / "run" / "slurmctld.pid").read_text())
    with closing(make(socket.gethostname(), every_s=0.5, deadline_s=PATIENCE_S, slurm=slurm)) as collector:
        assert _answers(collector)
        os.kill(slurmctld, signal.SIGSTOP)
        try:
            longest_s = _until(collector, is_well=False)
        finally:
            os.kill(slurmctld, signal.SIGCONT)
        assert max(longest_s, _until(collector, is_well=True)) < ASKED_FOR_S / 2


def _answers(collector: SlurmCollector) -> bool:
    try:
        return bool(tuple(collector.collect()))
    except SlurmError:
        return False


def _until(collector: SlurmCollector, *, is_well: bool) -> float:
    """Scrape until it is so; return how long the longest scrape took [s]."""
    end, longest_s, is_so = time.monotonic() + PATIENCE_S, 0.0, False
    while not is_so:
        began = time.monotonic()
        assert began < end
        is_so = _answers(collector) is is_well
        longest_s = max(longest_s, time.monotonic() - began)
        time.sleep(0.1)
    return longest_s


def test_the_exporter_itself_tells_it_and_stays_lean(lab: Any, tmp_path: Path) -> None:
    site = tmp_path / "opsk.toml"
    site.write_text('[exporter]\ncollectors = "slurm"\ndeadlines_s = { slurm = 60 }\n')
    command = (sys.executable, "-X", "importtime", "-m", "opsk", "exporter", "--once")
    done = lab.run("env", f"OPSK_CONFIG={site}", *command)
    assert done.returncode == 0, done.stderr
    assert 'opsk_collector_success{collector="slurm"} 1.0' in done.stdout
    gpus = re.findall(r'^opsk_slurm_cluster_gpus\{state="(?:idle|allocated)"\} (\S+)$', done.stdout, re.MULTILINE)
    assert sum(map(float, gpus)) == 4 * GPUS
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import time:")}
    assert imported.isdisjoint({"numpy", "pydantic", "sqlmodel", "scipy", "networkx", "textual"})
