"""Do the metrics of training say where jobs stand, and does a user's log never get more out of the exporter?"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from prometheus_client import Metric

from opsk.telemetry import report
from opsk_exporters.core.collector import NoDataError
from opsk_exporters.jobs.training import TrainingCollector
from tests.fakes.job_notes import Node
from tests.fakes.progress_logs import megatron_line

STEPS = {"batch": [101], "extern": [100], "0": [102]}


def series(metrics: Iterable[Metric]) -> Iterator[tuple[str, float]]:
    for metric in metrics:
        for sample in metric.samples:
            labels = ",".join(f"{name}={value}" for name, value in sample.labels.items())
            yield f"{sample.name}{{{labels}}}" if labels else sample.name, sample.value


class Site:
    """A node with one job whose log a test writes."""

    def __init__(self, root: Path) -> None:
        self.node = Node(root)
        self.log = root / "slurm-12.out"
        self.collector = TrainingCollector(self.node.mapper(), self.node.jobs, self.node.proc, clock=self.node.clock)

    def job(self, *, steps: dict[str, list[int]] | None = None, **more: object) -> None:
        said = {"uid": os.getuid(), "stdout": self.log, "work_dir": self.log.parent, **more}
        self.node.note(12, [0], **said)  # type: ignore[arg-type]
        self.node.cgroups.add(12, steps or STEPS)

    def write(self, *lines: str) -> None:
        with self.log.open("a", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in lines)

    def scrape(self) -> dict[str, float]:
        return dict(series(self.collector.collect()))


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def test_where_a_job_stands(site: Site) -> None:
    """Steps of 2 s after a first of 60 s; 512 samples of 4,096 tokens a step: 1,048,576 tokens/s."""
    site.job()
    site.write("  seq_length ........... 4096", megatron_line(1, step_ms=60000))
    site.write(*(megatron_line(step, step_ms=2000, batch=512, tflops=400, loss=2.5) for step in (2, 3, 4)))
    found = site.scrape()
    assert found["opsk_training_iteration{job=12}"] == 4
    assert found["opsk_training_iterations{job=12}"] == 1000
    assert found["opsk_training_step_seconds{job=12}"] == 2.0
    assert found["opsk_training_tokens_per_second{job=12}"] == pytest.approx(512 * 4096 / 2)
    assert found["opsk_training_tflops_per_gpu{job=12}"] == 400
    assert found["opsk_training_loss{job=12}"] == 2.5
    assert found["opsk_training_restarts_total{job=12}"] == 0
    assert found["opsk_training_last_progress_timestamp_seconds{job=12}"] == pytest.approx(site.log.stat().st_mtime)
    assert found["opsk_training_info{job=12,framework=megatron-lm}"] == 1
    assert "opsk_training_predicted_step_seconds{job=12,bound=expected}" not in found


def test_a_log_is_read_on_and_restarts_are_counted(site: Site) -> None:
    site.job()
    site.write(megatron_line(10), megatron_line(20))
    assert site.scrape()["opsk_training_iteration{job=12}"] == 20
    site.write(megatron_line(30, loss=math.nan), megatron_line(20, step_ms=3000), megatron_line(30, step_ms=3000))
    found = site.scrape()
    assert found["opsk_training_iteration{job=12}"] == 30
    assert found["opsk_training_step_seconds{job=12}"] == 3.0
    assert found["opsk_training_restarts_total{job=12}"] == 1


def test_a_loss_that_is_no_number_is_shown_as_such(site: Site) -> None:
    site.job()
    site.write(megatron_line(10), megatron_line(20, loss=math.nan))
    assert math.isnan(site.scrape()["opsk_training_loss{job=12}"])


def test_predictions_stand_beside_it_where_a_site_gives_them(site: Site) -> None:
    site.job()
    site.write(megatron_line(10))
    note = site.node.jobs / "12.advice"
    note.write_text("held by ann opsk:v1 verdict=fits step_s=2.5 tflops=380 step_s_low=2.1 step_s_high=3e0\n")
    found = site.scrape()
    bounds = {
        bound: found[f"opsk_training_predicted_step_seconds{{job=12,bound={bound}}}"]
        for bound in ("low", "expected", "high")
    }
    assert bounds == {"low": 2.1, "expected": 2.5, "high": 3.0}
    note.write_text("step_s=1 without the mark of a record\n")
    assert "opsk_training_predicted_step_seconds{job=12,bound=expected}" not in site.scrape()


def test_a_prediction_is_of_the_job_of_its_cluster(site: Site) -> None:
    site.job(cluster="east")
    site.write(megatron_line(10))
    expected = "opsk_training_predicted_step_seconds{job=12,bound=expected}"
    (site.node.jobs / "west.12.advice").write_text("opsk:v1 step_s=9\n")
    assert expected not in site.scrape()
    (site.node.jobs / "12.advice").write_text("opsk:v1 step_s=4\n")
    assert site.scrape()[expected] == 4.0, "a site's prolog may still write what opsk 0.1 read"
    (site.node.jobs / "east.12.advice").write_text("opsk:v1 step_s=2\n")
    assert site.scrape()[expected] == 2.0


def test_only_the_node_of_the_batch_script_reads_the_log(site: Site) -> None:
    site.job(steps={"extern": [100], "0": [102]})
    site.write(megatron_line(10))
    with pytest.raises(NoDataError, match="another node"):
        site.scrape()


def test_the_batch_script_is_found_by_its_slurmstepd_where_there_are_no_control_groups(site: Site) -> None:
    site.node.note(12, [0], uid=os.getuid(), stdout=site.log)
    site.write(megatron_line(10))
    with pytest.raises(NoDataError):
        site.scrape()
    site.node.process(500, comm="slurmstepd", cmdline="slurmstepd: [12.batch]")
    site.node.clock.now_s += 60
    assert site.scrape()["opsk_training_iteration{job=12}"] == 10


def test_somebody_elses_file_is_not_read(site: Site) -> None:
    site.job(uid=os.getuid() + 1)
    site.write(megatron_line(10))
    found = site.scrape()
    assert found["opsk_training_logs_unreadable"] == 1
    assert "opsk_training_iteration{job=12}" not in found


@pytest.mark.parametrize("kind", ["fifo", "link", "folder", "nothing"])
def test_what_is_no_log_neither_blocks_nor_shows(site: Site, kind: str) -> None:
    site.job()
    if kind == "fifo":
        os.mkfifo(site.log)
    elif kind == "link":
        other = site.log.with_name("other")
        other.write_text(megatron_line(10) + "\n")
        site.log.symlink_to(other)
    elif kind == "folder":
        site.log.mkdir()
    found = site.scrape()
    assert found["opsk_training_logs_unreadable"] == 1
    assert "opsk_training_iteration{job=12}" not in found


def test_a_log_that_appears_later_is_read_then(site: Site) -> None:
    site.job()
    assert site.scrape()["opsk_training_logs_unreadable"] == 1
    site.write(megatron_line(10))
    assert site.scrape()["opsk_training_iteration{job=12}"] == 10


def test_a_site_may_forbid_it(site: Site) -> None:
    site.job()
    site.write(megatron_line(10))
    site.collector = TrainingCollector(site.node.mapper(), site.node.jobs, site.node.proc, enabled=False)
    with pytest.raises(NoDataError, match="training_logs"):
        site.scrape()


def test_a_job_that_has_ended_is_gone(site: Site) -> None:
    site.job()
    site.write(megatron_line(10))
    assert "opsk_training_iteration{job=12}" in site.scrape()
    (site.node.jobs / "12").unlink()
    site.node.clock.now_s += 60
    with pytest.raises(NoDataError):
        site.scrape()


def write_to(site: Site, pid: int, log: Path) -> None:
    """Let there be a process of the batch step that writes to a file."""
    site.node.process(pid)
    folder = site.node.proc / str(pid)
    (folder / "fd").mkdir()
    (folder / "fd" / "1").symlink_to(log)
    (folder / "cgroup").write_text(
        "0::/system.slice/slurmstepd.scope/job_12/step_batch/user/task_0\n", encoding="ascii"
    )


def test_where_slurm_does_not_tell_the_log_is_what_the_batch_script_writes_to(site: Site) -> None:
    site.job(stdout="", work_dir="")
    site.write(megatron_line(10))
    assert site.scrape() == {
        "opsk_training_jobs": 0, "opsk_training_logs_unknown": 1, "opsk_training_logs_unreadable": 0
    }  # fmt: skip
    write_to(site, 101, site.log)
    site.node.clock.now_s += 20
    found = site.scrape()
    assert found["opsk_training_iteration{job=12}"] == 10
    assert (found["opsk_training_jobs"], found["opsk_training_logs_unknown"]) == (1, 0)


def test_a_file_that_the_script_opens_later_is_watched_too(site: Site) -> None:
    """The output of the script tells of two steps and a restart; what it starts later tells of more steps."""
    site.job(stdout="", work_dir="", steps={"batch": [101, 103], "extern": [100]})
    write_to(site, 101, site.log)
    site.write(megatron_line(10), megatron_line(5))
    assert site.scrape()["opsk_training_restarts_total{job=12}"] == 1
    later = site.log.with_name("train.log")
    later.write_text("".join(f"{megatron_line(step)}\n" for step in range(11, 20)), encoding="ascii")
    write_to(site, 103, later)
    site.node.clock.now_s += 20
    found = site.scrape()
    assert found["opsk_training_iteration{job=12}"] == 19
    assert found["opsk_training_restarts_total{job=12}"] == 1


def test_a_path_that_slurm_tells_counts_alone(site: Site) -> None:
    site.job()
    other = site.log.with_name("other.log")
    other.write_text(f"{megatron_line(10)}\n", encoding="ascii")
    write_to(site, 101, other)
    assert "opsk_training_iteration{job=12}" not in site.scrape()


def test_a_loop_of_ones_own_shows_by_what_it_reports(site: Site) -> None:
    """2**20 tokens in steps of 2 s are 524,288 a second."""
    site.job()
    with site.log.open("w", encoding="ascii") as out:
        for step in range(1, 6):
            report(step=step, total=100, step_s=2, tokens=1 << 20, loss=1.5, tflops_per_gpu=400, file=out)
    found = site.scrape()
    assert found["opsk_training_info{job=12,framework=opsk-report}"] == 1
    assert found["opsk_training_iteration{job=12}"] == 5
    assert found["opsk_training_iterations{job=12}"] == 100
    assert found["opsk_training_step_seconds{job=12}"] == 2
    assert found["opsk_training_tokens_per_second{job=12}"] == 524288
    assert found["opsk_training_tflops_per_gpu{job=12}"] == 400
    assert found["opsk_training_loss{job=12}"] == 1.5
