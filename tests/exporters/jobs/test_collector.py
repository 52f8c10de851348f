"""Do the metrics of jobs say what jobs have, use and leave unused, and do their counters never fall and end in time?"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client import Metric

from opsk.errors import TelemetryError
from opsk.telemetry.gpu.samples import GpuPower, GpuProcess, GpuReading, GpuSample
from opsk_exporters.core.collector import NoDataError
from opsk_exporters.jobs import accounts as job_accounts
from opsk_exporters.jobs import collector as jobs
from opsk_exporters.jobs.collector import JobsCollector
from tests.fakes.cgroup_tree import MIB, sluid
from tests.fakes.gpus import FixedGpus, gpu_uuid, h100, reading, with_mig
from tests.fakes.job_notes import Node

STEPS = {"batch": [101], "extern": [100], "0": [102, 103]}


def gpu(index: int, *pids: int, busy: float = 0.0, energy_j: float | None = 1000.0) -> GpuSample:
    return replace(
        h100(index),
        utilisation={"gpu": busy},
        power=GpuPower(energy_j=energy_j),
        processes=tuple(GpuProcess(pid=pid) for pid in pids),
    )


class Site:
    """A node with its collector, whose GPUs and time a test moves."""

    def __init__(self, root: Path) -> None:
        self.node = Node(root)
        self.gpus = FixedGpus(reading(gpu(0), gpu(1)))
        self.processors_j: float | None = None
        self.state = root / "state" / "jobs.json"
        self.state.parent.mkdir()
        self.collector = self.new()

    def new(self, boot: str = "one") -> JobsCollector:
        return JobsCollector(
            self.node.mapper(), self.gpus, lambda: self.processors_j, state=self.state, boot=boot,
            clock=self.node.clock, wall=self.node.clock,
        )  # fmt: skip

    def scrape(self, *gpus: GpuSample | Exception, after_s: float = 0.0) -> dict[str, float]:
        self.node.clock.now_s += after_s
        if gpus:
            first = gpus[0]
            self.gpus = FixedGpus(first if isinstance(first, Exception) else reading(*gpus))  # type: ignore[arg-type]
            self.collector._gpus = self.gpus
        return dict(series(self.collector.collect()))


def series(metrics: object) -> Iterator[tuple[str, float]]:
    for metric in metrics:  # type: ignore[attr-defined]
        assert isinstance(metric, Metric)
        for sample in metric.samples:
            labels = ",".join(f"{name}={value}" for name, value in sample.labels.items())
            yield f"{sample.name}{{{labels}}}" if labels else sample.name, sample.value


def on(metric: str, job: str, index: int, more: str = "") -> str:
    return f"opsk_job_gpu_{metric}{{job={job},gpu={gpu_uuid(index)}{more}}}"


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def test_what_a_job_has_and_uses(site: Site) -> None:
    """The numbers of the tree of control groups for job 12; it began 100 s ago."""
    site.node.note(12, [0, 1], age_s=100, qos="high")
    site.node.cgroups.add(12, STEPS, oom_kills=1, io=True)
    shown = site.scrape(gpu(0, 102), gpu(1))
    assert shown["opsk_jobs"] == 1
    assert shown["opsk_job_gpus{job=12}"] == 2
    assert shown[f"opsk_job_gpu{{job=12,gpu={gpu_uuid(0)}}}"] == 1
    assert (shown[on("processes", "12", 0)], shown[on("processes", "12", 1)]) == (1, 0)
    assert shown[on("allocated_seconds_total", "12", 0)] == 100
    assert shown["opsk_job_cpu_seconds_total{job=12,mode=user}"] == 12
    assert shown["opsk_job_cpu_seconds_total{job=12,mode=system}"] == 3
    assert shown["opsk_job_cpu_throttled_seconds_total{job=12}"] == pytest.approx(0.012)
    assert shown["opsk_job_stalled_seconds_total{job=12,resource=cpu}"] == pytest.approx(0.024)
    assert shown["opsk_job_memory_bytes{job=12}"] == 48 * MIB
    assert shown["opsk_job_memory_limit_bytes{job=12}"] == 1200 * MIB
    assert shown["opsk_job_oom_kills_total{job=12}"] == 1
    assert (shown["opsk_job_processes{job=12}"], shown["opsk_job_cpus{job=12}"]) == (3, 24)
    assert shown["opsk_job_read_bytes_total{job=12}"] == 12_012
    (info,) = [name for name in shown if name.startswith("opsk_job_info")]
    assert info == (
        "opsk_job_info{job=12,sluid=,job_id=12,user=ann,account=phys,partition=gpu,qos=high,name=,gpus_from=prolog}"
    )


def test_energy_and_busy_time_are_what_happened_between_scrapes(site: Site) -> None:
    """10 s at half load, 3 kJ; then 20 s at full load, 12 kJ: 5 + 20 s busy, 15 kJ."""
    site.node.note(12, [0])
    site.scrape(gpu(0, busy=0.9, energy_j=5000.0))
    site.scrape(gpu(0, busy=0.5, energy_j=8000.0), after_s=10)
    shown = site.scrape(gpu(0, busy=1.0, energy_j=20_000.0), after_s=20)
    assert shown[on("busy_seconds_total", "12", 0)] == 25
    assert shown[on("energy_joules_total", "12", 0)] == 15_000
    assert shown[on("allocated_seconds_total", "12", 0)] == 30


def test_a_driver_that_was_loaded_anew_takes_no_energy_back(site: Site) -> None:
    """5 kJ, then a counter that began anew and shows 2 kJ: those were used too."""
    site.node.note(12, [0])
    site.scrape(gpu(0, energy_j=90_000.0))
    site.scrape(gpu(0, energy_j=95_000.0), after_s=10)
    shown = site.scrape(gpu(0, energy_j=2000.0), after_s=10)
    assert shown[on("energy_joules_total", "12", 0)] == 7000


def test_jobs_that_share_a_gpu_share_its_energy(site: Site) -> None:
    for job in (12, 13):
        site.node.note(job, [0])
    site.scrape(gpu(0, energy_j=0.0))
    shown = site.scrape(gpu(0, energy_j=1000.0), after_s=10)
    assert [shown[on("energy_joules_total", job, 0)] for job in ("12", "13")] == [500, 500]


def test_an_instance_has_its_part_of_its_gpus_energy(site: Site) -> None:
    """Two instances of 16 multiprocessors each: half of 1 kJ."""
    cut = with_mig(gpu(0, energy_j=0.0))
    uuid = cut.mig[0].uuid
    site.node.note(12, [0], devices=uuid)
    site.scrape(cut)
    shown = site.scrape(replace(cut, power=GpuPower(energy_j=1000.0)), after_s=10)
    assert shown[f"opsk_job_gpu_energy_joules_total{{job=12,gpu={uuid}}}"] == 500
    assert shown[f"opsk_job_gpu_idle_seconds_total{{job=12,gpu={uuid},reason=no_process}}"] == 10
    assert f"opsk_job_gpu_busy_seconds_total{{job=12,gpu={uuid}}}" not in shown, "nobody tells how busy it is"


def test_a_gpu_that_is_given_and_not_used_shows(site: Site) -> None:
    """10 s without a process, 10 s with one that does nothing, 10 s at work."""
    site.node.note(12, [0])
    site.node.cgroups.add(12, STEPS)
    site.scrape(gpu(0))
    site.scrape(gpu(0), after_s=10)
    site.scrape(gpu(0, 102), after_s=10)
    shown = site.scrape(gpu(0, 102, busy=0.7), after_s=10)
    assert shown[on("idle_seconds_total", "12", 0, ",reason=no_process")] == 10
    assert shown[on("idle_seconds_total", "12", 0, ",reason=no_work")] == 10


def test_what_nobody_saw_is_not_made_up(site: Site) -> None:
    """Ten minutes without a scrape say nothing of how busy the GPU was; its energy and the allocation are counted."""
    site.node.note(12, [0])
    site.scrape(gpu(0, energy_j=0.0, busy=1.0))
    shown = site.scrape(gpu(0, energy_j=6000.0, busy=1.0), after_s=600)
    assert on("busy_seconds_total", "12", 0) not in shown
    assert shown[on("energy_joules_total", "12", 0)] == 6000
    assert shown[on("allocated_seconds_total", "12", 0)] == 600


def test_a_job_pays_for_its_share_of_the_processors(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """GPU 1 kJ and half of the processors' 400 J: the job has 24 of 48 CPUs."""
    monkeypatch.setattr(jobs.os, "cpu_count", lambda: 48)
    site.node.note(12, [0])
    site.node.cgroups.add(12, STEPS)
    site.processors_j = 10_000.0
    site.scrape(gpu(0, energy_j=0.0))
    site.processors_j = 10_400.0
    shown = site.scrape(gpu(0, energy_j=1000.0), after_s=10)
    assert shown["opsk_job_energy_joules_total{job=12}"] == pytest.approx(1200)


