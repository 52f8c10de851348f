"""Are the recorded trees of real nodes, and a real gres.conf, read as the exporters that they come with read them?"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from opsk.telemetry.gpu.job_gpus import parse_gres_conf
from opsk.telemetry.host.cgroups import CgroupReader
from tests.fakes.ttar import extract_ttar

pytestmark = pytest.mark.shared


def test_the_jobs_of_a_recorded_tree_of_version_1(shared: Path, tmp_path: Path) -> None:
    """Every number is one file of the archive, converted by hand: cpuacct.stat in 1/100 s, cpuacct.usage in ns."""
    extract_ttar(shared / "data/real/sysfs/slurm_cgroup_v1.ttar", tmp_path, "fixtures")
    jobs = {job.job_id: job for job in CgroupReader(tmp_path / "fixtures").jobs()}
    assert sorted(jobs) == ["10", "11"], "not Torque's, and not a user's session"
    small, large = jobs["10"], jobs["11"]
    assert (small.uid, small.version, small.steps, small.processes) == (20821, 1, ("batch",), 2)
    assert (small.cpu_s, small.cpus) == (pytest.approx(0.007710215), 2)
    assert (small.memory_bytes, small.memory_peak_bytes, small.memory_limit_bytes) == (356352, 552960, 2147483648)
    assert (small.anonymous_bytes, small.cache_bytes) == (311296, 4096)
    assert large.steps == ("0", "batch", "extern")
    assert (large.cpu_user_s, large.cpu_system_s, large.cpus) == (33135.61, 95.71, 40)
    assert (large.memory_bytes, large.memory_limit_bytes) == (6126714880, 191092490240)
    assert (large.anonymous_bytes, large.cache_bytes) == (6051483648, 74915840)
    assert len(large.extern_pids) == 1
    assert large.processes == len(large.pids) - 1


def test_a_real_gres_conf_gives_the_instances_that_another_exporter_found(shared: Path) -> None:
    """CEEMS' scrape of a node with this gres.conf names, by Slurm's index, the GPU instance or the whole GPU."""
    sysfs = shared / "data/real/sysfs"
    conf = parse_gres_conf((sysfs / "gres_mig.conf").read_text(encoding="utf-8"))
    scrape = (sysfs / "ceems_metrics_cgroupv1.prom").read_text(encoding="utf-8")
    rows = re.findall(r'gpu_index_flag\{.*gpuiid="(\d*)",gpuuuid="([^"]+)".*,index="(\d+)"', scrape)
    assert len(rows) >= 8
    gpus: dict[str, set[int | None]] = {}
    for instance, uuid, index in rows:
        device = conf.devices[int(index)]
        assert (device.gi is None, device.gi) == (not instance, int(instance) if instance else None)
        gpus.setdefault(uuid, set()).add(device.minor)
    assert all(len(minors) == 1 for minors in gpus.values()), "one UUID is one device"
    assert conf.detect == "nvml"
    assert len(conf.devices) == 12, "shards and MPS are no devices of their own"