def test_where_processors_do_not_tell_a_job_has_the_energy_of_its_gpus(site: Site) -> None:
    """RAPL is root's alone on most nodes: 1 kJ, then 2 kJ of the GPU, and nothing of processors."""
    site.node.note(12, [0])
    site.node.note(13, [])
    assert site.scrape(gpu(0, energy_j=0.0))["opsk_job_energy_joules_total{job=12}"] == 0
    site.scrape(gpu(0, energy_j=1000.0), after_s=15)
    shown = site.scrape(gpu(0, energy_j=3000.0), after_s=15)
    assert shown["opsk_job_energy_joules_total{job=12}"] == shown[on("energy_joules_total", "12", 0)] == 3000
    assert "opsk_job_energy_joules_total{job=13}" not in shown, "a job of which nobody tells anything"


def test_processors_that_fail_once_cost_only_their_own_part(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """The GPU's 1 kJ in each of four intervals; half of 400 J of processors in the two that have both readings."""
    monkeypatch.setattr(jobs.os, "cpu_count", lambda: 48)
    site.node.note(12, [0])
    site.node.cgroups.add(12, STEPS)
    shown: dict[str, float] = {}
    for look, processors_j in enumerate((0.0, 400.0, None, 1200.0, 1600.0)):
        site.processors_j = processors_j
        shown = site.scrape(gpu(0, energy_j=1000.0 * look), after_s=15)
    assert shown["opsk_job_energy_joules_total{job=12}"] == pytest.approx(4 * 1000 + 2 * 200)


def test_the_energy_of_a_job_outlives_a_restart(site: Site) -> None:
    """The GPU's 3 kJ while the exporter was away are the job's; nobody saw what the processors used."""
    site.node.note(12, [0])
    site.processors_j = 0.0
    site.scrape(gpu(0, energy_j=0.0))
    site.scrape(gpu(0, energy_j=1000.0), after_s=20)
    site.collector = site.new()
    shown = site.scrape(gpu(0, energy_j=4000.0), after_s=60)
    assert shown["opsk_job_energy_joules_total{job=12}"] == 4000


def test_gpus_that_cannot_be_read_cost_only_what_they_tell(site: Site) -> None:
    site.node.note(12, [0])
    site.node.cgroups.add(12, STEPS)
    site.scrape(gpu(0, energy_j=0.0))
    site.scrape(gpu(0, energy_j=500.0), after_s=10)
    shown = site.scrape(TelemetryError("hangs"), after_s=10)
    assert shown[on("energy_joules_total", "12", 0)] == 500
    assert on("processes", "12", 0) not in shown
    assert shown["opsk_job_processes{job=12}"] == 3


def test_a_job_that_ended_keeps_its_counters_for_a_while(site: Site) -> None:
    note = site.node.note(12, [0])
    group = site.node.cgroups.add(12, STEPS)
    site.scrape(gpu(0, energy_j=0.0))
    site.scrape(gpu(0, energy_j=800.0), after_s=15)
    note.unlink()
    site.node.cgroups.remove(group)
    shown = site.scrape(after_s=15)
    assert shown["opsk_jobs"] == 0
    assert shown["opsk_job_cpu_seconds_total{job=12,mode=user}"] == 12
    assert shown[on("energy_joules_total", "12", 0)] == 800
    assert shown[on("allocated_seconds_total", "12", 0)] == 15
    assert [name for name in shown if name.startswith("opsk_job_info")]
    assert f"opsk_job_gpu{{job=12,gpu={gpu_uuid(0)}}}" not in shown
    assert "opsk_job_memory_bytes{job=12}" not in shown
    for _ in range(20):
        shown = site.scrape()
    assert on("energy_joules_total", "12", 0) in shown, "ten scrapers at once do not make it old"
    shown = site.scrape(after_s=120)
    assert not [name for name in shown if "job=12" in name]


def test_the_next_run_of_a_job_takes_its_name_over(site: Site) -> None:
    first = site.node.note(12, [0], sluid=sluid(1))
    site.scrape(gpu(0, energy_j=0.0))
    site.scrape(gpu(0, energy_j=800.0), after_s=10)
    first.unlink()
    site.node.note(12, [0], sluid=sluid(2))
    shown = site.scrape(gpu(0, energy_j=900.0), after_s=10)
    assert shown[on("energy_joules_total", "12", 0)] == 0
    assert len([name for name in shown if name.startswith("opsk_job_info")]) == 1


def test_counters_of_a_control_group_never_fall(site: Site) -> None:
    """A task's group goes with the kill that it had counted."""
    site.node.note(12, [0])
    group = site.node.cgroups.add(12, STEPS, oom_kills=3)
    site.scrape()
    (group / "memory.events").write_text("oom_kill 0\n")
    assert site.scrape(after_s=10)["opsk_job_oom_kills_total{job=12}"] == 3
    (group / "memory.events").write_text("oom_kill 2\n")
    assert site.scrape(after_s=10)["opsk_job_oom_kills_total{job=12}"] == 5


def test_counters_outlive_a_restart(site: Site) -> None:
    """The exporter is away for a minute: energy goes on from the GPU's counter, busy time lacks that minute."""
    site.node.note(12, [0])
    site.scrape(gpu(0, energy_j=0.0, busy=1.0))
    site.scrape(gpu(0, energy_j=1000.0, busy=1.0), after_s=20)
    site.collector = site.new()
    shown = site.scrape(gpu(0, energy_j=4000.0, busy=1.0), after_s=60)
    assert shown[on("energy_joules_total", "12", 0)] == 4000
    assert shown[on("busy_seconds_total", "12", 0)] == 20
    assert shown[on("allocated_seconds_total", "12", 0)] == 80
    assert shown["opsk_job_state_writable"] == 1


@pytest.mark.parametrize("damage", ["", "[]", "{", '{"version": 1, "boot": "one"}', "\x00", "[" * 100_000])
def test_a_damaged_state_costs_what_it_held_and_nothing_else(site: Site, damage: str) -> None:
    site.node.note(12, [0], age_s=50)
    site.scrape(gpu(0, energy_j=0.0))
    site.state.write_text(damage)
    site.collector = site.new()
    shown = site.scrape(gpu(0, energy_j=4000.0), after_s=10)
    assert shown[on("energy_joules_total", "12", 0)] == 0
    assert shown[on("allocated_seconds_total", "12", 0)] == 60


def test_the_state_of_another_boot_is_not_used(site: Site) -> None:
    site.node.note(12, [0])
    site.scrape(gpu(0, energy_j=1000.0))
    assert json.loads(site.state.read_text())["boot"] == "one"
    site.collector = site.new(boot="two")
    assert site.scrape(gpu(0, energy_j=4000.0), after_s=10)[on("energy_joules_total", "12", 0)] == 0


def test_where_nothing_can_be_saved_it_shows_and_nothing_fails(site: Site) -> None:
    site.state.parent.rmdir()
    site.node.note(12, [0])
    assert site.scrape()["opsk_job_state_writable"] == 0


def test_files_that_are_not_used_are_counted_by_kind(site: Site) -> None:
    site.node.note(12, [0], age_s=20_000)
    site.node.note(13, [0]).write_text("opsk-job 1\n")
    (site.node.jobs / "14").mkdir()
    shown = site.scrape()
    assert [shown[f"opsk_job_bad_files{{kind={kind}}}"] for kind in ("stale", "torn", "unreadable")] == [1, 1, 1]


def test_a_node_has_series_for_so_many_jobs_only(site: Site) -> None:
    for job in range(1, jobs.MAX_JOBS + 11):
        site.node.note(job, [0])
    shown = site.scrape()
    assert (shown["opsk_jobs"], shown["opsk_jobs_omitted"]) == (jobs.MAX_JOBS + 10, 10)
    assert len([name for name in shown if name.startswith("opsk_job_info")]) == jobs.MAX_JOBS


def test_jobs_that_ended_count_among_those_with_series(site: Site) -> None:
    """A node full of short jobs: those that ended first go at once, those that are there stay."""
    first = [site.node.note(job, [0]) for job in range(1, jobs.MAX_JOBS + 1)]
    site.scrape()
    for note in first[:30]:
        note.unlink()
    site.scrape(after_s=1)
    for note in first[30:]:
        note.unlink()
    for job in range(1001, 1001 + jobs.MAX_JOBS - 20):
        site.node.note(job, [0])
    shown = site.scrape(after_s=1)
    named = {name.partition("job=")[2].partition(",")[0] for name in shown if name.startswith("opsk_job_info")}
    assert len(named) == jobs.MAX_JOBS
    assert {str(job) for job in range(1001, 1001 + jobs.MAX_JOBS - 20)} <= named
    assert not named & {str(job) for job in range(1, 31)}, "those that ended first"
    assert shown["opsk_jobs"] == jobs.MAX_JOBS - 20
    assert shown["opsk_jobs_omitted"] == jobs.MAX_JOBS - 20


def test_a_job_without_room_is_omitted_once(site: Site) -> None:
    """It is there, and had series until younger jobs took its place."""
    site.node.note(1, [0], age_s=1000)
    site.scrape()
    for job in range(2, jobs.MAX_JOBS + 2):
        site.node.note(job, [0])
    shown = site.scrape(after_s=1)
    assert (shown["opsk_jobs"], shown["opsk_jobs_omitted"]) == (jobs.MAX_JOBS + 1, 1)
    assert len([name for name in shown if name.startswith("opsk_job_info")]) == jobs.MAX_JOBS


def test_what_a_user_calls_a_job_is_made_harmless(site: Site) -> None:
    site.node.note(12, [0], name="a\x1b[31m\u202e", account='x"} 1')
    (info,) = [name for name in site.scrape() if name.startswith("opsk_job_info")]
    assert r"name=a\x1b[31m\u202e" in info


def test_a_node_without_jobs_of_slurm_has_no_data(site: Site) -> None:
    site.node.jobs.rmdir()
    with pytest.raises(NoDataError):
        site.scrape()


def test_a_job_that_goes_in_mid_scrape_fails_nothing(site: Site) -> None:
    note = site.node.note(12, [0])
    group = site.node.cgroups.add(12, STEPS)
    site.node.note(13, [1])
    site.scrape()

    class Going(FixedGpus):
        def gpus(self) -> GpuReading:
            note.unlink()
            site.node.cgroups.remove(group)
            return super().gpus()

    site.collector._gpus = Going(reading(gpu(0), gpu(1)))
    shown = dict(series(site.collector.collect()))
    assert "opsk_job_gpus{job=13}" in shown
    assert "opsk_job_gpus{job=12}" not in shown


def test_systemd_says_where_state_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RUNTIME_DIRECTORY", raising=False)
    assert job_accounts.find_state_file() is None
    monkeypatch.setenv("RUNTIME_DIRECTORY", "/run/opsk-exporter:/run/other")
    assert job_accounts.find_state_file() == Path("/run/opsk-exporter/jobs.json")


def test_the_factory_reads_where_it_is_told(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.clock.now_s = 4e9
    node.note(12, [0])
    collector = jobs.make(cgroups=node.groups, procfs=node.proc, folder=node.jobs)
    assert dict(series(collector.collect()))["opsk_jobs"] == 1
